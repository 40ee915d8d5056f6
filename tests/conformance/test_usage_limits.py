"""How much of usage one answer tells, on either database."""

import pytest

from pointsman.core.usage_row import UsageRow
from pointsman.core.usage_sum import MOST_ROWS, MOST_SUMS
from pointsman.gateway.usage_report import UsageReport
from tests.conformance.records import ACCOUNT
from tests.support.databases import Database

NOW = 1000.0


def rows(count: int) -> list[UsageRow]:
    return [UsageRow(ACCOUNT, f"r-{number}", NOW - 1, f"route-{number}") for number in range(count)]


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_sums_are_of_a_thousand_groups_at_most(database: Database, more: int) -> None:
    async with database.opened() as store:
        await store.append_usage(rows(MOST_SUMS + more))
        usage = UsageReport(store, lambda: NOW)
        assert len(await usage.sums(ACCOUNT, "route", usage.period(None, None))) == MOST_SUMS + min(more, 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_a_page_has_a_thousand_rows_at_most_and_tells_of_the_next_where_there_is_one(
    database: Database, more: int
) -> None:
    async with database.opened() as store:
        await store.append_usage(rows(MOST_ROWS + more))
        usage = UsageReport(store, lambda: NOW)
        page = await usage.rows(ACCOUNT, usage.period(None, None), MOST_ROWS + 1)
        assert len(page.rows) == MOST_ROWS + min(more, 0)
        assert (page.next is not None) is (more > 0)
