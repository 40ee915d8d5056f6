"""The stage `context` of the data listener: what a route takes out of conversations, and what is told of it.

What is taken out is `routing.context_trim`'s; which routes take something out, `model_routes`'.
"""

from collections.abc import Callable, Mapping

from pointsman.core.context_options import ContextOptions
from pointsman.core.fault_place import fault_place
from pointsman.proxy.stages import Passage
from pointsman.routing.context_trim import OPTIMISED, Optimised, optimise

FIELD = b"x-pointsman-context"


class ContextStage:
    """`in_force` gives the options of routes that have any, by account and name. Nothing that goes wrong here keeps a
    request from being sent."""

    def __init__(
        self, in_force: Callable[[], Mapping[tuple[str, str], ContextOptions]], say: Callable[[str], None]
    ) -> None:
        self._in_force = in_force
        self._say = say

    async def trim(self, passage: Passage) -> None:
        """The stage."""
        record = passage.record
        options = self.options(record.caller.account, record.route, record.protocol)
        if options is None:
            return
        found = self.optimised(passage.body, record.route, record.protocol, options)
        passage.body = found.body
        passage.notes.saved_tokens = found.saved_tokens
        passage.notes.own_lines += told(found)

    def options(self, account: str, route: str, protocol: str) -> ContextOptions | None:
        """What is taken out of a route's requests in a dialect; None for nothing."""
        in_force = self._in_force()
        return in_force.get((account, route)) if in_force and protocol in OPTIMISED else None

    def optimised(self, body: bytes, route: str, protocol: str, options: ContextOptions) -> Optimised:
        """What is sent on. Never raises."""
        try:
            return optimise(body, protocol, options)
        except Exception as error:
            self._say(f"context of route {route}: a request was sent as it was: {fault_place(error)}")
            return Optimised(body, unchanged="internal_error")


def told(found: Optimised) -> bytes:
    """The header line of the answer."""
    why = f"; unchanged={found.unchanged}" if found.unchanged else ""
    return b"%b: saved=%d%b\r\n" % (FIELD, found.saved_tokens, why.encode("ascii"))
