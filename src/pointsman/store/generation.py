"""The generation as one process knows it: asked for hundreds of times a second, read a few times."""

import asyncio
from collections.abc import Awaitable, Callable


class KnownGeneration:
    """At most `freshness_seconds` old for what others wrote, exact for what was committed here."""

    def __init__(
        self, read: Callable[[], Awaitable[int]], freshness_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._read = read
        self._freshness_seconds = freshness_seconds
        self._clock = clock
        self._value = 0
        self._fresh_until = float("-inf")
        self._commits = 0
        self._asking: asyncio.Task[int] | None = None

    async def get(self) -> int:
        """Asks the database when what is known is too old; many callers ask once."""
        if self._clock() < self._fresh_until:
            return self._value
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._answered)
        # Whoever is cancelled leaves the question to the others.
        return await asyncio.shield(self._asking)

    async def _ask(self) -> int:
        asked_at = self._clock()
        commits = self._commits
        value = await self._read()
        # What was read may be from before a commit that has happened here meanwhile. Without one, the database is
        # believed even when it says less: somebody has restored a backup.
        self._value = value if commits == self._commits else max(value, self._value)
        self._fresh_until = max(self._fresh_until, asked_at + self._freshness_seconds)
        return self._value

    def _answered(self, task: "asyncio.Task[int]") -> None:
        self._asking = None
        if not task.cancelled():
            # Seen, even when everybody who asked has been cancelled.
            task.exception()

    def committed(self, value: int, began: float) -> None:
        """A commit that made it `value` was begun at `began` and is done."""
        self._commits += 1
        self._value = max(self._value, value)
        self._fresh_until = max(self._fresh_until, began + self._freshness_seconds)

    def forget(self) -> None:
        """A commit may have happened or not."""
        self._commits += 1
        self._fresh_until = float("-inf")

    async def close(self) -> None:
        """End the question that is being asked."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
