"""Quotas as an operator sees them now: the rows of `/stats/live`. Asks a ledger for what it knows, and no database."""

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.core.forecast import runs_dry_at
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import Day, day_at
from pointsman.core.time_zones import zone_named
from pointsman.proxy.ledger import QuotaLedger


@dataclass(frozen=True, slots=True)
class LiveQuota:
    """One provider's; the names are those of the page."""

    provider: str
    daily_limit: int
    """0 for none; so for `rpm_limit`."""
    daily_count: int
    rpm_limit: int
    rpm_window_count: int
    is_exhausted: bool
    """Whether a reservation would be refused now."""
    exhausted_until: float
    """When that ends, seconds since the epoch; 0 when it is not exhausted."""
    forecast: float | None
    """When the daily limit is reached at the day's pace so far; None when not today, or when nobody can tell."""


def live_quotas(ledger: QuotaLedger, quotas: Mapping[QuotaKey, Quota], now: float) -> tuple[LiveQuota, ...]:
    """A row for each, in their order."""
    return tuple(_live(key, quota, ledger.counters(key, quota, now), now) for key, quota in quotas.items())


def _live(key: QuotaKey, quota: Quota, counters: Counters, now: float) -> LiveQuota:
    day = day_at(zone_named(quota.reset_timezone), now)
    until = _exhausted_until(quota, counters, day, now)
    return LiveQuota(
        provider=key.provider,
        daily_limit=quota.daily_requests,
        daily_count=counters.daily,
        rpm_limit=quota.requests_per_minute,
        rpm_window_count=counters.minute,
        is_exhausted=until > 0,
        exhausted_until=until,
        forecast=now if counters.exhausted_until else runs_dry_at(quota, counters, day, now),
    )


def _exhausted_until(quota: Quota, counters: Counters, day: Day, now: float) -> float:
    until = counters.exhausted_until
    if quota.daily_requests and counters.daily >= quota.daily_requests:
        until = max(until, day.end)
    if quota.requests_per_minute and counters.minute >= quota.requests_per_minute:
        until = max(until, (now // 60 + 1) * 60)
    return until
