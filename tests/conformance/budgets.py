"""Budget ledgers of every kind, opened for a test, and charges for them."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from pointsman.core.budget import BudgetRefusal, Charge, Hold
from pointsman.proxy.memory_budgets import MemoryBudgetLedger
from pointsman.store.budget_ledger import Counted, SqlBudgetLedger
from tests.conformance.ledgers import NOON, Counting

ACCOUNT = "default"
DAY_END = 1_790_035_200.0
AnyLedger = SqlBudgetLedger | MemoryBudgetLedger


def _ignore(_: object) -> None:
    pass


@contextlib.asynccontextmanager
async def opened_budgets(
    counting: Counting, counted: Callable[[Counted], None] = _ignore, said: Callable[[str], None] = _ignore
) -> AsyncIterator[SqlBudgetLedger]:
    """A worker's ledger."""
    async with counting.opened() as quotas:
        ledger = SqlBudgetLedger(quotas.database, said, counted)
        try:
            yield ledger
        finally:
            await ledger.close()


@contextlib.asynccontextmanager
async def any_budgets(counting: Counting | None) -> AsyncIterator[AnyLedger]:
    """In memory, when there is nothing to keep counters in."""
    if counting is None:
        yield MemoryBudgetLedger()
        return
    async with opened_budgets(counting) as ledger:
        yield ledger


def charge(
    amount: int = 1, limit: int | None = 10, budget: str = "day", subject: str = "", window: str = "2026-09-21"
) -> Charge:
    """Of a day that ends at midnight."""
    return Charge(budget, subject, window, DAY_END, amount, limit)


async def taken(ledger: AnyLedger, *charges: Charge) -> Hold | None:
    """A hold, or None when it was refused."""
    hold = await ledger.reserve(ACCOUNT, charges, NOON)
    return None if isinstance(hold, BudgetRefusal) else hold


async def used(ledger: AnyLedger, budget: str = "day", account: str = ACCOUNT) -> dict[tuple[str, str], int]:
    """What counters of a budget have, by subject and window."""
    if isinstance(ledger, MemoryBudgetLedger):
        return {key[1:]: amount for key, amount in ledger.used.items() if key[0] == budget}
    found: Sequence[tuple[tuple[str, str, str], int]] = [
        (each.key, each.used) for each in await ledger.used(account, NOON)
    ]
    return {key[1:]: amount for key, amount in found if key[0] == budget}
