"""The gateway's half of the line to one runner: which requests live on it, and who may send a frame. Sans I/O.

A request's states, and what each event does (DESIGN D27):

    state        ask start   ask next   ask cancel   a frame                    line lost
    ───────────  ──────────  ─────────  ───────────  ─────────────────────────  ─────────
    unknown      → credited  refused    nothing      dropped                    –
    credited     refused     refused    → unknown    → idle, or unknown at end  → unknown
    idle         refused     → credited → unknown    the line is closed, 1008   → unknown

`credited`: the runner owes one frame. A request that ended, however it did, is unknown again: what comes late for it is
dropped, and its id is never used twice.
"""

from dataclasses import dataclass

from pointsman.core.limits import RunnerLimits
from pointsman.wire.runner_frames import CANCEL, NEXT, START, FrameError, ModelRequest, ModelResponse


class Refused(Exception):
    """What was asked is not passed on. `code` is one of DESIGN section 8's."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame for whoever waits for it."""

    response: ModelResponse
    cancels: bool = False
    """Whether the runner must be told to stop: its answer broke a bound."""


class _Exchange:
    __slots__ = ("is_credited", "received")

    def __init__(self) -> None:
        self.is_credited = True
        self.received = 0
        """Bytes of data so far."""


class RunnerLine:
    """One websocket's requests."""

    def __init__(self, limits: RunnerLimits) -> None:
        self._limits = limits
        self._live: dict[str, _Exchange] = {}

    @property
    def live(self) -> frozenset[str]:
        """The ids of requests that hold a slot."""
        return frozenset(self._live)

    def asked(self, request: ModelRequest) -> bool:
        """Whether to send it on. Raises Refused; then nothing has changed."""
        exchange = self._live.get(request.request_id)
        if request.operation == CANCEL:
            return self._live.pop(request.request_id, None) is not None
        if request.operation == START:
            if exchange is not None:
                raise Refused(503, "runner_proxy_error")
            if len(request.body) > self._limits.request_bytes:
                raise Refused(413, "runner_request_too_large")
            if len(self._live) >= self._limits.active_requests:
                raise Refused(429, "runner_busy")
            self._live[request.request_id] = _Exchange()
            return True
        if request.operation != NEXT or exchange is None or exchange.is_credited:
            raise Refused(503, "runner_proxy_error")
        exchange.is_credited = True
        return True

    def received(self, response: ModelResponse) -> Delivery | None:
        """Whom a frame is for; None for one that comes too late, or was never asked for.

        Raises FrameError for one without credit: the line must be closed with 1008.
        """
        exchange = self._live.get(response.request_id)
        if exchange is None:
            return None
        if not exchange.is_credited:
            raise FrameError("a frame came that was not asked for")
        exchange.is_credited = False
        size = len(response.data.encode())
        exchange.received += size
        broken = self._broken(size, exchange.received)
        if broken:
            del self._live[response.request_id]
            failure = ModelResponse(response.request_id, 502, error=broken, done=True)
            return Delivery(failure, cancels=not response.ends)
        if response.ends:
            del self._live[response.request_id]
        return Delivery(response)

    def _broken(self, size: int, together: int) -> str:
        if size > self._limits.data_bytes:
            return "runner_frame_too_large"
        return "runner_response_limit" if together > self._limits.response_bytes else ""

    def lost(self) -> frozenset[str]:
        """The line has gone: whose requests end with it."""
        lost = self.live
        self._live.clear()
        return lost
