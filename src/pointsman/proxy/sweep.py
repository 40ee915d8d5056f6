"""One timer for every deadline.

A timer per request costs more than the request's own work (facts: 8 µs), so whoever has a deadline is asked once a
second whether it has passed.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Sweepable(Protocol):
    """Something with deadlines."""

    def sweep(self, now: float) -> None:
        """Act on what is overdue; `now` is in seconds on the sweep's clock."""


class Sweep:
    """Asks its members in turn, every `interval` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval: float, clock: Callable[[], float]) -> None:
        self.now = clock
        self.loop = loop
        self._interval = interval
        self._members: dict[Sweepable, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Sweepable) -> None:
        """Start asking."""
        self._members[member] = None
        if self._timer is None:
            self._timer = self.loop.call_later(self._interval, self._tick)

    def discard(self, member: Sweepable) -> None:
        """Stop asking; unknown members are fine."""
        self._members.pop(member, None)

    def _tick(self) -> None:
        self._timer = self.loop.call_later(self._interval, self._tick) if self._members else None
        self.ask()

    def ask(self) -> None:
        """Ask every member now."""
        now = self.now()
        for member in tuple(self._members):
            member.sweep(now)

    def close(self) -> None:
        """Stop for good."""
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
