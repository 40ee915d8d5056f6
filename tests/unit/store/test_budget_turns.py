"""Turns of reservations, and what is written again after a database was lost: by a database that is played."""

import asyncio
from collections.abc import Sequence

import pytest

from pointsman.core.budget import BudgetRefusal, Charge, Hold
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.quota_book import DayCount
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_ledger import Abandoned, AddedTo, Asked, Rows, Seen, UnknownEnd, Values


class PlayedDatabase:
    """Says what it is told to say, one statement after the other."""

    def __init__(self, *answers: Rows | LedgerUnavailable) -> None:
        self.answers = list(answers)
        self.amounts: list[int] = []
        self.asked = 0

    def count_at_once(self, asked: Asked) -> DayCount | None:
        raise NotImplementedError

    def join_crowd(self, asked: Asked) -> None:
        raise NotImplementedError

    def add_at_once(self, counters: Sequence[AddedTo]) -> bool:
        return False

    async def run(self, statement: str, values: Values, abandoned: Abandoned) -> Rows:
        self.asked += 1
        self.amounts.append(int(values["amount0"]))
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, LedgerUnavailable):
            raise answer
        return answer

    async def run_whole(self, statement: str, values: Values, count: int, abandoned: Abandoned) -> Rows:
        return await self.run(statement, values, abandoned)

    async def look(self, since: str, prune: Values | None) -> Seen:
        raise NotImplementedError

    async def settle(self) -> None:
        pass

    async def close(self) -> None:
        pass


def charge(amount: int = 1, limit: int | None = 10) -> Charge:
    return Charge("b", "", "w", 9.0, amount, limit)


async def crowd(ledger: SqlBudgetLedger, count: int) -> Sequence[Hold | BudgetRefusal | BaseException]:
    asked = [ledger.reserve("default", [charge()], 0.0) for _ in range(count)]
    return await asyncio.gather(*asked, return_exceptions=True)


async def _refused_together() -> None:
    database = PlayedDatabase([], [], [("b", "", "w", 10)])
    found = await crowd(SqlBudgetLedger(database, print), 50)
    assert found == [BudgetRefusal("b", 9.0)] * 50
    assert database.asked == 3


def test_a_crowd_is_refused_by_one_look() -> None:
    asyncio.run(_refused_together())


async def _told_together() -> None:
    database = PlayedDatabase(LedgerUnavailable("quotas cannot be counted: gone"), [(1,)])
    ledger = SqlBudgetLedger(database, print)
    found = await crowd(ledger, 50)
    assert {str(each) for each in found} == {"budgets cannot be counted: gone"}
    assert database.asked == 1
    assert isinstance((await crowd(ledger, 1))[0], Hold)  # who comes later asks anew


def test_a_crowd_is_told_together_that_nothing_can_be_counted() -> None:
    asyncio.run(_told_together())


@pytest.mark.parametrize(("amount", "again"), [(2, []), (15, [5])])
def test_what_was_perhaps_written_is_written_again_only_where_that_counts_too_much(
    amount: int, again: list[int]
) -> None:
    async def lose_and_write() -> list[int]:
        database = PlayedDatabase([(10,)], UnknownEnd("quotas cannot be counted: lost"), [("b", "", "w", 15)])
        ledger = SqlBudgetLedger(database, print)
        hold = await ledger.reserve("default", [charge(10)], 0.0)
        assert isinstance(hold, Hold)
        ledger.settle(hold, [amount])
        with pytest.raises(LedgerUnavailable):
            await ledger.write()
        database.amounts.clear()
        await ledger.write()
        return database.amounts

    assert asyncio.run(lose_and_write()) == again
