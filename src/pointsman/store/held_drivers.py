"""asyncpg's connections, held between statements that take less time than a pool's checks of them.

Owns who has one, and which are given up. How one is made is the engine's, and what is asked of it its user's.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from pointsman.store.problems import FAILURES


class HeldDrivers:
    """At most so many, for one event loop. To be closed before the engine."""

    def __init__(self, engine: AsyncEngine, most: int) -> None:
        self._engine = engine
        self._places = asyncio.Semaphore(most)
        self._idle: list[tuple[AsyncConnection, Any]] = []

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """A connection that nobody else has. Raises one of problems.FAILURES when there is none to be had.

        After a failure it is given up, whatever it was: it may be in the midst of something.
        """
        async with self._places:
            connection, driver = await self._taken()
            is_whole = False
            try:
                yield driver
                is_whole = True
            finally:
                if is_whole:
                    self._idle.append((connection, driver))
                else:
                    await _give_up(connection)

    async def _taken(self) -> tuple[AsyncConnection, Any]:
        """A server that stopped has closed its connections, and the driver has heard of it."""
        while self._idle:
            connection, driver = self._idle.pop()
            if not driver.is_closed():
                return connection, driver
            await _give_up(connection)
        connection = await self._engine.connect()
        try:
            return connection, (await connection.get_raw_connection()).driver_connection
        except BaseException:
            await _give_up(connection)
            raise

    async def close(self) -> None:
        """Let all go that nobody has."""
        while self._idle:
            await self._idle.pop()[0].close()


async def _give_up(connection: AsyncConnection) -> None:
    with contextlib.suppress(*FAILURES):
        await connection.invalidate()
    with contextlib.suppress(*FAILURES):
        await connection.close()
