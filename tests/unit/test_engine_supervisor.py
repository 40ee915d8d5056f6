"""When an engine starts a child, shares one, replaces one, and when it leaves it at that."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from pointsman.core.secret import Secret
from pointsman.engine.process import EngineAddress, EngineOptions, EngineUnavailable
from pointsman.engine.supervisor import FORGIVEN_FAILURES, LONGEST_PAUSE, STEADY_SECONDS, Engine, EngineState
from pointsman.testing import FakeClock

MODEL = Path("/models/small.gguf")


class ScriptedChild:
    """A child that lives until the test says otherwise."""

    def __init__(self, number: int) -> None:
        self.pid = number
        self.alive = True
        self.ending = "it was killed by SIGSEGV"
        self.address = EngineAddress(f"/engine/{number}", Secret("key"))
        self.ended = 0
        self.gone = asyncio.Event()

    async def wait(self) -> None:
        await self.gone.wait()
        self.alive = False

    def cpu_seconds(self) -> float:
        return 1.5

    async def end(self) -> None:
        self.alive = False
        self.ended += 1


class Launches:
    """Takes the place of `process.launch`: fails while `reason` is set, waits while `gate` is closed."""

    def __init__(self) -> None:
        self.children: list[ScriptedChild] = []
        self.count = 0
        self.reason = ""
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, model: Path, options: EngineOptions) -> ScriptedChild:
        self.count += 1
        await self.gate.wait()
        if self.reason:
            raise EngineUnavailable(self.reason)
        self.children.append(ScriptedChild(self.count))
        return self.children[-1]


class Rig:
    """An engine with everything around it scripted."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.launches = Launches()
        self.engine = Engine(MODEL, clock=self.clock, launch=self.launches)

    async def fail(self, times: int) -> None:
        for _ in range(times):
            with pytest.raises(EngineUnavailable):
                await self.engine.address()


def run(main: Callable[[Rig], Coroutine[None, None, None]]) -> None:
    unhandled: list[object] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        rig = Rig()
        await main(rig)
        await rig.engine.close()
        assert all(child.ended == 1 for child in rig.launches.children)

    asyncio.run(whole())
    assert not unhandled


def test_nothing_starts_before_the_first_call_and_one_child_serves_all_later_ones() -> None:
    async def main(rig: Rig) -> None:
        assert (rig.engine.state, rig.engine.pid, rig.engine.cpu_seconds()) == (EngineState.IDLE, None, 0.0)
        assert rig.launches.count == 0
        assert await rig.engine.address() == await rig.engine.address()
        assert (rig.engine.state, rig.engine.pid, rig.engine.cpu_seconds()) == (EngineState.READY, 1, 1.5)
        assert rig.launches.count == 1

    run(main)


def test_who_waits_for_a_dying_child_gets_another_one_afterwards() -> None:
    async def main(rig: Rig) -> None:
        await rig.engine.until_dead()  # there is none yet
        first = await rig.engine.address()
        waiting = asyncio.ensure_future(rig.engine.until_dead())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert await rig.engine.address() == first  # as long as it may live on
        rig.launches.children[0].gone.set()
        await waiting
        assert await rig.engine.address() != first

    run(main)


def test_fifty_callers_share_one_start_and_a_cancelled_one_does_not_end_it() -> None:
    async def main(rig: Rig) -> None:
        rig.launches.gate.clear()
        callers = [asyncio.ensure_future(rig.engine.address()) for _ in range(50)]
        await asyncio.sleep(0)
        assert rig.engine.state is EngineState.LOADING
        for caller in callers[:25]:
            caller.cancel()
        await asyncio.wait(callers[:25])
        assert all(caller.cancelled() for caller in callers[:25])
        rig.launches.gate.set()
        assert len({address.socket_path for address in await asyncio.gather(*callers[25:])}) == 1
        assert rig.launches.count == 1

    run(main)


def test_a_start_that_fails_after_all_its_callers_have_gone_is_noted_and_not_an_unhandled_error() -> None:
    async def main(rig: Rig) -> None:
        rig.launches.gate.clear()
        rig.launches.reason = "no"
        caller = asyncio.ensure_future(rig.engine.address())
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait((caller,))
        rig.launches.gate.set()
        while rig.engine.state is EngineState.LOADING:
            await asyncio.sleep(0)
        assert (rig.engine.state, rig.engine.reason) == (EngineState.FAILED, "no")

    run(main)


def test_every_caller_of_a_failed_start_hears_why_and_it_counts_once() -> None:
    async def main(rig: Rig) -> None:
        rig.launches.reason = "the file is truncated"
        for _ in range(FORGIVEN_FAILURES - 1):
            answers = await asyncio.gather(*(rig.engine.address() for _ in range(9)), return_exceptions=True)
            assert {str(answer) for answer in answers} == {"the file is truncated"}
        rig.launches.reason = ""
        await rig.engine.address()
        assert rig.launches.count == FORGIVEN_FAILURES

    run(main)


def test_three_failures_are_tried_again_at_once_then_calls_fail_fast_with_the_reason_for_a_pause() -> None:
    async def main(rig: Rig) -> None:
        rig.launches.reason = "the file is truncated"
        await rig.fail(FORGIVEN_FAILURES)
        assert rig.launches.count == FORGIVEN_FAILURES
        rig.clock.advance(0.999)
        with pytest.raises(EngineUnavailable, match="the file is truncated"):
            await rig.engine.address()
        assert rig.launches.count == FORGIVEN_FAILURES
        rig.clock.advance(0.001)
        await rig.fail(1)
        assert rig.launches.count == FORGIVEN_FAILURES + 1

    run(main)


def test_the_pause_doubles_up_to_its_longest() -> None:
    async def main(rig: Rig) -> None:
        rig.launches.reason = "no"
        await rig.fail(FORGIVEN_FAILURES)
        pauses = []
        for _ in range(7):
            before, started = rig.clock.now, rig.launches.count
            while rig.launches.count == started:
                rig.clock.advance(0.5)
                await rig.fail(1)
            pauses.append(rig.clock.now - before)
        assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE]

    run(main)


def test_a_child_that_died_is_replaced_at_the_next_call() -> None:
    async def main(rig: Rig) -> None:
        first = await rig.engine.address()
        rig.launches.children[0].alive = False
        assert (rig.engine.pid, rig.engine.cpu_seconds()) == (None, 0.0)
        assert await rig.engine.address() != first
        assert rig.engine.state is EngineState.READY

    run(main)


def test_a_child_that_dies_soon_after_each_start_is_given_up_for_a_pause_that_says_how_it_died() -> None:
    async def main(rig: Rig) -> None:
        for _ in range(FORGIVEN_FAILURES):
            await rig.engine.address()
            rig.launches.children[-1].alive = False
            rig.clock.advance(STEADY_SECONDS - 0.001)
        with pytest.raises(EngineUnavailable, match=r"small\.gguf died: it was killed by SIGSEGV"):
            await rig.engine.address()
        assert rig.engine.state is EngineState.FAILED
        rig.clock.advance(1.0)
        await rig.engine.address()

    run(main)


def test_a_child_that_served_steadily_is_replaced_however_often_that_happens() -> None:
    async def main(rig: Rig) -> None:
        for _ in range(FORGIVEN_FAILURES * 2):
            await rig.engine.address()
            rig.launches.children[-1].alive = False
            rig.clock.advance(STEADY_SECONDS)
        await rig.engine.address()

    run(main)


@pytest.mark.parametrize("begun", [False, True])
def test_callers_that_wait_while_the_engine_is_closed_are_told_so_and_not_cancelled(begun: bool) -> None:
    async def main(rig: Rig) -> None:
        rig.launches.gate.clear()
        callers = [asyncio.ensure_future(rig.engine.address()) for _ in range(3)]
        await asyncio.sleep(0)
        while begun and not rig.launches.count:
            await asyncio.sleep(0)
        await rig.engine.close()
        assert rig.engine.state is EngineState.IDLE
        for answer in await asyncio.gather(*callers, return_exceptions=True):
            assert isinstance(answer, EngineUnavailable)
        with pytest.raises(EngineUnavailable, match="shutting down"):
            await rig.engine.address()
        assert rig.launches.count == int(begun)

    run(main)


def test_a_dead_child_that_two_callers_find_is_replaced_once() -> None:
    async def main(rig: Rig) -> None:
        await rig.engine.address()
        rig.launches.children[0].alive = False
        first, second = await asyncio.gather(rig.engine.address(), rig.engine.address())
        assert first == second
        assert rig.launches.count == 2

    run(main)
