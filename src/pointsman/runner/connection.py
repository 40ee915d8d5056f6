"""One websocket to a gateway, from hello to loss: what it asks is answered, and nothing outlives it."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from pointsman.core.limits import RunnerLimits
from pointsman.runner.fetcher import Fetch
from pointsman.wire.runner_calls import Answer, Begin, Continue, RunnerCalls, Stop
from pointsman.wire.runner_frames import (
    SUBPROTOCOL,
    VERSION,
    FrameError,
    FromRunner,
    Heartbeat,
    Hello,
    ModelRequest,
    ModelResponse,
    encode_frame,
    read_from_gateway,
    read_served,
)

_VIOLATION = 1008


class _Exchange:
    """A request that is being answered."""

    def __init__(self, task: "asyncio.Task[None]", credit: asyncio.Event) -> None:
        self.task = task
        self.credit = credit


class Connection:
    """Serves one websocket. The gateway may ask; what is called is decided here."""

    def __init__(
        self,
        socket: ClientConnection,
        allows: Callable[[ModelRequest], bool],
        limits: RunnerLimits,
        now: Callable[[], float] = time.time,
        served: Callable[[], None] = lambda: None,
    ) -> None:
        """`now` goes on while the machine sleeps, as the time of the day does.

        `served` is called once the gateway passes on what is asked of this runner; at once if it says nothing of that.
        """
        self._socket = socket
        self._limits = limits
        self._calls = RunnerCalls(allows, limits)
        self._exchanges: dict[str, _Exchange] = {}
        self._now = now
        self._beaten = now()
        self._served = served
        self._awaits_served = socket.subprotocol == SUBPROTOCOL
        """Whether the gateway's first frame is still to come, which says that the runner is served."""

    async def serve(self, runner_id: str) -> None:
        """Until the websocket is lost, or closed because of what came over it. Every server is let go by then."""
        if not self._awaits_served:
            self._served()
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._beat(runner_id))
            try:
                await self._listen(group)
            finally:
                beat.cancel()
                self._let_go()

    def _let_go(self) -> None:
        self._calls.lost()
        for exchange in self._exchanges.values():
            exchange.task.cancel()
        self._exchanges.clear()

    async def _beat(self, runner_id: str) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self._send(Hello(runner_id, VERSION))
            while True:
                await asyncio.sleep(self._limits.heartbeat_seconds)
                if self._stood_still():
                    self._let_go()
                    await self._socket.close()
                    return
                self._beaten = self._now()
                try:
                    async with asyncio.timeout(self._limits.silence_seconds):
                        await self._send(Heartbeat())
                except TimeoutError:  # it takes nothing: nor would it take a close
                    self._let_go()
                    self._socket.transport.abort()
                    return

    def _stood_still(self) -> bool:
        """Whether the gateway has taken this runner for gone: whoever asked what waits here was told so."""
        return self._now() - self._beaten > self._limits.silence_seconds

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        with contextlib.suppress(ConnectionClosed):
            try:
                async for message in self._socket:
                    if not isinstance(message, str):
                        raise FrameError("a frame is not text")
                    if self._stood_still():
                        break
                    if self._awaits_served:
                        read_served(message, self._limits)
                        self._awaits_served = False
                        self._served()
                    else:
                        await self._take(group, read_from_gateway(message, self._limits))
            except FrameError as error:
                self._let_go()  # now: closing waits for a gateway that may not answer
                await self._socket.close(_VIOLATION, str(error))

    async def _take(self, group: asyncio.TaskGroup, request: ModelRequest) -> None:
        match self._calls.received(request):
            case Begin():
                credit = asyncio.Event()
                credit.set()
                task = group.create_task(self._exchange(request, credit))
                self._exchanges[request.request_id] = _Exchange(task, credit)
            case Continue(request_id):
                self._exchanges[request_id].credit.set()
            case Stop(request_id):
                self._exchanges.pop(request_id).task.cancel()
            case Answer(response):
                await self._send(response)

    async def _exchange(self, request: ModelRequest, credit: asyncio.Event) -> None:
        fetch = Fetch(request, self._limits)
        try:
            async with asyncio.timeout(self._limits.lifetime_seconds):
                await self._relay(fetch, credit)
        except TimeoutError:
            fetch.close()
            await self._end(ModelResponse(request.request_id, 504, error="runner_proxy_timeout", done=True))
        except ConnectionClosed:
            pass  # whoever listens sees it as well
        finally:
            fetch.close()
            if request.request_id not in self._calls.live:
                self._exchanges.pop(request.request_id, None)

    async def _relay(self, fetch: Fetch, credit: asyncio.Event) -> None:
        while True:
            await credit.wait()
            credit.clear()
            frame = await fetch.frame()
            await self._answer(frame)
            if frame.ends:
                return

    async def _end(self, response: ModelResponse) -> None:
        if self._calls.may_send(response.request_id):
            with contextlib.suppress(ConnectionClosed):
                await self._answer(response)
        else:
            self._calls.gave_up(response.request_id)

    async def _answer(self, response: ModelResponse) -> None:
        self._calls.sent(response)
        await self._send(response)

    async def _send(self, frame: FromRunner) -> None:
        await self._socket.send(encode_frame(frame), text=True)
