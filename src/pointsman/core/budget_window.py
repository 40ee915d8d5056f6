"""The window of a budget at a moment. Pure: the time zone and the moment are given.

Windows are spans of a zone's clock. Where the clocks go back an hour comes twice, and is two windows, told apart by
their distance from UTC; where they jump in the middle of an hour, that hour is shorter. A day is `core.quota_window`'s,
a month lasts from the first moment of a date to the first of another.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from pointsman.core.budget import BudgetWindow
from pointsman.core.quota_window import day_at, end_before

_SPANS = {BudgetWindow.MINUTE: ("minutes", 60), BudgetWindow.HOUR: ("hours", 3600)}
_LONGER_THAN_A_MONTH = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Window:
    """One span of time that is counted by itself."""

    name: str
    """`core.budget.Charge` tells its forms."""
    since: float
    """Seconds since the epoch: from here on, all moments before `end` belong to it. Minus infinity for the total."""
    end: float
    """The first moment after it; infinite for the total."""


TOTAL = Window("", -math.inf, math.inf)


def window_at(kind: BudgetWindow, zone: tzinfo, now: float) -> Window:
    """The window that `now` (seconds since the epoch) belongs to."""
    if kind is BudgetWindow.TOTAL:
        return TOTAL
    if kind is BudgetWindow.DAY:
        day = day_at(zone, now)
        return Window(day.name, day.start, day.end)
    if kind is BudgetWindow.MONTH:
        return _month(zone, now)
    return _clock_span(*_SPANS[kind], zone, now)


def _month(zone: tzinfo, now: float) -> Window:
    day = day_at(zone, now)
    first = datetime.fromtimestamp(now, zone).date().replace(day=1)
    return Window(day.name[:7], day.start, end_before(zone, (first + _LONGER_THAN_A_MONTH).replace(day=1), now))


def _clock_span(spec: str, seconds: int, zone: tzinfo, now: float) -> Window:
    """An hour or a minute, as far as the clock runs on without a jump."""
    local = datetime.fromtimestamp(now, zone)
    offset = local.utcoffset() or timedelta()
    ahead = offset.total_seconds()
    start = (now + ahead) // seconds * seconds - ahead
    end = start + seconds

    def jumped(moment: int) -> bool:
        return datetime.fromtimestamp(moment, zone).utcoffset() != offset

    if jumped(int(start)):
        start = float(_first(lambda moment: not jumped(moment), int(start), int(now)))
    if jumped(int(end) - 1):
        end = float(_first(jumped, int(now), int(end) - 1))
    return Window(local.isoformat(timespec=spec), start, end)


def _first(is_reached: Callable[[int], bool], before: int, reached: int) -> int:
    """The first whole second after `before` at which something is so, which it is at `reached`."""
    while reached - before > 1:
        middle = (before + reached) // 2
        before, reached = (before, middle) if is_reached(middle) else (middle, reached)
    return reached


class BudgetCalendar:
    """The current window of every kind and zone that is asked for, computed once per window."""

    def __init__(self, zone_named: Callable[[str], tzinfo]) -> None:
        self._zone_named = zone_named
        self._windows: dict[tuple[BudgetWindow, str], Window] = {}

    def at(self, kind: BudgetWindow, zone_name: str, now: float) -> Window:
        """The window of `now` there. Raises what the look-up of an unknown zone raises."""
        window = self._windows.get((kind, zone_name))
        if window is None or not window.since <= now < window.end:
            window = self._windows[kind, zone_name] = window_at(kind, self._zone_named(zone_name), now)
        return window
