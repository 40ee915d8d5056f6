"""Short work in turns: a few pieces per turn of the loop, in order, whatever becomes of one."""

import asyncio
from collections import Counter

from pointsman.proxy.turns import Steps


def test_a_turn_has_two_steps_and_they_keep_their_order() -> None:
    done: list[tuple[int, int]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        turn = 0

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            if len(done) < 5:
                loop.call_soon(next_turn)

        steps = Steps(loop, most=2)
        next_turn()
        for number in range(5):
            steps.add(lambda number=number: done.append((number, turn)))  # type: ignore[misc]  # bound by its default
        while len(done) < 5:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert sorted(Counter(turn for _, turn in done).values()) == [1, 2, 2]


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
