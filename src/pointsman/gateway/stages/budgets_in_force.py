"""Every account's budgets, kept at what the store says: compiled when its generation has changed.

When it is looked at is `following`'s; requests never wait for the store.
"""

from collections.abc import Mapping, Sequence

from pointsman.core.budget import Budget
from pointsman.store.interface import Store


class BudgetsInForce:
    """`of_account` is a new mapping after each change; while the store is away it stays as it was."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._compiled_from = -1
        self._by_id: Mapping[str, Budget] = {}
        self.of_account: Mapping[str, Sequence[Budget]] = {}
        """Of accounts that have any."""

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        if await self._store.generation() == self._compiled_from:
            return
        found: dict[str, Sequence[Budget]] = {}
        async with self._store.read() as reader:
            source = await reader.generation()
            for account in await reader.accounts():
                budgets = await reader.budgets(account.name)
                if budgets:
                    found[account.name] = tuple(budgets)
        self._compiled_from = source
        if found != self.of_account:
            self.of_account = found
            self._by_id = {each.id: each for budgets in found.values() for each in budgets}

    def with_id(self, budget: str) -> Budget | None:
        """The one with these counters."""
        return self._by_id.get(budget)
