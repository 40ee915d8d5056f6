"""Reservations that come in one turn of the event loop share a commit: as exact, and as safe, as one by one."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from pointsman.core.quota import UNLIMITED, Counters, LedgerUnavailable, Quota, Reservation
from pointsman.store.quota_ledger import SqlQuotaLedger
from pointsman.store.quota_sqlite import PAGE_BYTES
from tests.conformance.ledgers import KEY, NOON, Counting, admitted

Tried = Reservation | LedgerUnavailable | None


async def together(ledger: SqlQuotaLedger, quota: Quota, number: int) -> list[Tried]:
    """What came of so many that begin in one turn."""

    async def one() -> Tried:
        try:
            return await ledger.reserve(KEY, quota, NOON)
        except LedgerUnavailable as error:
            return error

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one()) for _ in range(number)]
    return [await task for task in tasks]


def frames(file: Path | None) -> int:
    """Pages that were written ahead so far."""
    assert file is not None
    return Path(f"{file}-wal").stat().st_size // (PAGE_BYTES + 24)


async def on_record(counting: Counting) -> Counters:
    """What a worker finds that begins now."""
    async with counting.opened() as other:
        return other.counters(KEY, UNLIMITED, NOON)


@pytest.mark.parametrize("limit", [19, 20, 21])
async def test_a_crowd_is_let_in_up_to_the_limit_and_no_further(sqlite_counting: Counting, limit: int) -> None:
    async with sqlite_counting.opened() as ledger:
        await admitted(ledger, UNLIMITED, NOON, 1)
        for quota in (Quota(daily_requests=limit), Quota(requests_per_minute=limit)):
            taken = await together(ledger, quota, 20)
            assert sum(isinstance(each, Reservation) for each in taken) == min(20, limit - 1)
            for each in taken:
                if isinstance(each, Reservation):
                    await ledger.release(each)


async def test_what_a_crowd_was_told_is_on_record_and_another_worker_counts_on(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger, sqlite_counting.opened() as other:
        await admitted(ledger, UNLIMITED, NOON, 1)
        for _ in range(3):
            both = await asyncio.gather(together(ledger, Quota(50), 20), together(other, Quota(50), 20))
            taken = sum(isinstance(each, Reservation) for half in both for each in half)
            assert (await on_record(sqlite_counting)).daily <= 50
            if not taken:
                break
        assert (await on_record(sqlite_counting)).daily == 50
        assert ledger.counters(KEY, UNLIMITED, NOON).minute <= 50


async def test_a_crowd_costs_few_commits_and_a_lone_reservation_does_not_wait(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger:
        await admitted(ledger, UNLIMITED, NOON, 1)
        before = frames(sqlite_counting.file)
        await together(ledger, UNLIMITED, 40)
        assert frames(sqlite_counting.file) - before <= 4
        await admitted(ledger, UNLIMITED, NOON, 1)  # waits for others once more, in vain
        await asyncio.sleep(0)
        lone = ledger.reserve(KEY, UNLIMITED, NOON)
        with pytest.raises(StopIteration) as done:
            lone.send(None)
        assert isinstance(done.value.value, Reservation)


async def test_whoever_leaves_a_crowd_is_not_counted(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger:
        await admitted(ledger, UNLIMITED, NOON, 1)
        loop = asyncio.get_running_loop()
        for turns in (1, 2):  # before the crowd is counted, and when it is counted but nobody was told
            tasks = [loop.create_task(ledger.reserve(KEY, Quota(100), NOON)) for _ in range(10)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[5:]:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(each, asyncio.CancelledError) for each in ends) == 5
        await ledger.look(NOON)
        assert (await on_record(sqlite_counting)).daily == 1 + 2 * 5


async def test_a_crowd_before_a_file_that_is_held_is_told_so_and_none_of_it_is_counted(
    sqlite_counting: Counting,
) -> None:
    async with sqlite_counting.opened() as ledger:
        await admitted(ledger, UNLIMITED, NOON, 1)
        assert sqlite_counting.file is not None
        with contextlib.closing(sqlite3.connect(sqlite_counting.file, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            taken = await together(ledger, Quota(100), 10)
        assert all(isinstance(each, LedgerUnavailable) for each in taken)
        assert len(await together(ledger, Quota(100), 10)) == 10
        assert (await on_record(sqlite_counting)).daily == 11


async def test_a_file_of_counters_has_small_pages(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened():
        assert sqlite_counting.file is not None
        with contextlib.closing(sqlite3.connect(sqlite_counting.file)) as reader:
            assert reader.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)
