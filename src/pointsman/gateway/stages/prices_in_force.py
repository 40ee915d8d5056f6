"""Every account's price table, kept at what the store says: read when its generation has changed.

When it is looked at is `following`'s; requests never wait for the store.
"""

from collections.abc import Callable, Mapping

from pointsman.core.price import NO_PRICES, PriceTable
from pointsman.store.interface import Store


class PricesInForce:
    """While the store is away, tables stay as they were."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_from = -1
        self._tables: Mapping[str, PriceTable] = {}
        self.before_change: Callable[[], None] = lambda: None
        """Called while the old tables are in force still: what has ended is reckoned by them."""

    def of_account(self, account: str) -> PriceTable:
        """Its table of the moment."""
        return self._tables.get(account, NO_PRICES)

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        if await self._store.generation() == self._read_from:
            return
        async with self._store.read() as reader:
            source = await reader.generation()
            tables = await reader.price_tables()
        self._read_from = source
        if tables != self._tables:
            self.before_change()
            self._tables = tables
