"""Work beside something: whoever has begun it learns of its failure at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pointsman.proxy.background import BackgroundEnded, finishing, running

SECRET = "what it was about"


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(bounded())


async def fails(after: asyncio.Event | None = None) -> None:
    if after is not None:
        await after.wait()
    raise RuntimeError(SECRET)


def test_work_that_fails_ends_its_block_at_once_and_says_where() -> None:
    async def work() -> None:
        undone = []

        async def block() -> None:
            async with running(fails(), "the looking"):
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0.01)  # what has begun is undone in peace
                    undone.append(True)

        with pytest.raises(BackgroundEnded) as ended:
            await block()
        assert undone == [True]
        assert str(ended.value).startswith("internal error: the looking failed: RuntimeError in fails, test_background")
        assert SECRET not in str(ended.value)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # nor does a cancellation come later

    run(work())


def test_work_that_fails_while_its_block_ends_is_told_too() -> None:
    async def block(steps: int) -> None:
        may_fail = asyncio.Event()
        async with running(fails(may_fail), "x"):
            await asyncio.sleep(0)
            may_fail.set()
            for _ in range(steps + 1):
                await asyncio.sleep(0)

    async def work() -> None:
        for steps in range(4):
            with pytest.raises(BackgroundEnded):
                await block(steps)
            await asyncio.sleep(0)

    run(work())


def test_a_block_that_fails_or_is_cancelled_fails_as_it_would_alone() -> None:
    async def work() -> None:
        with pytest.raises(KeyError):
            async with running(asyncio.sleep(60), "x"):
                raise KeyError
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), running(asyncio.sleep(60), "x"):
                await asyncio.sleep(60)

    run(work())


def test_work_may_end_by_itself() -> None:
    async def work() -> None:
        async with running(asyncio.sleep(0), "x"):
            await asyncio.sleep(0.01)

    run(work())


@pytest.mark.parametrize("obeys", [True, False])
def test_work_that_is_to_finish_is_told_to_stop_and_cancelled_only_when_it_does_not(obeys: bool) -> None:
    async def work() -> None:
        stopping, ends = asyncio.Event(), []

        async def until_stopped() -> None:
            try:
                await stopping.wait()
                await asyncio.sleep(0.01 if obeys else 60)
                ends.append("finished")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        async with finishing(until_stopped(), "x", stopping.set, 10 if obeys else 0.05):
            await asyncio.sleep(0)
            assert not stopping.is_set()
        assert ends == ["finished" if obeys else "cancelled"]

    run(work())
