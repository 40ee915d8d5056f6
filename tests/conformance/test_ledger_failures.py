"""Counters that cannot be written: said within a second, the loop goes on, and nothing is counted too little."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.quota import LedgerUnavailable, Quota, QuotaKey
from pointsman.store.problems import StoreRefused
from pointsman.store.quota_ledger import PATIENCE_SECONDS, SqlQuotaLedger
from pointsman.store.quota_sqlite import SqliteCounting
from tests.conformance.ledgers import KEY, NOON, Counting, admitted
from tests.support.databases import PostgresServer

LIMITED = Quota(daily_requests=3)
SOON = 5.0
"""Seconds: a second is promised, the rest is for a busy machine."""


@contextlib.contextmanager
def held(file: Path | None) -> Iterator[None]:
    """As by a tool that keeps a transaction open."""
    assert file is not None
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield


async def test_a_file_that_is_held_is_told_within_a_second_while_the_loop_goes_on(sqlite_counting: Counting) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async with sqlite_counting.opened() as ledger:
        heart = asyncio.get_running_loop().create_task(beat())
        with held(sqlite_counting.file):
            async with asyncio.timeout(SOON):
                with pytest.raises(LedgerUnavailable, match="quotas cannot be counted: another process holds"):
                    await ledger.reserve(KEY, LIMITED, NOON)
        heart.cancel()
        # Of a hundred: a wait inside SQLite would have left none.
        assert beats >= 10
        assert await admitted(ledger, LIMITED, NOON, 9) == 3


async def test_a_file_that_is_held_for_a_moment_is_waited_for(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger:
        with held(sqlite_counting.file):
            waiting = asyncio.get_running_loop().create_task(ledger.reserve(KEY, LIMITED, NOON))
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting is not None


async def test_whoever_comes_after_one_that_waited_in_vain_is_told_at_once(sqlite_counting: Counting) -> None:
    clock = asyncio.get_running_loop().time
    async with sqlite_counting.opened() as ledger:
        with held(sqlite_counting.file):
            with pytest.raises(LedgerUnavailable):
                await ledger.reserve(KEY, LIMITED, NOON)
            began = clock()
            for _ in range(20):
                with pytest.raises(LedgerUnavailable, match="another process holds"):
                    await ledger.reserve(KEY, LIMITED, NOON)
            assert clock() - began < 20 * PATIENCE_SECONDS / 4
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        with held(sqlite_counting.file):  # and it is waited for again
            waiting = asyncio.get_running_loop().create_task(ledger.reserve(KEY, LIMITED, NOON))
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await waiting is not None


async def test_operators_are_told_once_that_nothing_can_be_counted_and_when_it_can_again(
    sqlite_counting: Counting,
) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    file = sqlite_counting.file
    assert file is not None
    async with sqlite_counting.opened() as ledger, asyncio.timeout(60):
        watching = asyncio.get_running_loop().create_task(ledger.watch(lambda: NOON, said.put_nowait))
        aside = file.rename(file.with_name("aside"))
        assert "quota.db was moved, removed or replaced" in await said.get()
        aside.rename(file)
        assert await said.get() == "quotas are counted again"
        with held(file):
            with pytest.raises(LedgerUnavailable):
                await ledger.reserve(KEY, LIMITED, NOON)
            assert "another process holds the database" in await said.get()
        assert await ledger.reserve(KEY, LIMITED, NOON) is not None
        assert await said.get() == "quotas are counted again"
        watching.cancel()
    assert said.empty()


async def test_what_cannot_be_written_back_is_written_at_the_next_look(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger, sqlite_counting.opened() as other:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert place is not None
        with held(sqlite_counting.file):
            await asyncio.gather(ledger.release(place), ledger.exhaust(KEY, NOON + 100, NOON))
            # Here it holds at once.
            assert await ledger.reserve(KEY, LIMITED, NOON) is None
        await other.look(NOON)
        assert other.counters(KEY, LIMITED, NOON).daily == 1
        assert other.counters(KEY, LIMITED, NOON).exhausted_until == 0
        await ledger.look(NOON)
        await other.look(NOON)
        assert other.counters(KEY, LIMITED, NOON).daily == 0
        assert other.counters(KEY, LIMITED, NOON).exhausted_until == NOON + 100


async def test_a_return_whose_caller_is_cancelled_is_made_all_the_same(sqlite_counting: Counting) -> None:
    async with sqlite_counting.opened() as ledger:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert place is not None
        with held(sqlite_counting.file):
            returning = asyncio.get_running_loop().create_task(ledger.release(place))
            await asyncio.sleep(0)
            returning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await returning
    async with sqlite_counting.opened() as ledger:
        assert ledger.counters(KEY, LIMITED, NOON).daily == 0


async def test_a_full_disk_is_told_and_room_is_used_again(sqlite_counting: Counting) -> None:
    async with _opened_with_pages(sqlite_counting, 8) as (ledger, connection):
        taken = 0

        async def fill() -> None:
            nonlocal taken
            while True:
                await ledger.reserve(QuotaKey("default", f"p{taken}"), LIMITED, NOON)
                taken += 1

        with pytest.raises(LedgerUnavailable, match=r"the disk with the database is full and nothing was changed"):
            await fill()
        assert taken > 10
        connection.execute("PRAGMA max_page_count = 10000")
        last = QuotaKey("default", f"p{taken}")
        assert await ledger.reserve(last, LIMITED, NOON) is not None
        await ledger.look(NOON)
        assert ledger.counters(last, LIMITED, NOON).daily == 1


@contextlib.asynccontextmanager
async def _opened_with_pages(
    counting: Counting, pages: int
) -> AsyncIterator[tuple[SqlQuotaLedger, sqlite3.Connection]]:
    async with counting.opened() as ledger:
        database = ledger._database
        assert isinstance(database, SqliteCounting)
        database._own.execute(f"PRAGMA max_page_count = {pages}")
        yield ledger, database._own


async def test_a_file_that_is_exchanged_is_not_counted_in_until_it_is_back(sqlite_counting: Counting) -> None:
    file = sqlite_counting.file
    assert file is not None
    aside = file.with_name("aside")
    async with sqlite_counting.opened() as ledger:
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        file.rename(aside)
        shutil.copy(aside, file)
        with pytest.raises(LedgerUnavailable, match="was moved, removed or replaced"):
            await ledger.look(NOON)
        with pytest.raises(LedgerUnavailable, match="was moved, removed or replaced"):
            await ledger.reserve(KEY, LIMITED, NOON)
        aside.replace(file)
        await ledger.look(NOON)
        assert await admitted(ledger, LIMITED, NOON, 9) == 2


async def test_a_damaged_file_of_counters_is_refused_and_not_made_anew(sqlite_counting: Counting) -> None:
    assert sqlite_counting.file is not None
    sqlite_counting.file.parent.mkdir()
    sqlite_counting.file.write_bytes(b"\xa5" * 4096)
    with pytest.raises(StoreRefused, match="damaged or no database; remove it, its -wal and its -shm"):
        async with sqlite_counting.opened():
            pass
    assert sqlite_counting.file.read_bytes() == b"\xa5" * 4096


async def test_a_server_that_is_gone_is_told_soon_and_used_again_when_it_is_back(
    own_server: PostgresServer,
) -> None:
    counting = Counting(url=own_server.url(await asyncio.to_thread(own_server.new_database)))
    async with counting.opened() as ledger:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert place is not None
        own_server.stop()
        async with asyncio.timeout(SOON):
            with pytest.raises(LedgerUnavailable, match="quotas cannot be counted: the database cannot be reached"):
                await ledger.reserve(KEY, LIMITED, NOON)
            await ledger.release(place)
        own_server.start()
        await ledger.look(NOON)
        assert ledger.counters(KEY, LIMITED, NOON).daily == 0
        assert await admitted(ledger, LIMITED, NOON, 9) == 3


async def test_a_locked_table_is_told_soon(postgresql_counting: Counting, postgres: PostgresServer) -> None:
    hasty = replace(postgresql_counting, patience_seconds=PATIENCE_SECONDS)
    async with hasty.opened() as ledger, _locked(postgresql_counting, postgres):
        async with asyncio.timeout(SOON):
            with pytest.raises(LedgerUnavailable, match="another process holds the database"):
                await ledger.reserve(KEY, LIMITED, NOON)


async def test_a_place_whose_taker_was_cancelled_is_given_back(
    postgresql_counting: Counting, postgres: PostgresServer
) -> None:
    async with postgresql_counting.opened() as ledger, _locked(postgresql_counting, postgres) as is_waited_for:
        taking = asyncio.get_running_loop().create_task(ledger.reserve(KEY, LIMITED, NOON))
        await is_waited_for()
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    async with postgresql_counting.opened() as ledger:
        assert ledger.counters(KEY, LIMITED, NOON).daily == 0
        assert await admitted(ledger, LIMITED, NOON, 9) == 3


@contextlib.asynccontextmanager
async def _locked(counting: Counting, server: PostgresServer) -> AsyncIterator["_Waiting"]:
    database = counting.url.rpartition("/")[2].partition("?")[0]
    other = await server.connect(database)
    try:
        async with other.transaction():
            await other.execute("LOCK TABLE quota_days IN ACCESS EXCLUSIVE MODE")
            yield _Waiting(other)
    finally:
        await other.close()


class _Waiting:
    def __init__(self, connection: object) -> None:
        self._connection = connection

    async def __call__(self) -> None:
        """Until somebody waits for the lock."""
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'quota_days'::regclass AND NOT granted"
        while not await self._connection.fetchval(waiting):  # type: ignore[attr-defined] # asyncpg's
            await asyncio.sleep(0.005)
