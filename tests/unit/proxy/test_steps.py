"""Short work in turns: a few pieces per turn of the loop, in order, whatever becomes of one."""

import asyncio
from typing import Any

from pointsman.proxy.turns import Steps


def turns_of(done: list[int], count: int) -> list[int]:
    """How many had been done after each turn of the loop."""

    async def watch() -> list[int]:
        seen = []
        for _ in range(count):
            await asyncio.sleep(0)
            seen.append(len(done))
        return seen

    loop = asyncio.new_event_loop()
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    try:
        steps = Steps(loop, most=2)
        for number in range(5):
            steps.add(lambda number=number: done.append(number))  # type: ignore[misc]  # bound by its default
        return loop.run_until_complete(watch())
    finally:
        loop.close()
        assert not failures


def test_a_turn_has_two_steps_and_they_keep_their_order() -> None:
    done: list[int] = []
    seen = turns_of(done, 5)
    assert done == [0, 1, 2, 3, 4]
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 2


def test_a_step_that_fails_holds_up_no_other_and_one_may_add_more() -> None:
    done: list[str] = []
    failures: list[BaseException] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        steps = Steps(loop, most=1)

        def fail() -> None:
            raise ValueError("on purpose")

        def add_more() -> None:
            done.append("first")
            steps.add(lambda: done.append("added"))

        steps.add(fail)
        steps.add(add_more)
        steps.add(lambda: done.append("last"))
        for _ in range(8):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == ["first", "last", "added"]
    assert [str(error) for error in failures] == ["on purpose"]
