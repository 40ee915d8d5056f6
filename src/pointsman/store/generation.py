"""The generation as one process knows it: asked for hundreds of times a second, read a few times."""

import asyncio
from collections.abc import Awaitable, Callable

from pointsman.core.control_errors import StoreUnavailable

ANSWER_SECONDS = 30.0
"""For the database to tell it: longer than any wait of the store's own. A disk that hangs, or a driver, keeps nobody
longer; the question stays the one that is asked, and its answer counts whenever it comes."""
_SILENT = "the database has not answered for 30 s; check its server or its disk"


class KnownGeneration:
    """At most `freshness_seconds` old for what others wrote, exact for what was committed here."""

    def __init__(
        self,
        read: Callable[[], Awaitable[int]],
        freshness_seconds: float,
        clock: Callable[[], float],
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._read = read
        self._freshness_seconds = freshness_seconds
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._changed: list[Callable[[], None]] = []
        self._value = 0
        self._fresh_until = float("-inf")
        self._commits = 0
        self._asking: asyncio.Task[int] | None = None

    async def get(self) -> int:
        """Asks the database when what is known is too old; many callers ask once.

        Raises StoreUnavailable when it does not answer, and whatever `read` raises.
        """
        if self._clock() < self._fresh_until:
            return self._value
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._answered)
        # Whoever is cancelled, or waits no longer, leaves the question to the others.
        asking = self._asking
        await asyncio.wait([asking], timeout=self._answer_seconds)
        if not asking.done():
            raise StoreUnavailable(_SILENT)
        return asking.result()

    def when_committed(self, tell: Callable[[], None]) -> None:
        """`tell` is called after each commit of this process from now on, and when there may have been one."""
        self._changed.append(tell)

    def _tell(self) -> None:
        for tell in self._changed:
            tell()

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
        self._tell()

    def forget(self) -> None:
        """A commit may have happened or not."""
        self._commits += 1
        self._fresh_until = float("-inf")
        self._tell()

    async def close(self) -> None:
        """End the question that is being asked."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
