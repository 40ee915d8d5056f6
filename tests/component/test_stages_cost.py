"""What stages cost a request: CPU time beside a request without any, and what is asked of the ledger.

`bench/stages.py` has the figures.
"""

import asyncio
import math
from pathlib import Path

import pytest
from bench.stages import ALL, NONE, cells

from pointsman.core.budget import Charge, Hold
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_sqlite import SqliteCounting, open_sqlite_ledger

_MOST_TIMES = 30
"""Of a request without stages: it is 7 on a quiet machine, and 13 beside ten busy programs."""


async def _measured() -> dict[str, float]:
    async with cells([NONE, ALL]) as made:
        for _ in range(5):
            for each in made.values():
                await each.round()
        return {name: each.best for name, each in made.items()}


@pytest.mark.alone
def test_all_stages_cost_a_request_microseconds() -> None:
    found = asyncio.run(_measured())
    assert found[ALL] < _MOST_TIMES * found[NONE], found


async def _statements(path: Path) -> list[str]:
    """That three hard budgets with room take of SQLite for each request after the first."""
    quotas = await open_sqlite_ledger(path, 0.0)
    database = quotas.database
    assert isinstance(database, SqliteCounting)
    ledger = SqlBudgetLedger(database, print)
    charges = [Charge(budget, "", "", math.inf, 1, 100) for budget in "abc"]
    ran: list[str] = []
    try:
        assert isinstance(await ledger.reserve("default", charges, 0.0), Hold)
        database._own.set_trace_callback(ran.append)
        assert isinstance(await ledger.reserve("default", charges, 0.0), Hold)
        database._own.set_trace_callback(None)
        return [each.split()[0] for each in ran]
    finally:
        await ledger.close()
        await quotas.close()


def test_hard_budgets_with_room_are_one_transaction_of_plain_updates(tmp_path: Path) -> None:
    assert asyncio.run(_statements(tmp_path / "quota.db")) == ["BEGIN", "UPDATE", "UPDATE", "UPDATE", "COMMIT"]
