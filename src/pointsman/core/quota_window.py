"""Days and minutes that quotas are counted by. Pure: the time zone and the moment are given.

A day is a date of a time zone, from its first moment to the next date's: 23, 24 or 25 hours, beginning at 01:00 where
the clocks jump over midnight. Where a zone's data comes from: `config.time_zones`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

MINUTE_SECONDS = 60
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Day:
    """One date of a time zone."""

    name: str
    """`YYYY-MM-DD`."""
    ahead_name: str
    """Of the last date that a clock was at which is now 24 hours behind: the next one, or the one after that where the
    next has 23 hours or is left out."""
    start: float
    """Its first moment, seconds since the epoch."""
    end: float
    """The first moment that belongs to a later date."""


def day_at(zone: tzinfo, now: float) -> Day:
    """The day that `now` (seconds since the epoch) belongs to."""
    today = datetime.fromtimestamp(now, zone).date()
    end = end_before(zone, today + timedelta(days=1), now)
    return Day(today.isoformat(), day_of(zone, end - 1 + _DAY_SECONDS), start_of(zone, today, now), end)


def day_of(zone: tzinfo, now: float) -> str:
    """Its name, `YYYY-MM-DD`."""
    return datetime.fromtimestamp(now, zone).date().isoformat()


def next_midnight(zone: tzinfo, now: float) -> float:
    """When the date changes next, seconds since the epoch: the first moment of it, when there is no midnight."""
    return end_before(zone, datetime.fromtimestamp(now, zone).date() + timedelta(days=1), now)


def minute_of(now: float) -> int:
    """Whole minutes since the epoch."""
    return int(now // MINUTE_SECONDS)


def _midnight(zone: tzinfo, day: date, fold: int) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone, fold=fold).timestamp()


def end_before(zone: tzinfo, following: date, now: float) -> float:
    """The first moment of a later date than that of `now`, after `now`."""
    end = _midnight(zone, following, 0)
    if end <= now:
        # The clocks went back over midnight after it had struck: today has come again, and so will midnight.
        end = _midnight(zone, following, 1)
    return _first(zone, lambda day: day >= following, now, end)


def start_of(zone: tzinfo, first: date, now: float) -> float:
    """The first moment of a date that is not later than that of `now`."""
    start = _midnight(zone, first, 0)
    if start > now:
        # Midnight was jumped over by less than a day's beginning: `now` lies between the jump and where it would be.
        start = now // 1
    return _first(zone, lambda day: day >= first, start - _DAY_SECONDS, start)


def _first(zone: tzinfo, is_reached: Callable[[date], bool], before: float, reached: float) -> float:
    """The first whole second between at which a date is reached; nearly always `reached` itself."""
    if not is_reached(datetime.fromtimestamp(reached - 1, zone).date()):
        return reached
    low, high = int(before), int(reached)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_reached(datetime.fromtimestamp(middle, zone).date()) else (middle, high)
    return float(high)


class DayCalendar:
    """The current day of every zone that is asked for, computed once a day instead of once a request."""

    def __init__(self, zone_named: Callable[[str], tzinfo]) -> None:
        self._zone_named = zone_named
        self._days: dict[str, Day] = {}

    def at(self, zone_name: str, now: float) -> Day:
        """The day of `now` there. Raises what the look-up of an unknown zone raises."""
        day = self._days.get(zone_name)
        if day is None or not day.start <= now < day.end:
            day = self._days[zone_name] = day_at(self._zone_named(zone_name), now)
        return day
