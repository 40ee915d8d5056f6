"""What every ledger does: in memory, in SQLite, in PostgreSQL."""

import asyncio

import pytest

from pointsman.core.quota import Counters, Quota, QuotaKey, Reservation
from tests.conformance.ledgers import KEY, NOON, Counting, admitted, any_ledger, at

DAY = 86_400.0
LIMITED = Quota(daily_requests=3)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def counting(request: pytest.FixtureRequest) -> Counting | None:
    """Counters of any kind, none counted yet."""
    if request.param == "memory":
        return None
    database: Counting = request.getfixturevalue(f"{request.param}_counting")
    return database


async def test_a_day_has_as_many_places_as_its_limit_says(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, LIMITED, NOON, 2) == 2
        assert await ledger.reserve(KEY, LIMITED, NOON) == Reservation(KEY, "2026-09-21", int(NOON // 60))
        assert await ledger.reserve(KEY, LIMITED, NOON) is None
        assert ledger.counters(KEY, LIMITED, NOON) == Counters(3, 3)


async def test_a_minute_has_as_many_places_as_its_limit_says(counting: Counting | None) -> None:
    quota = Quota(requests_per_minute=2)
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, quota, NOON, 3) == 2
        assert await admitted(ledger, quota, NOON + 59.9, 3) == 0
        assert await admitted(ledger, quota, NOON + 60, 3) == 2
        assert ledger.counters(KEY, quota, NOON + 60) == Counters(4, 2)
        assert ledger.counters(KEY, quota, NOON + 120) == Counters(4, 0)


@pytest.mark.parametrize("quota", [Quota(2, 5), Quota(5, 2)])
async def test_day_and_minute_are_taken_together_or_neither(counting: Counting | None, quota: Quota) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, quota, NOON, 6) == 2
        assert ledger.counters(KEY, quota, NOON) == Counters(2, 2)


async def test_no_limit_is_counted_all_the_same(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, Quota(), NOON, 20) == 20
        assert ledger.counters(KEY, Quota(), NOON) == Counters(20, 20)
        # A limit that is set later counts what was used before.
        assert await admitted(ledger, Quota(daily_requests=21), NOON, 3) == 1


async def test_of_many_at_once_exactly_the_limit_is_admitted(counting: Counting | None) -> None:
    quota = Quota(daily_requests=10)
    async with any_ledger(counting) as ledger:
        taken = await asyncio.gather(*[ledger.reserve(KEY, quota, NOON) for _ in range(100)])
        assert sum(one is not None for one in taken) == 10
        assert ledger.counters(KEY, quota, NOON).daily == 10


async def test_a_place_that_is_given_back_can_be_taken_again(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert place is not None
        assert await admitted(ledger, LIMITED, NOON, 3) == 2
        await ledger.release(place)
        assert ledger.counters(KEY, LIMITED, NOON) == Counters(2, 2)
        assert await admitted(ledger, LIMITED, NOON, 3) == 1


async def test_a_place_is_given_back_once(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        place = await ledger.reserve(KEY, LIMITED, NOON)
        assert place is not None
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        for _ in range(3):
            await ledger.release(place)
        assert ledger.counters(KEY, LIMITED, NOON) == Counters(1, 1)


async def test_counters_never_go_below_zero(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, LIMITED, NOON, 1) == 1
        for _ in range(3):
            await ledger.release(Reservation(KEY, "2026-09-21", int(NOON // 60)))
        await ledger.release(Reservation(QuotaKey("default", "nobody"), "2026-09-21", 0))
        assert ledger.counters(KEY, LIMITED, NOON) == Counters(0, 0)
        assert await admitted(ledger, LIMITED, NOON, 5) == 3


async def test_a_place_goes_back_to_the_minute_and_the_day_it_was_taken_from(counting: Counting | None) -> None:
    quota = Quota(3, 3)
    midnight = at("UTC", "2026-09-22")
    async with any_ledger(counting) as ledger:
        places = [await ledger.reserve(KEY, quota, midnight - 1) for _ in range(3)]
        assert await admitted(ledger, quota, midnight, 2) == 2
        for place in places[:2]:
            assert place is not None
            await ledger.release(place)
        assert ledger.counters(KEY, quota, midnight) == Counters(2, 2)
        assert ledger.counters(KEY, quota, midnight - 1) == Counters(1, 1)


async def test_a_place_of_an_earlier_minute_is_not_given_back_to_this_one(counting: Counting | None) -> None:
    quota = Quota(9, 2)
    async with any_ledger(counting) as ledger:
        place = await ledger.reserve(KEY, quota, NOON)
        assert place is not None
        assert await admitted(ledger, quota, NOON + 60, 2) == 2
        await ledger.release(place)
        assert ledger.counters(KEY, quota, NOON + 60) == Counters(2, 2)


async def test_what_an_upstream_said_holds_until_its_end(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        await ledger.exhaust(KEY, NOON + 100, NOON)
        await ledger.exhaust(KEY, NOON + 50, NOON)
        assert ledger.counters(KEY, LIMITED, NOON).exhausted_until == NOON + 100
        assert await ledger.reserve(KEY, LIMITED, NOON + 99.9) is None
        assert ledger.counters(KEY, LIMITED, NOON + 100).exhausted_until == 0
        assert await ledger.reserve(KEY, LIMITED, NOON + 100) is not None


async def test_providers_and_accounts_are_counted_each_for_itself(counting: Counting | None) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, LIMITED, NOON, 9) == 3
        await ledger.exhaust(KEY, NOON + 100, NOON)
        for other in (QuotaKey("default", "gemini"), QuotaKey("team", "groq")):
            assert await ledger.reserve(other, LIMITED, NOON) is not None
            assert ledger.counters(other, LIMITED, NOON) == Counters(1, 1)


@pytest.mark.parametrize(
    ("zone", "before", "after"),
    [
        ("UTC", "2026-09-21T23:59:59.9", "2026-09-22T00:00"),
        ("Europe/Budapest", "2026-03-29T23:59:59.9", "2026-03-30T00:00"),  # after 23 hours
        ("Europe/Budapest", "2026-10-25T23:59:59.9", "2026-10-26T00:00"),  # after 25 hours
        ("Australia/Lord_Howe", "2026-04-05T23:59:59.9", "2026-04-06T00:00"),  # after 24.5 hours
        ("America/Sao_Paulo", "2018-11-03T23:59:59.9", "2018-11-04T01:00"),  # there was no midnight
        ("Pacific/Apia", "2011-12-29T23:59:59.9", "2011-12-31T00:00"),  # there was no 30th
    ],
)
async def test_a_day_begins_anew_once_where_the_quota_says(
    counting: Counting | None, zone: str, before: str, after: str
) -> None:
    quota = Quota(daily_requests=3, reset_timezone=zone)
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, quota, at(zone, before[:10] + "T00:30"), 2) == 2
        assert await admitted(ledger, quota, at(zone, before), 9) == 1
        assert await admitted(ledger, quota, at(zone, after), 9) == 3
        assert await admitted(ledger, quota, at(zone, after) + 3600, 9) == 0


async def test_a_clock_that_goes_ahead_by_a_day_and_comes_back_finds_what_was_counted(
    counting: Counting | None,
) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, LIMITED, NOON, 9) == 3
        for _ in range(3):
            assert await ledger.reserve(KEY, Quota(daily_requests=10), NOON + DAY) is not None
            assert await ledger.reserve(KEY, LIMITED, NOON) is None
        assert ledger.counters(KEY, LIMITED, NOON + DAY).daily == 3


async def test_a_clock_set_back_by_a_day_does_not_unlock_and_does_not_lock_for_ever(
    counting: Counting | None,
) -> None:
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, LIMITED, NOON, 9) == 3
        assert await admitted(ledger, LIMITED, NOON - DAY, 9) == 0
        assert await admitted(ledger, LIMITED, NOON, 9) == 0
        assert await admitted(ledger, LIMITED, NOON + DAY, 9) == 3
        # Two days back the clock was wrong before: what it filled then counts for nothing now.
        assert await admitted(ledger, LIMITED, NOON - 2 * DAY, 9) == 3


@pytest.mark.parametrize(
    ("zone", "moment"),
    [
        ("Europe/Budapest", "2026-03-29T12:00"),  # of 23 hours
        ("Europe/Budapest", "2026-03-30T00:30"),  # 24 hours before, it was the 28th
        ("Europe/Budapest", "2026-10-25T23:30"),  # of 25 hours
        ("Europe/Budapest", "2026-10-26T00:30"),
        ("Pacific/Apia", "2011-12-31T12:00"),  # after the 29th
    ],
)
async def test_a_clock_off_by_a_day_about_an_odd_one_neither_unlocks_nor_forgets(
    counting: Counting | None, zone: str, moment: str
) -> None:
    now, quota = at(zone, moment), Quota(daily_requests=3, reset_timezone=zone)
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, quota, now, 9) == 3
        assert await admitted(ledger, quota, now - DAY, 9) == 0
        assert await admitted(ledger, quota, now, 9) == 0
        assert await ledger.reserve(KEY, Quota(reset_timezone=zone), now + 1.5 * DAY) is not None
        assert await admitted(ledger, quota, now, 9) == 0
        assert ledger.counters(KEY, quota, now).daily == 3


async def test_what_an_upstream_said_outlives_a_clock_set_back_by_a_day_and_no_wrong_year(
    counting: Counting | None,
) -> None:
    async with any_ledger(counting) as ledger:
        await ledger.exhaust(KEY, NOON + 100, NOON)
        assert await ledger.reserve(KEY, LIMITED, NOON - DAY) is None
        assert await ledger.reserve(KEY, LIMITED, NOON + DAY) is not None
        assert await ledger.reserve(KEY, LIMITED, NOON) is None
        assert await ledger.reserve(KEY, LIMITED, NOON - 26 * 3600) is None
        assert await ledger.reserve(KEY, LIMITED, NOON - 26 * 3600 - 1) is not None
        # And such a saying does not stand in the way of a right one.
        await ledger.exhaust(KEY, NOON - 5 * DAY + 60, NOON - 5 * DAY)
        assert ledger.counters(KEY, LIMITED, NOON - 5 * DAY).exhausted_until == NOON - 5 * DAY + 60
        assert await ledger.reserve(KEY, LIMITED, NOON - 5 * DAY + 59) is None
        assert await ledger.reserve(KEY, LIMITED, NOON - 5 * DAY + 60) is not None


async def test_a_minute_somewhat_ahead_goes_on_being_counted_and_one_far_ahead_is_over(
    counting: Counting | None,
) -> None:
    quota = Quota(requests_per_minute=2)
    async with any_ledger(counting) as ledger:
        assert await admitted(ledger, quota, NOON, 1) == 1
        place = await ledger.reserve(KEY, quota, NOON - 120)
        assert place is not None
        assert place.minute == int(NOON // 60)
        assert await ledger.reserve(KEY, quota, NOON) is None
        assert await ledger.reserve(KEY, quota, NOON - 120) is None
        assert await admitted(ledger, quota, NOON - 180, 9) == 2
