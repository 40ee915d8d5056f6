"""Budgets whose counters cannot be written: told within a second, nothing lost, nothing counted too little."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pointsman.core.budget import Hold
from pointsman.core.quota import LedgerUnavailable
from pointsman.store.budget_ledger import SETTLE_SECONDS, SqlBudgetLedger
from pointsman.store.quota_ledger import PATIENCE_SECONDS, CountingDatabase, Rows
from tests.conformance.budgets import ACCOUNT, charge, opened_budgets, taken, used
from tests.conformance.ledgers import NOON, Counting
from tests.support.databases import PostgresServer

SOON = 5.0
"""Seconds: a second is promised, the rest is for a busy machine."""
TODAY = ("", "2026-09-21")


@contextlib.contextmanager
def held(file: Path | None) -> Iterator[None]:
    """As by a tool that keeps a transaction open."""
    assert file is not None
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


async def test_a_held_file_is_told_soon_and_once_and_what_was_used_is_written_when_it_is_free(
    sqlite_counting: Counting,
) -> None:
    said: list[str] = []
    async with opened_budgets(sqlite_counting, said=said.append) as ledger:
        hold = await taken(ledger, charge(9))
        assert hold is not None
        with held(sqlite_counting.file):
            async with asyncio.timeout(SOON):
                for _ in range(5):
                    with pytest.raises(LedgerUnavailable, match="budgets cannot be counted: another process holds"):
                        await ledger.reserve(ACCOUNT, [charge(1)], NOON)
            ledger.settle(hold, [2])
            with pytest.raises(LedgerUnavailable):
                await ledger.write()
            soft = await taken(ledger, charge(1, limit=None, budget="soft"))
            assert soft is not None
            ledger.settle(soft, [7])
        assert await used(ledger) == {TODAY: 2}
        assert await used(ledger, "soft") == {TODAY: 7}
    assert len(said) == 2
    assert said[0].startswith("budgets cannot be counted: another process holds the database")
    assert said[1] == "budgets are counted again"


class Stalling:
    """A counting database whose disk stands still in the middle of a statement, and the event loop with it."""

    def __init__(self, database: CountingDatabase) -> None:
        self._database = database
        self.seconds = 0.0
        """For how long the next time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def run(self, *asked: Any) -> Rows:
        seconds, self.seconds = self.seconds, 0.0
        rows = await self._database.run(*asked)
        time.sleep(seconds)  # as a write does whose disk is busy
        return rows


async def test_a_disk_that_stands_still_for_longer_than_anybody_waits_costs_nobody_their_answer(
    sqlite_counting: Counting,
) -> None:
    async with sqlite_counting.opened() as quotas:
        stalling = Stalling(quotas.database)
        ledger = SqlBudgetLedger(cast("CountingDatabase", stalling), lambda _: None)
        assert await taken(ledger, charge(9))
        async with asyncio.TaskGroup() as tasks:
            crowd = [tasks.create_task(taken(ledger, charge(2))) for _ in range(50)]
            await asyncio.sleep(SETTLE_SECONDS)  # one has looked, and is about to look again; the others wait for it
            stalling.seconds = 2 * PATIENCE_SECONDS
        assert stalling.seconds == 0
        assert {each.result() for each in crowd} == {None}
        await ledger.close()


async def test_a_writer_goes_on_when_the_file_is_free_again(sqlite_counting: Counting) -> None:
    async with opened_budgets(sqlite_counting) as ledger, opened_budgets(sqlite_counting) as other:
        watching = asyncio.get_running_loop().create_task(ledger.watch(lambda: NOON))
        hold = await taken(ledger, charge(10))
        assert hold is not None
        with held(sqlite_counting.file):
            ledger.settle(hold, [1])
            with pytest.raises(LedgerUnavailable):
                await ledger.write()
        async with asyncio.timeout(30):
            while await taken(other, charge(9)) is None:  # another process has nothing to wait for
                await asyncio.sleep(0.01)
        watching.cancel()


async def test_a_reservation_whose_caller_is_cancelled_is_given_back(postgresql_counting: Counting) -> None:
    async with opened_budgets(postgresql_counting) as ledger:
        assert await taken(ledger, charge(1))
        loop = asyncio.get_running_loop()
        for steps in range(40):
            asking = loop.create_task(taken(ledger, charge(2), charge(2, budget="other", limit=99)))
            for _ in range(steps):
                await asyncio.sleep(0)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                hold = await asking
                assert isinstance(hold, Hold)
                ledger.settle(hold, [0, 0])
    async with opened_budgets(postgresql_counting) as ledger:
        assert await used(ledger) == {TODAY: 1}
        assert (await used(ledger, "other")).get(TODAY, 0) == 0


async def test_a_server_that_is_away_is_told_soon_and_what_was_used_is_written_when_it_is_back(
    own_server: PostgresServer,
) -> None:
    counting = Counting(url=own_server.url(await asyncio.to_thread(own_server.new_database)), patience_seconds=SOON)
    async with opened_budgets(counting) as ledger:
        hold = await taken(ledger, charge(9))
        assert hold is not None
        await asyncio.to_thread(own_server.stop)
        async with asyncio.timeout(2 * SOON):
            with pytest.raises(LedgerUnavailable, match="budgets cannot be counted"):
                await ledger.reserve(ACCOUNT, [charge(1)], NOON)
        ledger.settle(hold, [11])  # more than was reserved: never forgotten
        with pytest.raises(LedgerUnavailable):
            await ledger.write()
        await asyncio.to_thread(own_server.start)
        assert await used(ledger) == {TODAY: 11}
