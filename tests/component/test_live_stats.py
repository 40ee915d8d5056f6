"""`/stats/live`: the records' limits and the ledger's counts, of every account."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from pointsman.core.quota import Quota, QuotaKey
from pointsman.gateway.stats import LiveRows, rows_of_records
from pointsman.proxy.live_quotas import LiveQuota
from pointsman.proxy.memory_ledger import MemoryLedger
from tests.support.chain_requests import MIDNIGHT
from tests.support.control_plane import RunningControlPlane, control_plane


def looked(running: RunningControlPlane, rows: LiveRows) -> Sequence[LiveQuota]:
    async def look() -> Sequence[LiveQuota]:
        return await rows()

    return running.call(look())


def test_every_provider_of_every_account_has_a_row_with_its_records_limits_and_the_ledgers_counts(
    tmp_path: Path,
) -> None:
    ledger = MemoryLedger()
    for _ in range(3):
        asyncio.run(ledger.reserve(QuotaKey("default", "groq"), Quota(14400, 30), MIDNIGHT))
    with control_plane(tmp_path) as running:
        rows = rows_of_records(running.control.store, ledger, lambda: MIDNIGHT)
        running.provide("groq", config={"DAILY_REQUEST_LIMIT": "14400", "REQUESTS_PER_MINUTE": "30"})
        running.call(running.control.accounts.create("team"))
        running.provide("groq", account="team", config={"RESET_TIMEZONE": "Europe/Berlin"})
        told = [(each.key.account, each.quota, each.counters.daily) for each in looked(running, rows)]
        assert told == [
            ("default", Quota(14400, 30), 3),
            ("team", Quota(reset_timezone="Europe/Berlin"), 0),
        ]
        running.provide("broken", config={"DAILY_REQUEST_LIMIT": "many"})
        assert [each.key.provider for each in looked(running, rows)] == ["broken", "groq", "groq"]


@pytest.mark.parametrize("changed", [True, False])
def test_records_are_read_again_when_the_store_has_changed(tmp_path: Path, changed: bool) -> None:
    with control_plane(tmp_path) as running:
        running.provide("groq")
        rows = rows_of_records(running.control.store, MemoryLedger(), lambda: MIDNIGHT)
        assert len(looked(running, rows)) == 1
        if changed:
            running.provide("gemini")
        assert len(looked(running, rows)) == 1 + changed
