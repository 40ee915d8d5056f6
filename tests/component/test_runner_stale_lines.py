"""A process that was cut off from the others while a runner went to another of them."""

import asyncio
from collections.abc import Callable

import pytest

from pointsman.bus.interface import BusUnavailable, Handler, Subscription
from pointsman.bus.memory import MemoryBus
from tests.component.test_runner_exchanges import run, stream
from tests.support.runner_bench import ACCOUNT, RUNNER, bench, told


class CutOff:
    """One process's line to a bus, which can be lost and found."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self._is_away = False
        self._tell: list[Callable[[], None]] = []

    def lose(self) -> None:
        self._is_away = True
        for tell in self._tell:
            tell()

    def find(self) -> None:
        self._is_away = False

    async def request(self, subject: str, payload: bytes, timeout_seconds: float) -> bytes:
        self._check()
        return await self.bus.request(subject, payload, timeout_seconds)

    async def publish(self, subject: str, payload: bytes) -> None:
        self._check()
        await self.bus.publish(subject, payload)

    def _check(self) -> None:
        if self._is_away:
            raise BusUnavailable("lost")

    async def serve(self, subject: str, handler: Handler) -> Subscription:
        async def reached(payload: bytes) -> bytes:
            if self._is_away:
                await asyncio.Event().wait()
            return await handler(payload)

        return await self.bus.serve(subject, reached)

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._tell.append(tell)

    async def close(self) -> None:
        pass


@pytest.mark.guarantee("N2")
def test_a_line_that_was_taken_over_while_its_process_was_cut_off_ends_and_disturbs_no_stream() -> None:
    async def work() -> None:
        bus = MemoryBus(print)
        cut = CutOff(bus)
        async with (
            bench(buses=(bus, cut)) as one,
            bench(buses=(bus, bus)) as two,
            one.runner() as older,
            asyncio.TaskGroup() as tasks,
        ):
            cut.lose()
            async with two.runner() as newer:
                assert one.hub.active_requests(ACCOUNT, RUNNER) is not None
                cut.find()
                assert await older.closed() == 4002
                assert two.hub.active_requests(ACCOUNT, RUNNER) is not None
                lines = ["data: 1", "data: 2", "data: [DONE]"]
                reader, _ = await two.send(b'{"model":"alias","stream":true}')
                tasks.create_task(stream(newer, lines, done=True))
                assert told(await reader.read()).body.endswith(b"data: 2\n\ndata: [DONE]\n\n")
        await bus.close()

    run(work)


def test_a_line_that_was_not_taken_over_stays_when_its_process_is_back() -> None:
    async def work() -> None:
        bus = MemoryBus(print)
        cut = CutOff(bus)
        async with bench(buses=(bus, cut)) as one, one.runner() as runner, asyncio.TaskGroup() as tasks:
            cut.lose()
            cut.find()
            await asyncio.sleep(1.5)  # longer than until it has looked
            asked = tasks.create_task(one.ask())
            await runner.answer(await runner.receive(), "{}", done=True)
            assert (await asked).body == b"{}"
        await bus.close()

    run(work)
