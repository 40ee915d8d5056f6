"""What is told of a quota now: full or not, and when it will be."""

import pytest

from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.gateway.stats import LiveRow, live_answer
from tests.support.chain_requests import MIDNIGHT

DAY = 86400.0


def row(quota: Quota, counters: Counters, hours: float = 6) -> LiveRow:
    now = MIDNIGHT + hours * 3600
    return LiveRow(QuotaKey("default", "groq"), quota, counters, now, MIDNIGHT, MIDNIGHT + DAY)


@pytest.mark.parametrize(
    ("quota", "counters", "expected"),
    [
        (Quota(), Counters(10**6, 10**6), False),
        (Quota(100), Counters(99), False),
        (Quota(100), Counters(100), True),
        (Quota(100), Counters(101), True),
        (Quota(0, 30), Counters(500, 29), False),
        (Quota(0, 30), Counters(500, 30), True),
        (Quota(), Counters(0, 0, MIDNIGHT + 6 * 3600), False),
        (Quota(), Counters(0, 0, MIDNIGHT + 6 * 3600 + 1), True),
    ],
)
def test_a_provider_is_exhausted_exactly_at_a_limit_or_before_its_upstreams_word(
    quota: Quota, counters: Counters, expected: bool
) -> None:
    assert row(quota, counters).is_exhausted is expected


@pytest.mark.parametrize(
    ("used", "hours", "expected"),
    [
        (50, 6, MIDNIGHT + 12 * 3600),
        (25, 6, None),  # just as the day ends, when it is renewed
        (26, 6, MIDNIGHT + 6 * 3600 + 74 * 6 * 3600 / 26),
        (0, 6, None),
        (100, 6, MIDNIGHT + 6 * 3600),
        (1, 59 / 3600, None),
        (1, 60 / 3600, MIDNIGHT + 6000),
    ],
)
def test_the_forecast_goes_on_at_the_days_pace(used: int, hours: float, expected: float | None) -> None:
    assert row(Quota(100), Counters(used), hours).runs_dry_at == (pytest.approx(expected) if expected else None)


def test_a_quota_without_a_limit_never_runs_dry() -> None:
    assert row(Quota(0, 30), Counters(100, 3)).runs_dry_at is None


def test_a_row_tells_times_in_utc_and_nothing_where_nothing_is_known() -> None:
    assert live_answer(row(Quota(100, 30), Counters(50, 2, 1e300))) == {
        "account": "default",
        "provider_name": "groq",
        "daily_limit": 100,
        "daily_count": 50,
        "rpm_limit": 30,
        "rpm_window_count": 2,
        "is_exhausted": True,
        "exhausted_until": None,
        "resets_at": "2026-12-02T00:00:00Z",
        "runs_dry_at": "2026-12-01T12:00:00Z",
    }
