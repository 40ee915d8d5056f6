"""The runners that are connected to this process: what the bus asks of them, and what they answer.

Owns which socket is in force for each runner, what the bus hears of it, and when a line ends. What is remembered of a
line is `line_in_force`'s; sockets are `rest.runner_socket`'s; whom a runner is, is told by whoever calls.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from pointsman.bus.interface import Bus, BusError
from pointsman.bus.subjects import LINES, LIVES, NEWER, runner_subject
from pointsman.core.control_errors import ControlError
from pointsman.core.limits import RunnerLimits
from pointsman.gateway.line_in_force import OFFLINE, SILENT, LineInForce
from pointsman.gateway.runner_connection import RunnerSocket
from pointsman.gateway.runner_identity import RunnerIdentity, RunnerLoad
from pointsman.wire.runner_envelope import pack_too_late, unpack_request
from pointsman.wire.runner_frames import (
    CANCEL,
    FrameError,
    FrameTooLarge,
    Hello,
    ModelResponse,
    Served,
    encode_frame,
    read_from_gateway,
    read_from_runner,
)
from pointsman.wire.runner_line import Refused

VIOLATION, TOO_LARGE, BROKEN, TRY_AGAIN, REPLACED, REVOKED = 1008, 1009, 1011, 1013, 4001, 4003
"""Close codes: of RFC 6455, our own between 4000 and 4999."""
_HELLO_SECONDS = 10.0
_SEND_SECONDS = 10.0
"""For a frame to be taken by the system: a runner that does not read is closed then."""
_MOST_GREETING = 4
"""Sockets of one runner that have not said hello: it has one, and dials again when that is lost."""
_ENDINGS = {b"%d" % code: code for code in (REPLACED, SILENT, REVOKED)}
"""What one process tells the others of a line."""
_SWEEP_SECONDS = 1.0
_BROKEN_LINE = ModelResponse("-", 503, done=True, error="runner_proxy_error")


class RunnerHub:
    """`now` tells seconds since the epoch; `say` gets a line for each runner that comes or goes.

    `seen` hears of each, too, by its id; that it raises ControlError is no matter.
    """

    def __init__(
        self,
        bus: Bus,
        say: Callable[[str], None],
        now: Callable[[], float],
        limits: RunnerLimits,
        seen: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.bus = bus
        self._say = say
        self._now = now
        self._limits = limits
        self._seen = seen
        self._lines: dict[RunnerIdentity, LineInForce] = {}
        self._greeting: Counter[RunnerIdentity] = Counter()
        bus.when_lost(self._cancel_all)

    def active_requests(self, account: str, runner_id: str) -> int | None:
        """That a runner which is connected to this process has; None for any other."""
        line = self._lines.get(RunnerIdentity(account, runner_id))
        return None if line is None else len(line.exchanges.live)

    @property
    def load(self) -> RunnerLoad:
        """All runners together."""
        return RunnerLoad(len(self._lines), sum(len(each.exchanges.live) for each in self._lines.values()))

    async def ask_line(self, account: str, runner_id: str, timeout_seconds: float) -> None:
        """Returns when a process says that it holds the runner's line. Raises BusError when none does."""
        await self.bus.request(_subject(RunnerIdentity(account, runner_id), LINES), b"", timeout_seconds)

    async def evict(self, account: str, runner_id: str) -> None:
        """Its token was rotated, or it was deleted: end its line, whichever process holds it."""
        identity = RunnerIdentity(account, runner_id)
        self._end(identity, REVOKED)
        await self._tell(identity, b"%d" % REVOKED)

    def _end(self, identity: RunnerIdentity, code: int, but: str = "") -> None:
        line = self._lines.get(identity)
        if line is not None and line.connection != but:
            line.end(code)

    async def _tell(self, identity: RunnerIdentity, what: bytes) -> None:
        with contextlib.suppress(BusError):  # a process that cannot be told has lost the bus, and its lines with it
            await self.bus.publish(_subject(identity, LINES), what)

    async def serve(
        self, identity: RunnerIdentity, socket: RunnerSocket, confirm: Callable[[], Awaitable[bool]]
    ) -> None:
        """Carry one socket, whose token was judged, to its end.

        `confirm` judges it once more when whoever ends lines can find this one: the token may have ended meanwhile.
        Where that cannot be known it raises ControlError.
        """
        code = await self._greet(identity, socket)
        if code:
            await socket.close(code)
            return
        self._end(identity, REPLACED)
        line = self._lines[identity] = LineInForce(identity, self._limits)
        replaced = b"%d %b" % (REPLACED, line.connection.encode())
        code = BROKEN
        try:
            # Before, so that no request is passed on twice; and after, for another one that came in the meantime.
            await self._tell(identity, replaced)
            async with self._served(line), asyncio.TaskGroup() as tasks:
                if not line.ended.done():  # or it would end the one that has replaced it
                    await self._tell(identity, replaced)
                await self._judge(line, confirm)
                self._say(f"runner {identity.runner_id} of {identity.account} is connected")
                note = self._note(identity)
                work = (self._read(line, socket), self._write(line, socket), self._sweep(line), note)
                carrying = [tasks.create_task(each) for each in work]
                code = await line.ended
                for task in carrying:
                    task.cancel()
        except BusError:
            code = TRY_AGAIN
        finally:
            line.end(code)
            if self._lines.get(identity) is line:
                del self._lines[identity]
            self._say(f"runner {identity.runner_id} of {identity.account} has gone")
            await socket.close(code)
            await self._note(identity)

    async def _judge(self, line: LineInForce, confirm: Callable[[], Awaitable[bool]]) -> None:
        try:
            if not await confirm():
                line.end(REVOKED)
        except ControlError:  # without a store nobody can say; a runner that was told that it is revoked would give up
            line.end(TRY_AGAIN)

    async def _note(self, identity: RunnerIdentity) -> None:
        if self._seen is not None:
            with contextlib.suppress(ControlError):  # a store that is away keeps no line from working
                await self._seen(identity.runner_id)

    async def _greet(self, identity: RunnerIdentity, socket: RunnerSocket) -> int:
        """Wait for its hello. The code to close with, or 0."""
        if self._greeting[identity] >= _MOST_GREETING:
            return TRY_AGAIN
        self._greeting[identity] += 1
        try:
            async with asyncio.timeout(min(_HELLO_SECONDS, self._limits.silence_seconds)):
                data = await socket.receive()
            frame = read_from_runner(data or "", self._limits)
        except TimeoutError:
            return VIOLATION
        except FrameError as error:
            return _code(error)
        finally:
            self._greeting[identity] -= 1
            if not self._greeting[identity]:
                del self._greeting[identity]
        fits = isinstance(frame, Hello) and frame.runner_id == identity.runner_id and frame.model_proxy_version == 1
        return 0 if fits else VIOLATION

    @contextlib.asynccontextmanager
    async def _served(self, line: LineInForce) -> AsyncIterator[None]:
        """Answer the bus for a line. Raises BusError."""

        async def asked(payload: bytes) -> bytes:
            answer = await self._ask(line, payload)
            return pack_too_late(self._now()) if answer is None else encode_frame(answer)

        async def told(payload: bytes) -> bytes:
            what, _, which = payload.partition(b" ")
            if what in _ENDINGS and which != line.connection.encode():
                line.end(_ENDINGS[what])
            elif what == NEWER.encode() and which != line.connection.encode():
                await self._tell(line.identity, b"%d %b" % (SILENT, line.connection.encode()))
            request_id = which.decode("ascii", "replace")
            return b"1" if what == LIVES.encode() and line.lives(request_id) else b""

        handlers: tuple[tuple[str, Callable[[bytes], Awaitable[bytes]]], ...] = (
            (_subject(line.identity), asked),
            (_subject(line.identity, LINES), told),
        )
        async with contextlib.AsyncExitStack() as stack:
            for subject, handler in handlers:
                subscription = await self.bus.serve(subject, handler)
                stack.push_async_callback(subscription.close)
            yield

    async def _ask(self, line: LineInForce, payload: bytes) -> ModelResponse | None:
        """Pass one request on, and wait for its frame, until its deadline; None when that has passed already."""
        try:
            deadline, data = unpack_request(payload)
            request = read_from_gateway(bytes(data), self._limits)
        except (ValueError, FrameError):
            return ModelResponse("-", 503, done=True, error="runner_proxy_error")
        if line.ended.done():
            return OFFLINE
        if request.operation == CANCEL:
            line.cancel(request.request_id)
            return ModelResponse(request.request_id, done=True)
        left = min(deadline - self._now(), self._limits.idle_seconds)
        if left <= 0:
            return None
        try:
            line.exchanges.asked(request)
        except Refused as refused:
            return ModelResponse(request.request_id, refused.status, done=True, error=refused.code)
        return await line.ask(request, left)

    def _cancel_all(self) -> None:
        """The bus was lost: who asked goes on with nothing, and could not say so."""
        for line in self._lines.values():
            line.may_be_older = True
            for request_id in line.exchanges.live:
                line.cancel(request_id)

    async def _read(self, line: LineInForce, socket: RunnerSocket) -> None:
        loop = asyncio.get_running_loop()
        while not line.ended.done():
            try:
                data = await socket.receive()
                if data is None:
                    line.end(SILENT)
                    return
                line.heard_at = loop.time()
                is_ours = line.take(data)
            except FrameError as error:
                line.end(_code(error), _BROKEN_LINE)
                return
            if not is_ours:
                await asyncio.sleep(0)  # what has come already is read without a pause, and others have their turn

    async def _sweep(self, line: LineInForce) -> None:
        """End a line that is silent or takes nothing, and free the slots of requests that nobody goes on with.

        A process that died cancels nothing; and a timer for each frame, twice, would be a tenth of what one costs.
        """
        limits, loop = self._limits, asyncio.get_running_loop()
        now = loop.time()
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, limits.idle_seconds / 10, limits.silence_seconds / 10))
            before, now = now, loop.time()
            if now - before > 2 * _SWEEP_SECONDS:
                continue  # this process stood still: what came meanwhile is heard first
            is_stuck = now - line.sends_since > min(_SEND_SECONDS, limits.silence_seconds)
            if is_stuck or now - line.heard_at > limits.silence_seconds:
                line.end(SILENT)
            line.free(now)
            if line.may_be_older:
                await self._look_for_newer(line)

    async def _look_for_newer(self, line: LineInForce) -> None:
        """Two lines would both be asked, and the one that leads nowhere answers first."""
        with contextlib.suppress(BusError):  # it is away still
            await self.bus.publish(_subject(line.identity, LINES), f"{NEWER} {line.connection}".encode())
            line.may_be_older = False

    async def _write(self, line: LineInForce, socket: RunnerSocket) -> None:
        loop = asyncio.get_running_loop()
        # Whoever asks the bus finds the line by now.
        frame = encode_frame(Served()) if socket.awaits_served else await line.unsent.take()
        while True:
            line.sends_since = loop.time()
            try:
                await socket.send(frame)
            except OSError:
                line.end(SILENT)
                return
            line.sends_since = math.inf
            frame = await line.unsent.take()


def _code(error: FrameError) -> int:
    return TOO_LARGE if isinstance(error, FrameTooLarge) else VIOLATION


def _subject(identity: RunnerIdentity, *more: str) -> str:
    return runner_subject(identity.account, identity.runner_id, *more)
