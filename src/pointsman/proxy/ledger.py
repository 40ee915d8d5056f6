"""What the data plane asks of whoever counts: a place of a quota before an attempt, and the place back when it failed.

The implementations are `store.quota_ledger`'s and `MemoryLedger`'s; composition roots hand one in.
"""

from typing import Protocol

from pointsman.core.quota import Counters, LedgerUnavailable, Quota, QuotaKey, Reservation

__all__ = ["LedgerUnavailable", "QuotaLedger", "Reservation"]


class QuotaLedger(Protocol):
    """Counters that are exact under concurrency, shared by all workers, and survive a restart. `now`: epoch seconds."""

    def counters(self, key: QuotaKey, quota: Quota, now: float) -> Counters:
        """What is known here of the counters, without asking anybody: for plans, which are asked again by `reserve`."""

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        """Take a place in the day and in the minute, both or neither; None when one of them has no room.

        Raises LedgerUnavailable, within a second.
        """

    async def release(self, reservation: Reservation) -> None:
        """Give a place back, once; counters never go below zero.

        Never raises: what cannot be written now is written later, and until then too much is counted.
        """

    async def exhaust(self, key: QuotaKey, until: float, now: float) -> None:
        """No room before `until`, whatever the counters say; an earlier end than the known one changes nothing.

        Never raises: it holds here at once, and elsewhere as soon as it can be written.
        """
