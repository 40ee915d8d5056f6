"""How much of each provider's quota is used now, and when it will run dry at this pace. Pure: counters are given."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pointsman.core.quota import Counters, Quota, QuotaKey

_LEAST_SECONDS = 60.0
"""Of a day before a pace is told: the first request of a day says nothing."""


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One provider as of `now`; all times are seconds since the epoch."""

    key: QuotaKey
    quota: Quota
    counters: Counters
    now: float
    day_starts: float
    """Midnight in the quota's time zone."""
    day_ends: float

    @property
    def is_exhausted(self) -> bool:
        """Whether it would be passed over now."""
        quota, counters = self.quota, self.counters
        return (
            counters.exhausted_until > self.now
            or 0 < quota.daily_requests <= counters.daily
            or 0 < quota.requests_per_minute <= counters.minute
        )

    @property
    def runs_dry_at(self) -> float | None:
        """When the day's quota ends if requests go on as they came since midnight; None: not before it is renewed."""
        limit, used = self.quota.daily_requests, self.counters.daily
        elapsed = self.now - self.day_starts
        if not limit or not used:
            return None
        if used >= limit:
            return self.now
        if elapsed < _LEAST_SECONDS:
            return None
        at = self.now + (limit - used) * elapsed / used
        return at if at < self.day_ends else None


def live_answer(row: LiveRow) -> dict[str, Any]:
    """What `/stats/live` tells of it."""
    return {
        "account": row.key.account,
        "provider_name": row.key.provider,
        "daily_limit": row.quota.daily_requests,
        "daily_count": row.counters.daily,
        "rpm_limit": row.quota.requests_per_minute,
        "rpm_window_count": row.counters.minute,
        "is_exhausted": row.is_exhausted,
        "exhausted_until": _time(row.counters.exhausted_until or None),
        "resets_at": _time(row.day_ends),
        "runs_dry_at": _time(row.runs_dry_at),
    }


def _time(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a provider's Retry-After may lie beyond any calendar
        return None
