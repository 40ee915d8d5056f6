"""The runner's half of the line: what it does with what a gateway asks. Sans I/O; a gateway is not trusted either.

    state        start       next                      cancel       our frame sent
    ───────────  ──────────  ────────────────────────  ───────────  ──────────────────────────
    unknown      → credited  nothing: it has ended     nothing      –
    credited     the line is closed, 1008 (both)       → unknown    → waiting, or unknown at end
    waiting      closed      → credited                → unknown    never: there is no credit

The model's server is read only while there is credit, so that at most one line of an answer is held.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.core.limits import RunnerLimits
from pointsman.wire.runner_frames import CANCEL, START, FrameError, ModelRequest, ModelResponse


@dataclass(frozen=True, slots=True)
class Begin:
    """Call the model's server, and send the first frame."""

    request: ModelRequest


@dataclass(frozen=True, slots=True)
class Continue:
    """Send one more frame."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Let go of the model's server."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this frame; nothing is called."""

    response: ModelResponse


Step = Begin | Continue | Stop | Answer | None


class RunnerCalls:
    """One websocket's requests. `allows` says whether the operator approved what a start names."""

    def __init__(self, allows: Callable[[ModelRequest], bool], limits: RunnerLimits) -> None:
        self._allows = allows
        self._limits = limits
        self._credits: dict[str, bool] = {}
        """By the id of a live request."""

    @property
    def live(self) -> frozenset[str]:
        """The ids of requests that are being answered."""
        return frozenset(self._credits)

    def received(self, request: ModelRequest) -> Step:
        """What to do. Raises FrameError for what no gateway sends: the line must be closed with 1008."""
        known = request.request_id in self._credits
        if request.operation == CANCEL:
            return Stop(request.request_id) if self._credits.pop(request.request_id, None) is not None else None
        if request.operation == START:
            if known:
                raise FrameError("a start came for a request that is under way")
            return self._start(request)
        if not known:
            return None
        if self._credits[request.request_id]:
            raise FrameError("a next came before its frame")
        self._credits[request.request_id] = True
        return Continue(request.request_id)

    def _start(self, request: ModelRequest) -> Step:
        if not self._allows(request):
            return Answer(ModelResponse(request.request_id, 403, done=True, error="runner_model_not_allowed"))
        if len(self._credits) >= self._limits.active_requests:
            return Answer(ModelResponse(request.request_id, 429, done=True, error="runner_busy"))
        self._credits[request.request_id] = True
        return Begin(request)

    def may_send(self, request_id: str) -> bool:
        """Whether a frame of this request may be sent now."""
        return self._credits.get(request_id, False)

    def sent(self, response: ModelResponse) -> None:
        """A frame goes out; `may_send` was asked. One that ends a request forgets it."""
        if not self._credits.get(response.request_id, False):
            raise FrameError("a frame without credit must not be sent")
        if response.ends:
            del self._credits[response.request_id]
        else:
            self._credits[response.request_id] = False

    def gave_up(self, request_id: str) -> None:
        """A request's time is over while there is no credit to say so; a `next` for it comes too late."""
        self._credits.pop(request_id, None)

    def lost(self) -> frozenset[str]:
        """The line has gone: whose servers are to be let go. Nothing is resumed on the next one."""
        lost = self.live
        self._credits.clear()
        return lost
