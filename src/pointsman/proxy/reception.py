"""How a listener takes requests in: which it serves, where each leads, and in which words it refuses.

The door (`inference.local`) is here; the gateway's data listener has one of its own. What happens to a request that was
taken in is `dispatch`'s, the same for both.
"""

from typing import Protocol

from pointsman.core.attempts import Chain, Member
from pointsman.core.caller import ANYBODY, Caller
from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import RouterError
from pointsman.core.runner_model import RunnerModel
from pointsman.proxy.route_table import RouteTable
from pointsman.routing.pattern import Target, match_pattern, read_target
from pointsman.routing.plan import select_candidate
from pointsman.wire.request import RequestHead
from pointsman.wire.response import error_answer, own_lines


class Admitted:
    """What was decided from a head. Not a dataclass: one is made per request, on the hot path."""

    __slots__ = ("asked", "caller", "protocol", "target")

    def __init__(self, protocol: str, target: Target, caller: Caller = ANYBODY) -> None:
        self.protocol = protocol
        self.target = target
        self.caller = caller
        self.asked = ""
        """The model that the body names, once it was chosen by; cut where it is longer than any."""

    def choose(self, body: bytes) -> Candidate | Member | Chain | RunnerModel:
        """Where the request goes. Raises RouterError."""
        raise NotImplementedError


class Reception(Protocol):
    """One listener's rules."""

    def admit(self, head: RequestHead) -> Admitted:
        """Decide from the head alone. Raises RouterError to refuse."""

    def error_answer(
        self, error: RouterError, request_id: str, attempts: int, *, protocol: str, keep_alive: bool, route: str = ""
    ) -> bytes:
        """A whole response that tells a client of an error; `protocol` and `route` are empty where unknown."""


class _AdmittedToTheDoor(Admitted):
    """Holds the bundle that it was decided on."""

    __slots__ = ("_bundle",)

    def __init__(self, protocol: str, target: Target, bundle: Bundle) -> None:
        super().__init__(protocol, target)
        self._bundle = bundle

    def choose(self, body: bytes) -> Candidate:
        return select_candidate(self._bundle.routes, self.protocol)


class Door:
    """`inference.local`: whatever model is named, the first route that speaks the dialect gets the request."""

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes

    def admit(self, head: RequestHead) -> Admitted:
        """Match a request by its head. Raises MalformedRequest or NotInference."""
        target = read_target(head)
        bundle = self._routes.bundle
        return _AdmittedToTheDoor(match_pattern(head.method, target.path, bundle.speaks), target, bundle)

    def error_answer(
        self, error: RouterError, request_id: str, attempts: int, *, protocol: str, keep_alive: bool, route: str = ""
    ) -> bytes:
        """OpenShell's words, whatever the dialect."""
        return error_answer(error, own_lines(request_id, attempts, route), keep_alive=keep_alive)
