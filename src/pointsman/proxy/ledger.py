"""What the data plane asks of whoever counts: a place of a quota before an attempt, and the place back when it failed.

The implementations are `store.quota`'s and `MemoryLedger`'s; composition roots hand one in.
"""

from dataclasses import dataclass
from typing import Protocol

from pointsman.core.quota import Counters, Quota, QuotaKey


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place taken: the count of a success, so that a success writes nothing more."""

    key: QuotaKey
    day: str
    """The day it counts for, `YYYY-MM-DD` in the quota's time zone: it is given back there, even after midnight."""
    minute: int
    """The window of 60 s it counts for, as whole minutes since the epoch."""


class QuotaLedger(Protocol):
    """Counters that are exact under concurrency, shared by all workers, and survive a restart. `now`: epoch seconds."""

    def counters(self, key: QuotaKey, quota: Quota, now: float) -> Counters:
        """What is known here of the counters, without asking anybody: for plans, which are asked again by `reserve`."""

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        """Take a place in the day and in the minute, both or neither; None when one of them has no room."""

    async def release(self, reservation: Reservation) -> None:
        """Give a place back; counters never go below zero."""

    async def exhaust(self, key: QuotaKey, until: float, now: float) -> None:
        """No room before `until`, whatever the counters say; an earlier end than the known one changes nothing."""
