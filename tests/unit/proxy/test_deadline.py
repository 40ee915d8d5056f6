"""A deadline strikes the task that has it, once, and is no one else's cancellation."""

import asyncio

import pytest

from pointsman.proxy.deadline import Deadline


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_a_deadline_that_passes_is_a_timeout_and_the_task_goes_on() -> None:
    async def run() -> bool:
        with pytest.raises(TimeoutError), Deadline(0.001) as deadline:
            await never()
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return deadline.expired

    assert asyncio.run(run())


def test_a_deadline_that_is_lifted_or_left_in_time_does_nothing() -> None:
    async def run() -> None:
        with Deadline(0.001) as lifted:
            lifted.lift()
            await asyncio.sleep(0.01)
        with Deadline(0.001) as left:
            pass
        await asyncio.sleep(0.01)
        assert not lifted.expired
        assert not left.expired

    asyncio.run(run())


def test_an_error_within_is_its_own_even_a_timeout() -> None:
    async def run() -> None:
        for error in (TimeoutError, KeyError):
            with pytest.raises(error), Deadline(60) as deadline:
                raise error
            assert not deadline.expired

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_task_that_is_cancelled_is_cancelled_though_its_deadline_passes_at_the_same_moment(seconds: float) -> None:
    struck: list[bool] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(0, task.cancel)
        deadline = Deadline(seconds)
        try:
            with deadline:
                await never()
        finally:
            struck.append(deadline.expired)

    async def run() -> None:
        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(run())
    assert struck == [not seconds]
