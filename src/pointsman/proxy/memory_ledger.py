"""A ledger without a database: exact in one process, forgotten at its end. For tests, and where nothing is stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from pointsman.core.quota import Counters, Quota, QuotaKey, Reservation
from pointsman.core.quota_book import Exhausted, QuotaBook
from pointsman.core.quota_window import DayCalendar
from pointsman.core.time_zones import zone_named

_KEPT_DAYS = 35


class MemoryLedger:
    """The QuotaLedger of `ledger`."""

    def __init__(self, zone_named: Callable[[str], tzinfo] = zone_named) -> None:
        self._book = QuotaBook()
        self._calendar = DayCalendar(zone_named)
        self._pruned = ""

    def counters(self, key: QuotaKey, quota: Quota, now: float) -> Counters:
        """See QuotaLedger."""
        return self._book.counters(key, self._calendar.at(quota.reset_timezone, now), now)

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        """See QuotaLedger. Never raises LedgerUnavailable."""
        day = self._calendar.at(quota.reset_timezone, now)
        if day.name != self._pruned:
            self._pruned = day.name
            oldest = datetime.fromtimestamp(now, UTC) - timedelta(days=_KEPT_DAYS)
            self._book.forget_before(oldest.date().isoformat())
        return self._book.take(key, quota, day, now)

    async def release(self, reservation: Reservation) -> None:
        """See QuotaLedger."""
        if not reservation.is_returned:
            reservation.is_returned = True
            self._book.give_back(reservation)

    async def exhaust(self, key: QuotaKey, until: float, now: float) -> None:
        """See QuotaLedger."""
        self._book.exhaust(key, Exhausted(until, now), now)
