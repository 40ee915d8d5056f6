"""Two machines of one gateway need not agree on the time, and no clock may be stepped at a request's cost."""

import asyncio
import time
from collections.abc import Callable

import pytest

from pointsman.bus.memory import MemoryBus
from pointsman.core.limits import DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS
from pointsman.core.protocols import InferenceProtocol
from pointsman.proxy.backends.runner import RunnerBackend
from pointsman.proxy.call import Call
from pointsman.wire.request import RequestHead
from tests.component.test_runner_exchanges import run, stream
from tests.support.runner_bench import MODEL, bench, told

HEAD = RequestHead("POST", "/v1/chat/completions", 1, [])
LINES = ["data: 1", "data: 2", "data: [DONE]"]
WHOLE = b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"


def ahead_by(seconds: float) -> Callable[[], float]:
    return lambda: time.time() + seconds


@pytest.mark.parametrize("seconds", [300, -300, 86_400, -86_400])
def test_a_runner_answers_although_its_process_has_another_clock_than_the_callers(seconds: float) -> None:
    async def work() -> None:
        async with bench(hub_clock=ahead_by(seconds)) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            for _ in range(2):
                reader, _ = await made.send(b'{"model":"alias","stream":true}')
                tasks.create_task(stream(runner, LINES, done=True))
                assert told(await reader.read()).body == WHOLE
            assert made.active == 0

    run(work)


def test_a_clock_that_is_stepped_amid_a_stream_does_not_end_it() -> None:
    async def work() -> None:
        steps = iter([0, 0, 86_400, -86_400, 0, 86_400] * 10)
        bus = MemoryBus(print)
        async with bench(buses=(bus, bus)) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            backend = RunnerBackend(bus, lambda: time.time() + next(steps), DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS)
            tasks.create_task(stream(runner, LINES, done=True))
            call = Call(MODEL.candidate, InferenceProtocol.CHAT_COMPLETIONS, HEAD, "/", b'{"stream":true}')
            call.runner_model = MODEL
            answer = await backend.open(call)
            sink = Sink()
            assert await answer.relay(sink) == ""
            answer.close()
            assert sink.data == WHOLE
            assert made.active == 0
        await bus.close()

    run(work)


class Sink:
    """See BodySink."""

    def __init__(self) -> None:
        self.data = b""

    def start(self) -> None:
        pass

    def body(self, data: bytes, *, last: bool) -> None:
        self.data += data
