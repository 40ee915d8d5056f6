"""The one timer of all deadlines."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.proxy.sweep import Sweep
from pointsman.testing import FakeClock


class RecordingLoop:
    """Remembers the timers instead of waiting for them."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> object:
        self.timers.append((delay, callback))
        return self.timers[-1]


def sweep_on(loop: RecordingLoop, clock: FakeClock) -> Sweep:
    return Sweep(cast(asyncio.AbstractEventLoop, loop), DEFAULT_LIMITS.sweep_seconds, clock)


class Member:
    def __init__(self) -> None:
        self.asked: list[float] = []

    def sweep(self, now: float) -> None:
        self.asked.append(now)


@pytest.mark.limit("sweep_seconds")
def test_members_are_asked_once_a_second_as_long_as_there_are_any() -> None:
    loop, clock, member = RecordingLoop(), FakeClock(), Member()
    sweep = sweep_on(loop, clock)
    assert loop.timers == []
    sweep.add(member)
    sweep.add(Member())
    for tick in range(1, 4):
        assert [delay for delay, _ in loop.timers] == [1.0] * tick
        clock.advance(1.0)
        loop.timers[-1][1]()
    assert member.asked == [1_001.0, 1_002.0, 1_003.0]
    sweep.discard(member)
    loop.timers[-1][1]()
    assert len(member.asked) == 3


def test_without_members_there_is_no_timer_and_a_new_one_starts_it_again() -> None:
    loop, member = RecordingLoop(), Member()
    sweep = sweep_on(loop, FakeClock())
    sweep.add(member)
    sweep.discard(member)
    loop.timers[-1][1]()
    assert len(loop.timers) == 1
    sweep.add(member)
    assert len(loop.timers) == 2


def test_a_member_that_removes_another_while_it_is_asked_disturbs_nobody() -> None:
    loop, last = RecordingLoop(), Member()
    sweep = sweep_on(loop, FakeClock())

    class Remover:
        def sweep(self, now: float) -> None:
            sweep.discard(self)
            sweep.add(Member())

    sweep.add(Remover())
    sweep.add(last)
    sweep.ask()
    assert len(last.asked) == 1
