"""What `/stats/live` tells of a quota."""

from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day
from pointsman.gateway.stats import live_answer
from pointsman.proxy.live_quotas import LiveQuota
from tests.support.chain_requests import MIDNIGHT

TODAY = Day("2026-12-01", "2026-12-02", MIDNIGHT, MIDNIGHT + 86400.0)


def row(account: str, quota: Quota, counters: Counters) -> LiveQuota:
    return LiveQuota(QuotaKey(account, "groq"), quota, counters, TODAY, MIDNIGHT + 6 * 3600)


def test_a_row_tells_times_in_utc_and_nothing_where_nothing_is_known() -> None:
    rows = [row("default", Quota(100, 30), Counters(50, 2, 1e300)), row("other", Quota(), Counters())]
    assert live_answer(rows, "default") == {
        "providers": [
            {
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
        ]
    }
