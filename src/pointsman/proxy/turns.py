"""Work that holds the event loop for milliseconds, one piece per turn of it.

A body of 10 MiB takes up to 60 ms to check. Several that arrive together would stall everybody for their sum.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """First come, first served. Whoever returns from `wait` works at once, without awaiting in between."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self) -> None:
        """Until this is the only piece of heavy work in this turn of the loop."""
        async with self._lock:
            # Held over one turn: what is released into this turn is us, and the next one comes a turn later.
            await asyncio.sleep(0)


class Steps:
    """Short pieces of work, a few per turn of the loop, in the order in which they came.

    A TLS handshake takes half a millisecond: two hundred that arrive together would stall everybody for their sum.
    """

    __slots__ = ("_is_scheduled", "_loop", "_most", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = 8) -> None:
        self._loop = loop
        self._most = most
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, step: Callable[[], None]) -> None:
        """Do it when its turn has come."""
        self._waiting.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(self._most, len(self._waiting))):
                self._waiting.popleft()()
        finally:
            self._schedule()
