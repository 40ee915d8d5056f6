"""What the data plane asks of whoever counts budgets. Implementations are the store's and a memory's, for tests."""

from collections.abc import Sequence
from typing import Protocol

from pointsman.core.budget import BudgetRefusal, Charge, Hold

__all__ = ["BudgetLedger", "Hold"]


class BudgetLedger(Protocol):
    """Counters that are exact under concurrency and across processes, and survive a restart. `now`: epoch seconds."""

    async def reserve(self, account: str, charges: Sequence[Charge], now: float) -> Hold | BudgetRefusal:
        """Add all charges, or none when a hard one has no room: in one transaction.

        Raises LedgerUnavailable, within a second: then nothing was added.
        """

    async def look(self, account: str, charges: Sequence[Charge]) -> Sequence[int]:
        """What is used now of what these would be added to, in their order. Nothing is reserved.

        Raises LedgerUnavailable.
        """

    def settle(self, hold: Hold, amounts: Sequence[int]) -> None:
        """Replace what was reserved by what it came to, charge by charge; zeros give all back.

        Never waits and never raises: it is written in batches behind requests' backs. Until then too much is counted.
        """
