"""What a gateway's processes ask of a bus. A conformance suite says what its implementations must do.

Nothing is queued: a request that nobody takes now fails now, and what was sent before a line broke is never sent again.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Protocol

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
"""What a bus must carry in one message (DESIGN D17): a request of 1 MiB, its envelope, and escapes."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class BusError(Exception):
    """Base. The text names no payload and no credential."""


class NoResponder(BusError):
    """Nobody serves the subject now; told at once."""


class NoReply(BusError):
    """Whoever took the request did not answer in time; it may have been acted upon."""


class BusUnavailable(BusError):
    """The bus itself cannot be reached, or was lost while the request was under way."""


Handler = Callable[[bytes], Awaitable[bytes]]
"""Answers one request. What it raises is told to nobody but the log; the caller waits in vain."""


class Subscription(Protocol):
    """A subject that is served."""

    async def close(self) -> None:
        """Serve it no longer: the next request finds no responder. Requests that are under way are answered."""


class Bus(Protocol):
    """One process's line to the others. Use it on one event loop."""

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        """Ask whoever serves a subject. Raises NoResponder, NoReply or BusUnavailable, within the time given."""

    async def publish(self, subject: str, payload: bytes) -> None:
        """Tell whoever serves a subject, if anybody does, and want no answer. Raises BusUnavailable."""

    async def serve(self, subject: str, handler: Handler) -> Subscription:
        """Answer requests on a subject, each in a task of its own, from the moment this returns.

        Raises BusUnavailable. Of several who serve one subject every one is asked, and the first answer counts.
        """

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Have `tell` called each time the line to the others was lost: whoever asked over it waits no more."""

    async def close(self) -> None:
        """Let go; requests that are under way raise BusUnavailable."""


def subject_of(*tokens: str) -> str:
    """A subject from its parts. Raises ValueError for a part that could reach beyond its place (`.`, `*`, `>`)."""
    for token in tokens:
        if not _TOKEN.fullmatch(token):
            raise ValueError("a part of a subject is made of letters, digits, - and _, at most 128 of them")
    return ".".join(tokens)
