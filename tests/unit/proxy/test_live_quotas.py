"""The rows of `/stats/live`."""

import asyncio
from datetime import UTC

from pointsman.core.quota import Quota, QuotaKey
from pointsman.core.quota_window import day_at
from pointsman.proxy.live_quotas import LiveQuota, live_quotas
from pointsman.proxy.memory_ledger import MemoryLedger

DAY = day_at(UTC, 1_790_000_000.0)
NOW = DAY.start + 6 * 3600 + 20.0
GROQ, GEMINI, FREE = (QuotaKey("default", name) for name in ("groq", "gemini", "free"))


def _ledger(counts: dict[QuotaKey, int], quota: Quota) -> MemoryLedger:
    ledger = MemoryLedger()
    for key, count in counts.items():
        for _ in range(count):
            assert asyncio.run(ledger.reserve(key, quota, NOW)) is not None
    return ledger


def test_every_provider_has_its_row_in_order() -> None:
    quotas = {GROQ: Quota(4), GEMINI: Quota(2, 5), FREE: Quota()}
    ledger = _ledger({GROQ: 2, GEMINI: 2}, Quota())
    asyncio.run(ledger.exhaust(FREE, NOW + 30, NOW))
    assert live_quotas(ledger, quotas, NOW) == (
        LiveQuota("groq", 4, 2, 0, 2, False, 0.0, NOW + (NOW - DAY.start)),
        LiveQuota("gemini", 2, 2, 5, 2, True, DAY.end, NOW),
        LiveQuota("free", 0, 0, 0, 0, True, NOW + 30, NOW),
    )


def test_a_full_minute_ends_with_it() -> None:
    (row,) = live_quotas(_ledger({GROQ: 3}, Quota(9, 3)), {GROQ: Quota(9, 3)}, NOW)
    assert (row.is_exhausted, row.exhausted_until) == (True, NOW + 40)


def test_the_longest_of_several_reasons_counts() -> None:
    ledger = _ledger({GROQ: 3}, Quota(3, 3))
    asyncio.run(ledger.exhaust(GROQ, DAY.end + 5, NOW))
    (row,) = live_quotas(ledger, {GROQ: Quota(3, 3)}, NOW)
    assert row.exhausted_until == DAY.end + 5
