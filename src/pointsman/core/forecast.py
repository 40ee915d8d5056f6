"""When a provider runs dry, if the day goes on as it went so far. Pure."""

from pointsman.core.quota import Counters, Quota
from pointsman.core.quota_window import Day

SHORTEST_SECONDS = 60.0
"""A day younger than this says nothing about its pace."""


def runs_dry_at(quota: Quota, counters: Counters, day: Day, now: float) -> float | None:
    """Seconds since the epoch; `now` when nothing is left; None when the day's end comes first, or nobody can tell.

    The pace is the day's mean so far: steady enough to plan by, late to see a burst.
    """
    if not quota.daily_requests:
        return None
    left = quota.daily_requests - counters.daily
    if left <= 0:
        return now
    elapsed = now - day.start
    if elapsed < SHORTEST_SECONDS or counters.daily <= 0:
        return None
    dry = now + left * elapsed / counters.daily
    return dry if dry < day.end else None
