"""Sums and pages of usage, on either database."""

import pytest

from pointsman.core.money import MOST, NANO
from pointsman.core.usage_row import ESTIMATED, REPORTED, UsageRow
from pointsman.core.usage_sum import Period, RowPlace, UsageBy, UsageSum
from tests.conformance.records import ACCOUNT
from tests.support.databases import Database

DAY = 86_400.0
ALL = Period(0.0, 10 * DAY)


def row(number: int, at: float, **changes: object) -> UsageRow:
    made = UsageRow(
        ACCOUNT,
        f"r-{number}",
        at,
        "fast",
        "openai-1",
        "gpt-x",
        200,
        10,
        5,
        key_name="ada",
        cached_tokens=4,
        reasoning_tokens=3,
        usage_source=REPORTED,
        cost=NANO // 4,
        price_version=7,
        saved_tokens=2,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


ROWS = [
    row(1, DAY - 0.001),
    row(2, DAY, key_name="bob", model="big", cost=2 * NANO + 1),
    row(3, DAY + 0.4 * DAY, usage_source=ESTIMATED, cost=None),
    row(4, 1.9 * DAY, route="slow", provider="", model="", status=503, reason="exhausted", key_name="bob",
        prompt_tokens=None, completion_tokens=None, cached_tokens=0, reasoning_tokens=0, usage_source="", cost=None,
        saved_tokens=0),
    row(5, 1.0, account="team", cost=0),
]  # fmt: skip


async def sums(database: Database, *by: UsageBy, account: str | None = ACCOUNT, period: Period = ALL) -> list[UsageSum]:
    async with database.opened() as store:
        await store.append_usage(ROWS)
        async with store.read() as reader:
            return list(await reader.usage_sums(account, by, period))


async def test_keys_are_told_with_the_dearest_first(database: Database) -> None:
    assert await sums(database, UsageBy.KEY) == [
        UsageSum(("bob",), 2, 1, 10, 5, 4, 3, 2, 2 * NANO + 1),
        UsageSum(("ada",), 2, 0, 20, 10, 8, 6, 4, NANO // 4, estimated=1, unpriced=1),
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (UsageBy.ROUTE, ["fast", "slow"]),
        (UsageBy.MODEL, ["big", "gpt-x", ""]),
        (UsageBy.PROVIDER, ["openai-1", ""]),
        (UsageBy.DAY, ["1970-01-02", "1970-01-01"]),
    ],
)
async def test_requests_are_put_together_by_what_they_have_in_common(
    database: Database, by: UsageBy, names: list[str]
) -> None:
    found = await sums(database, by)
    assert [each.names for each in found] == [(name,) for name in names]
    assert sum(each.requests for each in found) == 4
    assert sum(each.cost for each in found) == 2 * NANO + 1 + NANO // 4


async def test_a_day_ends_at_midnight_on_both_databases(database: Database) -> None:
    latest, first = await sums(database, UsageBy.DAY)
    assert (latest.requests, first.requests) == (3, 1)


async def test_by_account_all_accounts_are_told(database: Database) -> None:
    found = await sums(database, UsageBy.ACCOUNT, account=None)
    assert [(*each.names, each.requests) for each in found] == [(ACCOUNT, 4), ("team", 1)]


async def test_by_several_things_each_day_tells_who_used_what_the_latest_day_first(database: Database) -> None:
    found = await sums(database, UsageBy.KEY, UsageBy.DAY, UsageBy.MODEL)
    days = [each.names[1] for each in found]
    assert days == sorted(days, reverse=True)
    assert len({each.names for each in found}) == len(found) == 4
    assert sum(each.requests for each in found) == 4
    assert ("bob", "1970-01-02", "") in [each.names for each in found]


async def test_a_period_begins_with_its_first_moment_and_ends_before_its_last(database: Database) -> None:
    found = await sums(database, UsageBy.ROUTE, period=Period(DAY, 1.9 * DAY))
    assert [(*each.names, each.requests) for each in found] == [("fast", 2)]


async def test_costs_beyond_64_bits_are_added_exactly_and_groups_have_a_bound(database: Database) -> None:
    async with database.opened() as store:
        rows = [row(number, 1.0, cost=MOST - 1, prompt_tokens=2**40) for number in range(4)]
        await store.append_usage([*rows, row(9, 1.0, route="slow")])
        async with store.read() as reader:
            [dearest] = await reader.usage_sums(ACCOUNT, [UsageBy.ROUTE], ALL, 1)
    assert (dearest.cost, dearest.prompt_tokens) == (4 * (MOST - 1), 4 * 2**40)


async def test_pages_go_through_all_rows_once_even_those_of_one_moment(database: Database) -> None:
    rows = [row(number, 5.0 + number // 3) for number in range(10)]
    seen: list[str] = []
    place: RowPlace | None = None
    async with database.opened() as store:
        await store.append_usage([*rows, row(99, 5.0, account="team")])
        async with store.read() as reader:
            for expected in (4, 4, 2):
                page = await reader.usage_rows(ACCOUNT, ALL, 4, place)
                assert len(page.rows) == expected
                assert set(page.rows) <= set(rows)
                seen += [each.request_id for each in page.rows]
                place = page.next
            assert place is None
            whole = await reader.usage_rows(ACCOUNT, ALL, 10, None)
            assert (len(whole.rows), whole.next) == (10, None)
    assert seen == [f"r-{number}" for number in range(9, -1, -1)]
