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

    adds_at_once = False

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


async def crowd(ledger: SqlBudgetLedger, count: int, limit: int = 10) -> Sequence[Hold | BudgetRefusal | BaseException]:
    asked = [ledger.reserve("default", [charge(limit=limit)], 0.0) for _ in range(count)]
    return await asyncio.gather(*asked, return_exceptions=True)


async def _refused_together() -> None:
    database = PlayedDatabase([], [], [("b", "", "w", 10)])
    found = await crowd(SqlBudgetLedger(database, print), 50)
    assert found == [BudgetRefusal("b", 9.0)] * 50
    assert database.asked == 3


def test_a_crowd_is_refused_by_one_look() -> None:
    asyncio.run(_refused_together())


async def _let_in_together() -> None:
    database = PlayedDatabase([(1,)], [(50,)])
    ledger = SqlBudgetLedger(database, print)
    found = await crowd(ledger, 50, limit=50)
    assert all(isinstance(each, Hold) for each in found)
    assert database.amounts == [1, 49]


def test_a_crowd_is_let_in_by_one_statement() -> None:
    asyncio.run(_let_in_together())


async def _refused_one_by_one() -> None:
    nothing: Rows = []
    database = PlayedDatabase([(1,)], nothing, nothing, [(2,)], nothing, nothing, [("b", "", "w", 10)])
    found = await crowd(SqlBudgetLedger(database, print), 10)
    assert [isinstance(each, Hold) for each in found] == [True] * 2 + [False] * 8
    assert database.amounts == [1, 9, 9, 1, 1, 1, 1]


def test_a_crowd_for_which_there_is_not_room_enough_asks_one_by_one() -> None:
    asyncio.run(_refused_one_by_one())


async def _left_by(leaving: Sequence[int], answers: Sequence[Rows | LedgerUnavailable]) -> tuple[list[int], list[int]]:
    """Who of ten has places when some of them go while the statement for nine runs; and what is given back."""
    database = PlayedDatabase([(1,)], *answers)
    ledger = SqlBudgetLedger(database, print)
    asked = [asyncio.ensure_future(ledger.reserve("default", [charge()], 0.0)) for _ in range(10)]
    while database.asked < 2:
        await asyncio.sleep(0)
    for number in leaving:
        asked[number].cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    database.answers, database.amounts = [[("b", "", "w", 0)]], []
    await ledger.write()
    return [number for number, each in enumerate(found) if isinstance(each, Hold)], database.amounts


@pytest.mark.parametrize("leaving", [[1], [5], [1, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_whoever_leaves_meanwhile_gives_back_its_own_place_alone(leaving: list[int]) -> None:
    kept = [number for number in range(10) if number not in leaving]
    assert asyncio.run(_left_by(leaving, [[(10,)]])) == (kept, [-len(leaving)])


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
