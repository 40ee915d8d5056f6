"""One runner's line to this process while its socket is in force: who waits for which frame, and since when.

Owns what is remembered of a line. What may be said on it is `wire.runner_line`'s; which line is whose, and what the
other processes hear of it, is `runner_hub`'s.
"""

import asyncio
import math
import secrets

from pointsman.core.limits import RunnerLimits
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.gateway.unsent_frames import UnsentFrames
from pointsman.wire.runner_frames import (
    CANCEL,
    FrameError,
    Hello,
    ModelRequest,
    ModelResponse,
    read_from_runner,
)
from pointsman.wire.runner_line import RunnerLine
from pointsman.wire.unasked_frames import UnaskedFrames

SILENT = 4002
"""The close code of a line that is silent or takes nothing."""
OFFLINE = ModelResponse("-", 503, done=True, error="runner_offline")


class LineInForce:
    """Made where the loop runs; times are its clock's."""

    def __init__(self, identity: RunnerIdentity, limits: RunnerLimits) -> None:
        self.identity = identity
        self.connection = secrets.token_hex(16)
        self.exchanges = RunnerLine(limits)
        self.unsent = UnsentFrames()
        self._limits = limits
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        """The close code."""
        self.heard_at = loop.time()
        self.sends_since = math.inf
        """Since when a frame waits to be taken by the system."""
        self.may_be_older = False
        """Whether the bus was away: another process may have taken the runner over without our hearing of it."""
        self._unasked = UnaskedFrames(loop.time())
        self._waiting: dict[str, asyncio.Future[ModelResponse]] = {}
        self._began: dict[str, float] = {}
        """When each request that holds a slot did."""
        self._moved: dict[str, float] = {}
        """When there was the last sign of whoever asks."""

    def end(self, code: int, answer: ModelResponse = OFFLINE) -> None:
        """End it, once. Whoever waits is told at once."""
        if not self.ended.done():
            self.ended.set_result(code)
        self.exchanges.lost()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            _give(each, answer)

    async def ask(self, request: ModelRequest, seconds: float) -> ModelResponse:
        """Send what `exchanges` lets pass, and wait for its frame."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ModelResponse] = loop.create_future()
        self._waiting[request.request_id] = answer
        self._moved[request.request_id] = loop.time()
        self._began.setdefault(request.request_id, loop.time())
        self._send(request)
        late, given = _too_late(request.request_id), None
        expiry = loop.call_later(seconds, _give, answer, late)
        try:
            given = await answer
            return given
        finally:
            expiry.cancel()
            if given is late or self._waiting.get(request.request_id) is answer:
                # Nobody waits any more: the slot is free, whatever the runner does.
                self.cancel(request.request_id)

    def cancel(self, request_id: str) -> None:
        """Free its slot, and tell the runner, unless it has ended; whoever still waits for a frame gets an error."""
        cancel = ModelRequest(request_id, CANCEL)
        if self.exchanges.asked(cancel):
            self._send(cancel)
        answer = self._waiting.pop(request_id, None)
        _give(answer, ModelResponse(request_id, 503, done=True, error="runner_proxy_error"))

    def lives(self, request_id: str) -> bool:
        """Note a sign of whoever asks; whether the request holds a slot."""
        if request_id not in self.exchanges.live:
            return False
        self._moved[request_id] = asyncio.get_running_loop().time()
        return True

    def take(self, data: str) -> bool:
        """What came from the runner. Whether a request of ours had to do with it.

        Raises FrameError for what costs the runner its line.
        """
        frame = read_from_runner(data, self._limits)
        if isinstance(frame, Hello):
            raise FrameError("a second hello came")
        delivery = self.exchanges.received(frame) if isinstance(frame, ModelResponse) else None
        if delivery is None:
            self._unasked.came(self.heard_at)
            return False
        response = delivery.response
        if delivery.cancels:
            self._send(ModelRequest(response.request_id, CANCEL))
        answer = self._waiting.pop(response.request_id, None)
        _give(answer, response)
        return True

    def free(self, now: float) -> None:
        """The slots of requests that nobody goes on with, or that last for too long."""
        unasked, lifetime = self._limits.unasked_seconds, self._limits.lifetime_seconds
        for request_id in self._began.keys() - self.exchanges.live:
            del self._began[request_id], self._moved[request_id]
        for request_id, began in tuple(self._began.items()):
            if now - self._moved[request_id] <= unasked and now - began <= lifetime:
                continue
            answer = self._waiting.pop(request_id, None)
            _give(answer, _too_late(request_id))
            self.cancel(request_id)

    def _send(self, request: ModelRequest) -> None:
        """A runner that takes none ends its line."""
        if request.operation == CANCEL:
            self._unasked.cancelled()
        if not self.unsent.add(request):
            self.end(SILENT)


def _give(answer: "asyncio.Future[ModelResponse] | None", response: ModelResponse) -> None:
    """The first counts."""
    if answer is not None and not answer.done():
        answer.set_result(response)


def _too_late(request_id: str) -> ModelResponse:
    return ModelResponse(request_id, 504, done=True, error="runner_proxy_timeout")
