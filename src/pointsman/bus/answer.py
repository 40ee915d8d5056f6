"""An answer that is waited for, whichever bus brings it.

Every event of a stream is a request, so a wait costs no more than a future and a timer: a fourth of asyncio.timeout.
"""

import asyncio

from pointsman.bus.interface import BusError, NoReply

Answer = asyncio.Future[bytes | BusError]
"""An error is a result here: a future whose exception nobody fetched, because whoever waited left, would complain."""


def settle(answer: Answer, given: bytes | BusError) -> None:
    """The first counts, and nothing does when nobody waits any more."""
    if not answer.done():
        answer.set_result(given)


async def answered(answer: Answer, subject: str, timeout_seconds: float) -> bytes:
    """What was given. Raises BusError: the one that was given, or NoReply when nothing was within the time."""
    late = NoReply(f"no answer on {subject} within {timeout_seconds:g} s")
    expiry = asyncio.get_running_loop().call_later(timeout_seconds, settle, answer, late)
    try:
        given = await answer
    finally:
        expiry.cancel()
    if isinstance(given, BusError):
        raise given
    return given
