"""Reservations of one turn of the event loop: a lone one is made at once, several together at the turn's end.

Owns who waits for whom, and what becomes of those that go away meanwhile. How they are counted is its owner's.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

AskedT = TypeVar("AskedT")
CountT = TypeVar("CountT")


class Crowd(Generic[AskedT, CountT]):
    """For one event loop. `count` tells, for each, what became of it, and never raises."""

    def __init__(self, count: Callable[[Sequence[AskedT]], Sequence[CountT]]) -> None:
        self._count = count
        self._waiting: list[tuple[AskedT, asyncio.Future[CountT]]] = []
        self._turn_has_begun = False
        self._is_busy = False

    def join(self, asked: AskedT) -> "asyncio.Future[CountT] | None":
        """What to wait for; None for the first of a turn, unless the turn before had several."""
        loop = asyncio.get_running_loop()
        if not self._turn_has_begun:
            self._turn_has_begun = True
            loop.call_soon(self._end_turn)
            if not self._is_busy:
                return None
        place: asyncio.Future[CountT] = loop.create_future()
        self._waiting.append((asked, place))
        return place

    def _end_turn(self) -> None:
        self._turn_has_begun = False
        self._is_busy = len(self._waiting) > self._is_busy
        if not self._waiting:
            return
        # Nothing is counted for those whose callers have gone.
        crowd = [each for each in self._waiting if not each[1].done()]
        self._waiting = []
        for (_, place), count in zip(crowd, self._count([asked for asked, _ in crowd]), strict=True):
            place.set_result(count)
