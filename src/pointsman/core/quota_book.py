"""Counters in memory: what one process knows of a ledger, and all that a ledger without a database has. Pure.

Here, and in `store.quota_statements` for databases, is what a clock does to quotas that jumps:

* Every date has a count of its own, so a clock that goes to another day and comes back finds what was counted there.
* A clock set back by a day does not unlock: dates that a clock can have come back from by that, when something was
  counted there, must have room as well. It does not lock for ever either: dates further ahead are not looked at.
* A minute that is up to `MINUTES_AHEAD` ahead (another process's clock, or a small step back) goes on being counted;
  one further ahead, or behind, is over.
* An upstream's "exhausted until" is believed unless it was said more than `BELIEVED_AHEAD_SECONDS` in the future,
  which a clock did that was wrong then. A clock set back by a day so prolongs it by a day at most.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pointsman.core.quota import Counters, Quota, QuotaKey, Reservation
from pointsman.core.quota_window import Day, minute_of

MINUTES_AHEAD = 2
BELIEVED_AHEAD_SECONDS = 26 * 3600.0
"""A day, the longest one, and an hour for clocks that differ."""


class DayCount(NamedTuple):
    """What was counted on one date, and in the last minute of it that something was."""

    daily: int
    minute: int
    minutely: int

    def in_minute(self, minute: int) -> int:
        """What counts against a reservation in that minute."""
        return self.minutely if minute <= self.minute <= minute + MINUTES_AHEAD else 0


class Exhausted(NamedTuple):
    """What an upstream said, and when."""

    until: float
    said_at: float

    def is_believed(self, now: float) -> bool:
        """Whether the clock that it was said by can have been right."""
        return self.said_at <= now + BELIEVED_AHEAD_SECONDS

    def end(self, now: float) -> float:
        """0 when it is over, or not believed."""
        return self.until if self.until > now and self.is_believed(now) else 0.0


_NOTHING_SAID = Exhausted(0.0, 0.0)
_NO_COUNT = DayCount(0, 0, 0)


class _Page:
    __slots__ = ("changed", "days", "exhausted")

    def __init__(self) -> None:
        self.days: dict[str, DayCount] = {}
        self.exhausted = _NOTHING_SAID
        self.changed = 0


class QuotaBook:
    """Counters of all keys."""

    def __init__(self) -> None:
        self._pages: dict[QuotaKey, _Page] = {}
        self.changes = 0
        """Grows with everything that is learnt; see `replace`."""

    def _page(self, key: QuotaKey) -> _Page:
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        return page

    def counters(self, key: QuotaKey, day: Day, now: float) -> Counters:
        """As of `now`, which `day` is of."""
        page = self._pages.get(key)
        if page is None:
            return Counters()
        said = page.exhausted
        until = 0.0 if said is _NOTHING_SAID else said.end(now)
        count = page.days.get(day.name)
        return Counters(0, 0, until) if count is None else Counters(count.daily, count.in_minute(minute_of(now)), until)

    def exhausted_until(self, key: QuotaKey, now: float) -> float:
        """0 when it is not."""
        page = self._pages.get(key)
        return 0.0 if page is None else page.exhausted.end(now)

    def take(self, key: QuotaKey, quota: Quota, day: Day, now: float) -> Reservation | None:
        """Count one in the day and the minute, or neither."""
        page = self._page(key)
        minute = minute_of(now)
        count = page.days.get(day.name, _NO_COUNT)
        used = count.in_minute(minute)
        limit = quota.daily_requests
        if limit and any(day.name <= name <= day.ahead_name and of.daily >= limit for name, of in page.days.items()):
            return None
        if (quota.requests_per_minute and used >= quota.requests_per_minute) or page.exhausted.end(now):
            return None
        minute = count.minute if used else minute
        self.learn(key, day.name, DayCount(count.daily + 1, minute, used + 1))
        return Reservation(key, day.name, minute)

    def give_back(self, reservation: Reservation) -> None:
        """Uncount it where it was counted, as far as it is still kept."""
        count = self._page(reservation.key).days.get(reservation.day, _NO_COUNT)
        if count.daily:
            is_current = count.minute == reservation.minute and count.minutely > 0
            self.learn(
                reservation.key,
                reservation.day,
                DayCount(count.daily - 1, count.minute, count.minutely - 1 if is_current else count.minutely),
            )

    def exhaust(self, key: QuotaKey, said: Exhausted, now: float) -> None:
        """The later end holds, unless it is not believed."""
        page = self._page(key)
        if not page.exhausted.is_believed(now) or said.until > page.exhausted.until:
            page.exhausted = said

    def learn(self, key: QuotaKey, day: str, count: DayCount) -> None:
        """What a database has, as of now."""
        page = self._page(key)
        page.days[day] = count
        self.changes += 1
        page.changed = self.changes

    def replace(self, rows: Iterable[tuple[QuotaKey, str, DayCount]], changes: int) -> None:
        """What a database had when there were `changes`; of a key that was learnt about since, nothing is taken."""
        days: dict[QuotaKey, dict[str, DayCount]] = {}
        for key, day, count in rows:
            days.setdefault(key, {})[day] = count
        for key in days.keys() | self._pages.keys():
            page = self._page(key)
            if page.changed <= changes:
                page.days = days.get(key, {})

    def forget_before(self, day: str) -> None:
        """Dates before this one."""
        for page in self._pages.values():
            page.days = {name: count for name, count in page.days.items() if name >= day}
