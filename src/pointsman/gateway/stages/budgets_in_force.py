"""Every account's budgets, kept at what the store says: made anew after a change.

When it is looked at is `following`'s; requests never wait for the store.
"""

from collections.abc import Mapping, Sequence

from pointsman.core.budget import Budget
from pointsman.store.interface import Reader


class BudgetsInForce:
    """`of_account` is a new mapping after each change; while the store is away it stays as it was."""

    def __init__(self) -> None:
        self._by_id: Mapping[str, Budget] = {}
        self.of_account: Mapping[str, Sequence[Budget]] = {}
        """Of accounts that have any."""

    async def take(self, reader: Reader, _: str) -> None:
        """See Kept."""
        found: dict[str, Sequence[Budget]] = {}
        for account in await reader.accounts():
            budgets = await reader.budgets(account.name)
            if budgets:
                found[account.name] = tuple(budgets)
        if found != self.of_account:
            self.of_account = found
            self._by_id = {each.id: each for budgets in found.values() for each in budgets}

    def with_id(self, budget: str) -> Budget | None:
        """The one with these counters."""
        return self._by_id.get(budget)
