"""Reservations of budgets that come in one turn of the event loop: one transaction, exact, and given back."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.core.budget import BudgetRefusal, Charge, Hold
from pointsman.core.quota import LedgerUnavailable
from pointsman.store.budget_ledger import SqlBudgetLedger, sums_of
from pointsman.store.quota_sqlite import SqliteCounting, open_sqlite_ledger

LIMIT = 20


@contextlib.asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[SqlBudgetLedger, SqliteCounting]]:
    """With one place of `a` and of `b` taken, so that there are counters."""
    quotas = await open_sqlite_ledger(directory / "quota.db", 0.0)
    assert isinstance(quotas.database, SqliteCounting)
    ledger = SqlBudgetLedger(quotas.database, print)
    try:
        assert isinstance(await ledger.reserve("default", [charge("a"), charge("b", limit=10**9)], 0.0), Hold)
        yield ledger, quotas.database
    finally:
        await ledger.close()
        await quotas.close()


def charge(budget: str = "a", amount: int = 1, limit: int = LIMIT) -> Charge:
    return Charge(budget, "", "", math.inf, amount, limit)


async def used(ledger: SqlBudgetLedger, budget: str = "a") -> int:
    found = await ledger.used("default", 0.0)
    return next(each.used for each in found if each.key.budget == budget)


async def _statements(directory: Path, *charges: Charge) -> list[str]:
    async with opened(directory) as (ledger, database):
        ran: list[str] = []
        database._own.set_trace_callback(ran.append)
        holds = await asyncio.gather(*[ledger.reserve("default", charges, 0.0) for _ in range(10)])
        database._own.set_trace_callback(None)
        assert all(isinstance(each, Hold) for each in holds)
        assert await used(ledger) == 11
        return [each.split()[0] for each in ran]


def test_those_of_one_turn_share_one_transaction_behind_the_first(tmp_path: Path) -> None:
    one = ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    assert asyncio.run(_statements(tmp_path, charge("a"), charge("b", 5, 10**9))) == 2 * one


def test_on_one_counter_they_are_one_statement_behind_the_first(tmp_path: Path) -> None:
    assert asyncio.run(_statements(tmp_path, charge("a"))) == ["UPDATE", "UPDATE"]


async def _admitted(directory: Path, asked: int) -> tuple[int, int]:
    async with opened(directory) as (ledger, _):
        both = [charge("a"), charge("b", 3, 10**9)]
        found = await asyncio.gather(*[ledger.reserve("default", both, 0.0) for _ in range(asked)])
        refused = [each for each in found if not isinstance(each, Hold)]
        assert refused == [BudgetRefusal("a", math.inf)] * len(refused)
        assert await used(ledger, "b") == 1 + 3 * (asked - len(refused))
        return asked - len(refused), await used(ledger)


@pytest.mark.parametrize("asked", [LIMIT - 2, LIMIT - 1, LIMIT, 5 * LIMIT])
def test_of_a_crowd_as_many_are_admitted_as_there_is_room_for(tmp_path: Path, asked: int) -> None:
    admitted = min(asked, LIMIT - 1)
    assert asyncio.run(_admitted(tmp_path, asked)) == (admitted, 1 + admitted)


async def _of_all_sizes(directory: Path) -> list[int]:
    async with opened(directory) as (ledger, _):
        amounts = [1, 30, 4, 8, 5, 1, 1]
        asked = [ledger.reserve("default", [charge("a", each)], 0.0) for each in amounts]
        found = await asyncio.gather(*asked)
        admitted = [each for each, hold in zip(amounts, found, strict=True) if isinstance(hold, Hold)]
        assert await used(ledger) == 1 + sum(admitted)
        return admitted


def test_where_not_all_fit_each_is_asked_for_by_itself(tmp_path: Path) -> None:
    assert asyncio.run(_of_all_sizes(tmp_path)) == [1, 4, 8, 5, 1]


async def _left(directory: Path, turns: int) -> int:
    async with opened(directory) as (ledger, _):
        asked = [asyncio.ensure_future(ledger.reserve("default", [charge("a")], 0.0)) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for each in asked[1:]:
            each.cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found[1:]] == [asyncio.CancelledError] * 3
        await ledger.write()
        return await used(ledger)


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_whoever_leaves_before_or_after_it_was_counted_holds_nothing(tmp_path: Path, turns: int) -> None:
    assert asyncio.run(_left(tmp_path, turns)) == 2


async def _held_by_another(directory: Path) -> None:
    async with opened(directory) as (ledger, database):
        async with opened(directory) as (_, other):
            other._own.execute("BEGIN IMMEDIATE")
            try:
                asked = [ledger.reserve("default", [charge("a")], 0.0) for _ in range(5)]
                found = await asyncio.gather(*asked, return_exceptions=True)
            finally:
                other._own.execute("ROLLBACK")
        assert {type(each) for each in found} == {LedgerUnavailable}
        assert await used(ledger) == 2
        assert not database._own.in_transaction


def test_a_crowd_that_cannot_be_counted_is_told_so_and_holds_nothing(tmp_path: Path) -> None:
    asyncio.run(_held_by_another(tmp_path))


def test_sums_are_by_counter_and_limit_and_no_larger_than_tells_that_they_are_too_large() -> None:
    most = 10**18
    crowd = [[(most, most, "b", "", "")] for _ in range(20)] + [[(1, 5, "a", "s", "w")], [(3, 5, "a", "s", "w")]]
    assert sums_of(crowd) == [(4, 5, "a", "s", "w"), (most + 1, most, "b", "", "")]
    assert sums_of([[(2, 5, "a", "", "")], [(2, 6, "a", "", "")]]) == [(2, 5, "a", "", ""), (2, 6, "a", "", "")]
