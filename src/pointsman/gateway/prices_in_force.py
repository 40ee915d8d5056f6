"""Every account's price table, kept at what the store says: read when its generation has changed.

That is asked a few times a second; requests never wait for the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from pointsman.core.control_errors import ControlError
from pointsman.core.price import NO_PRICES, PriceTable
from pointsman.proxy.background import running
from pointsman.store.interface import Store

_LOOK_SECONDS = 0.25
"""Between two looks at the generation: so late a change is in force, whoever has made it."""


class PricesInForce:
    """While the store is away, tables stay as they were."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_from = -1
        self._tables: Mapping[str, PriceTable] = {}

    def of_account(self, account: str) -> PriceTable:
        """Its table of the moment."""
        return self._tables.get(account, NO_PRICES)

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        if await self._store.generation() == self._read_from:
            return
        async with self._store.read() as reader:
            source = await reader.generation()
            self._tables = await reader.price_tables()
        self._read_from = source

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(ControlError):  # the store says what is wrong; what is in force stays
                await self.refresh()


@contextlib.asynccontextmanager
async def following_prices(prices: PricesInForce) -> AsyncIterator[None]:
    """Looks at once, and then again and again until it is left."""
    await prices.refresh()
    async with running(prices.follow(), "prices"):
        yield
