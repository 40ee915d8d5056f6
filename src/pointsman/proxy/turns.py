"""Work that holds the event loop for milliseconds, one piece per turn of it.

A body of 10 MiB takes up to 60 ms to check. Several that arrive together would stall everybody for their sum.
"""

import asyncio


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
