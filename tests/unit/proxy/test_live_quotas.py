"""The rows of `/stats/live`."""

import asyncio
from datetime import UTC

import pytest

from pointsman.core.quota import Counters, Quota, QuotaKey
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
    rows = live_quotas(ledger, quotas, NOW)
    assert [(row.key, row.counters.daily, row.counters.minute) for row in rows] == [
        (GROQ, 2, 2),
        (GEMINI, 2, 2),
        (FREE, 0, 0),
    ]
    assert [row.exhausted_until for row in rows] == [0.0, DAY.end, NOW + 30]
    assert [row.is_exhausted for row in rows] == [False, True, True]
    assert [row.runs_dry_at for row in rows] == [NOW + (NOW - DAY.start), NOW, None]
    assert {row.day for row in rows} == {DAY}


@pytest.mark.parametrize(
    ("quota", "counters", "expected"),
    [
        (Quota(), Counters(10**6, 10**6), False),
        (Quota(100), Counters(99), False),
        (Quota(100), Counters(100), True),
        (Quota(100), Counters(101), True),
        (Quota(0, 30), Counters(500, 29), False),
        (Quota(0, 30), Counters(500, 30), True),
        (Quota(), Counters(0, 0, NOW), False),
        (Quota(), Counters(0, 0, NOW + 1), True),
    ],
)
def test_a_provider_is_exhausted_exactly_at_a_limit_or_before_its_upstreams_word(
    quota: Quota, counters: Counters, expected: bool
) -> None:
    assert LiveQuota(GROQ, quota, counters, DAY, NOW).is_exhausted is expected


def test_a_full_minute_ends_with_it() -> None:
    (row,) = live_quotas(_ledger({GROQ: 3}, Quota(9, 3)), {GROQ: Quota(9, 3)}, NOW)
    assert (row.is_exhausted, row.exhausted_until) == (True, NOW + 40)


def test_the_longest_of_several_reasons_counts() -> None:
    ledger = _ledger({GROQ: 3}, Quota(3, 3))
    asyncio.run(ledger.exhaust(GROQ, DAY.end + 5, NOW))
    (row,) = live_quotas(ledger, {GROQ: Quota(3, 3)}, NOW)
    assert row.exhausted_until == DAY.end + 5
