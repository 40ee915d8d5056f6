"""Every account's price table, kept at what the store says: read after a change.

When it is looked at is `following`'s; requests never wait for the store.
"""

from collections.abc import Callable, Mapping

from pointsman.core.price import NO_PRICES, PriceTable
from pointsman.store.interface import Reader


class PricesInForce:
    """While the store is away, tables stay as they were."""

    def __init__(self) -> None:
        self._tables: Mapping[str, PriceTable] = {}
        self.before_change: Callable[[], None] = lambda: None
        """Called while the old tables are in force still: what has ended is reckoned by them."""

    def of_account(self, account: str) -> PriceTable:
        """Its table of the moment."""
        return self._tables.get(account, NO_PRICES)

    async def take(self, reader: Reader, _: str) -> None:
        """See Kept."""
        tables = await reader.price_tables()
        if tables != self._tables:
            self.before_change()
            self._tables = tables
