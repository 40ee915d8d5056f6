"""One request and its response over one upstream connection.

Until a sink is attached the response gathers here; from then on bytes go from the connection's read straight to
the sink, and the task that waits sleeps to the end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pointsman.core.errors import UpstreamError, UpstreamProtocol, UpstreamUnavailable
from pointsman.core.limits import Limits
from pointsman.proxy.sweep import Sweep
from pointsman.wire.response import ResponseHead, ResponseReader

IDLE = "chunk idle timeout exceeded"
READ_ERROR = "upstream read error"
ABANDONED = "not wanted"
"""Never told to a client: whoever abandons a response shows nobody anything of it."""
TOO_LARGE = "exceeded maximum streaming body size"

_EARLY_BYTES = 64 * 1024
"""What may come before there is a sink. The event loop reads megabytes in one turn, before any task wakes."""


class StaleConnection(Exception):
    """A kept connection turned out to be dead before a byte of the response came."""


class BodySink(Protocol):
    """Where a response body goes."""

    def start(self) -> None:
        """The head is there and the body keeps us waiting."""

    def body(self, data: bytes, *, last: bool) -> None:
        """Take the next bytes as one read delivered them. `last`: the body has ended well."""


class Flow(Protocol):
    """Where a body comes from: it is slowed down when its client is slow."""

    def pause(self) -> None:
        """Stop reading the upstream."""

    def resume(self) -> None:
        """Go on."""


class Line(Protocol):
    """What an exchange needs of its connection."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def release(self, *, reusable: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the head of a response is waited for."""

    seconds: float
    still_working: Callable[[], bool] | None = None
    """Asked when the time is over: True means as long again."""


class Exchange:
    """Pull `head`, then `relay` the body into a sink. Whoever opened it calls `close` in the end."""

    def __init__(self, line: Line, limits: Limits, sweep: Sweep, patience: Patience, *, reused: bool) -> None:
        self._line: Line | None = line
        self._limits = limits
        self._sweep = sweep
        self._reader = ResponseReader(limits)
        self._reused = reused
        self._waiter: asyncio.Future[None] | None = None
        self._sink: BodySink | None = None
        self._error: UpstreamError | StaleConnection | None = None
        self._truncated = ""
        self._received = 0
        self._early = 0
        self._held_back = False
        self._paused = False
        self._seen_any = False
        self._last_byte = sweep.now()
        self._header_deadline = self._last_byte + patience.seconds
        self._patience = patience
        sweep.add(self)

    # Towards the dispatcher

    @property
    def head(self) -> ResponseHead:
        """The head, once `opened` has returned."""
        head = self._reader.head
        if head is None:
            raise UpstreamProtocol("no response head")
        return head

    async def opened(self) -> None:
        """Wait for the head. Raises UpstreamError, or StaleConnection when a redial is in order."""
        if self._reader.head is None and self._error is None:
            await self._wait()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                # Its traceback holds this frame and us: with a reference back, the request and its body would wait
                # for a full collection.
                del error

    async def relay(self, sink: BodySink) -> str:
        """Send the body into the sink. Returns why it was truncated, or an empty string."""
        self._sink = sink
        self._last_byte = self._sweep.now()
        if self._held_back and self._line is not None:
            self._held_back = False
            self._line.resume_reading()
        self._pass_on()
        if self._line is not None and not self._truncated:
            if not self._received:
                sink.start()
            await self._wait()
        return self._truncated

    def abandon(self) -> None:
        """Called by a sink that wants no more: `relay` returns, and the upstream is stopped."""
        self._truncate(ABANDONED)

    def close(self) -> None:
        """Let go. A response that has not been read to its end closes its connection."""
        self._sweep.discard(self)
        self._reader.detach()
        line, self._line = self._line, None
        if line is not None:
            line.release(reusable=False)

    async def _wait(self) -> None:
        self._waiter = self._sweep.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Towards the client: a slow one pauses the upstream, whose idle clock then stands still.

    def pause(self) -> None:
        """Stop reading the upstream."""
        self._paused = True
        if self._line is not None:
            self._line.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        self._last_byte = self._sweep.now()
        if self._line is not None:
            self._line.resume_reading()

    # Towards the connection

    def receive(self, data: bytes) -> None:
        """What one read delivered."""
        self._seen_any = True
        reader = self._reader
        try:
            reader.receive(data)
        except UpstreamProtocol as error:
            self._fail(error)
            return
        if self._sink is not None:
            self._pass_on()
        elif reader.head is not None:
            self._wake()
            self._early += len(data)
            if self._early > _EARLY_BYTES and self._line is not None:
                self._held_back = True
                self._line.pause_reading()

    def lost(self, *, clean: bool) -> None:
        """The connection has ended: by the upstream's close, or (not `clean`) by a fault."""
        self._line = None
        if self._reader.complete or (clean and self._reader.end_of_connection()):
            if self._sink is not None:
                self._pass_on()
            self._wake()
        elif self._reused and not self._seen_any:
            self._error = StaleConnection()
            self._wake()
        else:
            self._fail(UpstreamProtocol("connection closed by the upstream before the end of its response"))

    def sweep(self, now: float) -> None:
        """Deadlines: the wait for the head, then the gap between two reads."""
        if self._reader.head is None:
            if now >= self._header_deadline:
                still_working = self._patience.still_working
                if still_working is not None and still_working():
                    self._header_deadline = now + self._patience.seconds
                    return
                self._header_deadline = inf
                self._fail(UpstreamUnavailable("no response head in time"))
        elif self._sink is not None and not self._paused and now - self._last_byte >= self._limits.chunk_idle_seconds:
            self._truncate(IDLE)

    def _fail(self, error: UpstreamError) -> None:
        if self._sink is not None:
            # What was well-formed before the fault still belongs to the client.
            self._pass_on()
            self._truncate(READ_ERROR)
            return
        if self._reader.head is None:
            self._error = error
        else:
            self._truncated = READ_ERROR
        self._drop()
        self._wake()

    def _pass_on(self) -> None:
        reader = self._reader
        data = reader.take_body()
        room = self._limits.response_body_bytes - self._received
        self._received += len(data)
        sink = self._sink
        if sink is None:
            return
        if len(data) > room:
            sink.body(data[:room], last=False)
            self._truncate(TOO_LARGE)
            return
        if reader.complete:
            self._finish(sink, data)
        elif data:
            self._last_byte = self._sweep.now()  # framing alone is no progress
            sink.body(data, last=False)

    def _finish(self, sink: BodySink, data: bytes) -> None:
        sink.body(data, last=True)
        line, self._line = self._line, None
        if line is not None:
            if self._paused:  # by these very bytes; the next request must not find the connection asleep
                line.resume_reading()
            line.release(reusable=self._reader.reusable and not self._reader.extra)
        self._wake()

    def _truncate(self, reason: str) -> None:
        self._truncated = reason
        self._drop()
        self._wake()

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.release(reusable=False)
