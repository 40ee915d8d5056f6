"""Workers that share counters: exact together, and nothing that was acknowledged is lost when they are killed."""

import contextlib
import random
import sqlite3
import stat

import pytest

from pointsman.core.quota import Counters, Quota, QuotaKey
from tests.conformance.ledgers import KEY, NOON, Counting, admitted
from tests.support.quota_workers import quota_workers

LIMITED = Quota(daily_requests=3)
AT_ONCE = 8


@pytest.fixture(params=["sqlite", "postgresql"])
def counting(request: pytest.FixtureRequest) -> Counting:
    """Counters that processes can share."""
    database: Counting = request.getfixturevalue(f"{request.param}_counting")
    return database


@pytest.mark.timeout(120)
async def test_two_workers_that_begin_together_admit_exactly_the_limit_twenty_times(counting: Counting) -> None:
    numbers = random.Random(20)
    with quota_workers(counting, 2) as workers:
        for run in range(20):
            limit = numbers.randrange(1, 12)
            quota = Quota(limit, 0) if run % 2 else Quota(0, limit)
            assert sum(workers.admitted(f"p{run}", quota, 5 * limit)) == limit
    async with counting.opened() as ledger:
        assert ledger.counters(QuotaKey(KEY.account, "p19"), Quota(), NOON).daily == limit


@pytest.mark.timeout(120)
async def test_killed_workers_leave_what_they_acknowledged_and_at_most_what_was_under_way(counting: Counting) -> None:
    numbers = random.Random(9)
    for run in range(6):
        with quota_workers(counting, 2) as workers:
            workers.count_for_ever(f"p{run}", AT_ONCE)
            workers.wait(0.02 + numbers.random() * 0.1)
            workers.kill()
            said = sum(workers.said(worker) for worker in range(2))
        async with counting.opened() as ledger:
            counted = ledger.counters(QuotaKey(KEY.account, f"p{run}"), Quota(), NOON).daily
        # Under way: reservations not told yet, or the one return that was told and not written.
        assert said <= counted <= said + 2 * AT_ONCE, f"run {run}"


async def test_counters_and_what_upstreams_said_survive_a_restart(counting: Counting) -> None:
    async with counting.opened() as ledger:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        await ledger.exhaust(KEY, NOON + 100, NOON)
    async with counting.opened() as ledger:
        assert ledger.counters(KEY, LIMITED, NOON) == Counters(2, 2, NOON + 100)
        assert await ledger.reserve(KEY, LIMITED, NOON) is None
        assert await admitted(ledger, LIMITED, NOON + 100, 9) == 1
        assert place is not None
        await ledger.release(place)
        assert await admitted(ledger, LIMITED, NOON + 100, 9) == 1


async def test_what_another_worker_did_shows_at_the_next_look_and_binds_at_once(counting: Counting) -> None:
    async with counting.opened() as one, counting.opened() as other:
        assert await admitted(one, LIMITED, NOON, 2) == 2
        assert other.counters(KEY, LIMITED, NOON) == Counters(0, 0)
        await other.look(NOON)
        assert other.counters(KEY, LIMITED, NOON) == Counters(2, 2)
        assert await admitted(other, LIMITED, NOON, 9) == 1
        assert await admitted(one, LIMITED, NOON, 9) == 0
        # The refusal told it.
        assert one.counters(KEY, LIMITED, NOON) == Counters(3, 3)
        await one.exhaust(KEY, NOON + 100, NOON)
        assert await other.reserve(KEY, Quota(), NOON) is None
        assert other.counters(KEY, Quota(), NOON).exhausted_until == NOON + 100


async def test_old_dates_are_deleted_and_those_of_a_month_kept(counting: Counting) -> None:
    day = 86_400.0
    async with counting.opened() as ledger:
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        await ledger.exhaust(KEY, NOON, NOON)
    async with counting.opened(NOON + 35 * day) as ledger:
        await ledger.look(NOON)
        assert ledger.counters(KEY, LIMITED, NOON).daily == 1
    async with counting.opened(NOON + 36 * day) as ledger:
        await ledger.look(NOON)
        assert ledger.counters(KEY, LIMITED, NOON).daily == 0


async def test_the_counters_file_is_its_owners_and_written_ahead(sqlite_counting: Counting) -> None:
    file = sqlite_counting.file
    assert file is not None
    async with sqlite_counting.opened() as ledger:
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        names = sorted(path.name for path in file.parent.iterdir())
        assert names == ["quota.db", "quota.db-shm", "quota.db-wal"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}
        with contextlib.closing(sqlite3.connect(file)) as other:
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
