"""How much of a provider may be used, and what has been used of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT_ZONE = "UTC"


@dataclass(frozen=True, slots=True)
class Quota:
    """An operator's limits for one provider; 0 means no limit."""

    daily_requests: int = 0
    requests_per_minute: int = 0
    reset_timezone: str = DEFAULT_ZONE
    """An IANA name: the day begins at midnight there, whether it has 23, 24 or 25 hours."""

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to overrun."""
        return self.daily_requests > 0 or self.requests_per_minute > 0


UNLIMITED = Quota()


class QuotaKey(NamedTuple):
    """Whose counters: a provider's name is its account's. A tuple, since every request looks by it several times."""

    account: str
    provider: str


@dataclass(slots=True)
class Reservation:
    """A place taken: the count of a success, so that a success writes nothing more."""

    key: QuotaKey
    day: str
    """The day it counts for, `YYYY-MM-DD` in the quota's time zone: it is given back there, even after midnight."""
    minute: int
    """The window of 60 s it counts for, as whole minutes since the epoch."""
    is_returned: bool = field(default=False, compare=False)
    """Set by the ledger: what was given back is not given back again."""


class LedgerUnavailable(Exception):
    """The place could not be counted: the counters' disk is full, or their database gone or held. Nothing was taken.

    Raised within a second, and without holding up the event loop. Quotas fail closed: a provider that has a limit is
    skipped for this request, one without a limit is tried uncounted, since it has nothing to overrun. When nothing is
    left, the client gets a 503 and may try again in a second. The text ends in what to do next.
    """


class Counters(NamedTuple):
    """What was used of a quota, reservations included, as of one moment."""

    daily: int = 0
    """Of the current day in the quota's time zone."""
    minute: int = 0
    """Of the current window of 60 s."""
    exhausted_until: float = 0.0
    """Seconds since the epoch: what an upstream's 429 said, or the end of the day; 0 when nothing was said."""
