"""The stage `context` of the data listener: what a route takes out of conversations, and what is told of it.

What is taken out is `routing.context_trim`'s; which routes take something out, `model_routes`'. Owns that large bodies
are read beside the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pointsman.core.context_options import ContextOptions
from pointsman.core.fault_place import fault_place
from pointsman.proxy.stages import Passage
from pointsman.routing.context_trim import OPTIMISED, Optimised, optimise
from pointsman.wire.json_strings import Document

FIELD = b"x-pointsman-context"
LARGE_BODY = 256 * 1024
"""Larger ones are read in a thread: they take 10 ms for each MiB, and more on a busy machine."""


class ContextStage:
    """`in_force` gives the options of routes that have any, by account and name. Nothing that goes wrong here keeps a
    request from being sent."""

    def __init__(
        self, in_force: Callable[[], Mapping[tuple[str, str], ContextOptions]], say: Callable[[str], None]
    ) -> None:
        self._in_force = in_force
        self._say = say
        # One: the work holds the interpreter, and a second thread of it would only take more of that from the loop.
        self._thread = ThreadPoolExecutor(1, "context")

    def close(self) -> None:
        """Begin no other body."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def trim(self, passage: Passage) -> None:
        """The stage."""
        record = passage.record
        options = self.options(record.caller.account, record.route, record.protocol)
        if options is None:
            return
        found = await self.optimised(passage.body, record.route, record.protocol, options, passage.document)
        passage.body = found.body
        passage.notes.saved_tokens = found.saved_tokens
        passage.notes.own_lines += told(found)

    def options(self, account: str, route: str, protocol: str) -> ContextOptions | None:
        """What is taken out of a route's requests in a dialect; None for nothing."""
        in_force = self._in_force()
        return in_force.get((account, route)) if in_force and protocol in OPTIMISED else None

    async def optimised(
        self, body: bytes, route: str, protocol: str, options: ContextOptions, document: Document | None = None
    ) -> Optimised:
        """What is sent on. Never raises. `document`: the body's, where it was read."""
        try:
            if len(body) <= LARGE_BODY:
                return optimise(body, protocol, options, None if document is None else document.value)
            return await asyncio.get_running_loop().run_in_executor(self._thread, optimise, body, protocol, options)
        except Exception as error:
            self._say(f"context of route {route}: a request was sent as it was: {fault_place(error)}")
            return Optimised(body, unchanged="internal_error")


def told(found: Optimised) -> bytes:
    """The header line of the answer."""
    why = f"; unchanged={found.unchanged}" if found.unchanged else ""
    return b"%b: saved=%d%b\r\n" % (FIELD, found.saved_tokens, why.encode("ascii"))
