"""Quotas as an operator sees them now: the rows of `/stats/live`. Asks a ledger for what it knows, and no database."""

from collections.abc import Mapping
from dataclasses import dataclass

from pointsman.core.forecast import runs_dry_at
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.core.quota_window import MINUTE_SECONDS, Day, day_at
from pointsman.core.time_zones import zone_named
from pointsman.proxy.ledger import QuotaLedger


@dataclass(frozen=True, slots=True)
class LiveQuota:
    """One provider's quota as of `now`; all times are seconds since the epoch."""

    key: QuotaKey
    quota: Quota
    counters: Counters
    day: Day
    """The current one in the quota's time zone."""
    now: float

    @property
    def is_exhausted(self) -> bool:
        """Whether a reservation would be refused now."""
        return self.exhausted_until > 0

    @property
    def exhausted_until(self) -> float:
        """When there is room again; 0 when there is room now."""
        quota, counters = self.quota, self.counters
        until = counters.exhausted_until if counters.exhausted_until > self.now else 0.0
        if 0 < quota.daily_requests <= counters.daily:
            until = max(until, self.day.end)
        if 0 < quota.requests_per_minute <= counters.minute:
            until = max(until, (self.now // MINUTE_SECONDS + 1) * MINUTE_SECONDS)
        return until

    @property
    def runs_dry_at(self) -> float | None:
        """When the day's quota ends at the day's pace; None: not before it is renewed."""
        return runs_dry_at(self.quota, self.counters, self.day, self.now)


def live_quotas(ledger: QuotaLedger, quotas: Mapping[QuotaKey, Quota], now: float) -> tuple[LiveQuota, ...]:
    """A row for each, in their order."""
    return tuple(
        LiveQuota(key, quota, ledger.counters(key, quota, now), day_at(zone_named(quota.reset_timezone), now), now)
        for key, quota in quotas.items()
    )
