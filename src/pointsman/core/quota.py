"""How much of a provider may be used, and what has been used of it."""

from dataclasses import dataclass

DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class Quota:
    """An operator's limits for one provider; 0 means no limit."""

    daily_requests: int = 0
    requests_per_minute: int = 0
    reset_timezone: str = DEFAULT_ZONE
    """An IANA name: the day begins at midnight there, whether it has 23, 24 or 25 hours."""


UNLIMITED = Quota()


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """Whose counters: a provider's name is its account's."""

    account: str
    provider: str


@dataclass(frozen=True, slots=True)
class Counters:
    """What was used of a quota, reservations included, as of one moment."""

    daily: int = 0
    """Of the current day in the quota's time zone."""
    minute: int = 0
    """Of the current window of 60 s."""
    exhausted_until: float = 0.0
    """Seconds since the epoch: what an upstream's 429 said, or the end of the day; 0 when nothing was said."""
