"""Windows of budgets: that every moment is in one, that a window has one name, and what summer time does to them."""

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.budget import BudgetWindow
from pointsman.core.budget_window import TOTAL, BudgetCalendar, window_at
from pointsman.core.time_zones import zone_named

ZONES = (
    "UTC",
    "Europe/Budapest",
    "Australia/Lord_Howe",  # summer time is half an hour
    "Africa/Cairo",  # begins at midnight
    "America/Havana",  # goes back to midnight
    "America/St_Johns",  # went over midnight at 00:01 until 2011, also into a new month
    "Pacific/Apia",  # left out 2011-12-30
    "Asia/Kathmandu",
    "Africa/Monrovia",  # 44 minutes and 30 seconds until 1972
)
_zones = st.sampled_from(ZONES)
_kinds = st.sampled_from(list(BudgetWindow))
_moments = st.floats(min_value=0, max_value=4_000_000_000)


def _epoch(zone: str, text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("kind", "zone", "first", "seconds", "name"),
    [
        (BudgetWindow.MINUTE, "Europe/Budapest", "2026-12-01T13:05", 60, "2026-12-01T13:05+01:00"),
        (BudgetWindow.HOUR, "Europe/Budapest", "2026-12-01T13:00", 3600, "2026-12-01T13+01:00"),
        (BudgetWindow.HOUR, "Asia/Kathmandu", "2026-12-01T13:00", 3600, "2026-12-01T13+05:45"),
        (BudgetWindow.DAY, "Europe/Budapest", "2026-03-29T00:00", 23 * 3600, "2026-03-29"),
        (BudgetWindow.DAY, "Africa/Cairo", "2026-04-24T01:00", 23 * 3600, "2026-04-24"),
        (BudgetWindow.MONTH, "UTC", "2026-02-01T00:00", 28 * 86_400, "2026-02"),
        (BudgetWindow.MONTH, "Europe/Budapest", "2026-03-01T00:00", 31 * 86_400 - 3600, "2026-03"),
        (BudgetWindow.MONTH, "Europe/Budapest", "2026-12-01T00:00", 31 * 86_400, "2026-12"),
    ],
)
def test_a_window_lasts_from_its_first_moment_to_its_last(
    kind: BudgetWindow, zone: str, first: str, seconds: int, name: str
) -> None:
    start = _epoch(zone, first)
    for moment in (start, start + seconds / 2, start + seconds - 0.001):
        window = window_at(kind, ZoneInfo(zone), moment)
        assert (window.name, window.end) == (name, start + seconds)
    assert window_at(kind, ZoneInfo(zone), start - 0.001).name != name
    assert window_at(kind, ZoneInfo(zone), start + seconds).name != name


def test_an_hour_that_comes_twice_is_two_windows() -> None:
    zone = ZoneInfo("Europe/Budapest")
    first = window_at(BudgetWindow.HOUR, zone, _epoch("Europe/Budapest", "2026-10-25T02:30"))
    second = window_at(BudgetWindow.HOUR, zone, _epoch("Europe/Budapest", "2026-10-25T02:30", 1))
    assert (first.name, second.name) == ("2026-10-25T02+02:00", "2026-10-25T02+01:00")
    assert first.end == second.since


def test_an_hour_in_whose_middle_the_clock_jumps_is_shorter() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")  # 02:00 +11:00 becomes 01:30 +10:30
    again = window_at(BudgetWindow.HOUR, zone, _epoch("Australia/Lord_Howe", "2026-04-05T01:45", 1))
    assert (again.name, again.end - again.since) == ("2026-04-05T01+10:30", 1800)


def test_an_hour_that_the_clock_leaves_after_a_minute_ends_there() -> None:
    zone = ZoneInfo("America/St_Johns")  # 00:01 -02:30 became 23:01 -03:30
    first = window_at(BudgetWindow.HOUR, zone, _epoch("America/St_Johns", "2010-11-07T00:00:30"))
    assert (first.name, first.end - first.since) == ("2010-11-07T00-02:30", 60)
    again = window_at(BudgetWindow.HOUR, zone, first.end)
    assert (again.name, again.since, again.end - again.since) == ("2010-11-06T23-03:30", first.end, 59 * 60)


def test_the_total_has_no_name_and_no_end() -> None:
    assert window_at(BudgetWindow.TOTAL, zone_named("UTC"), 5.0) == TOTAL
    assert (TOTAL.name, TOTAL.end) == ("", math.inf)


@given(_kinds, _zones, _moments)
def test_every_moment_is_in_its_window_and_the_next_window_begins_at_its_end(
    kind: BudgetWindow, zone: str, moment: float
) -> None:
    window = window_at(kind, ZoneInfo(zone), moment)
    assert window.since <= moment < window.end
    if kind is not BudgetWindow.TOTAL:
        after = window_at(kind, ZoneInfo(zone), window.end)
        assert after.since == window.end
        assert after.name != window.name


@given(_kinds, _zones, _moments, st.floats(min_value=0, max_value=1))
def test_all_of_a_window_has_its_name_and_its_end(kind: BudgetWindow, zone: str, moment: float, share: float) -> None:
    window = window_at(kind, ZoneInfo(zone), moment)
    if kind is not BudgetWindow.TOTAL:
        other = window_at(kind, ZoneInfo(zone), min(window.since + share * (window.end - window.since), window.end - 1))
        assert (other.name, other.end) == (window.name, window.end)


@given(_kinds, _zones, st.lists(_moments, min_size=2, max_size=5))
def test_a_calendar_says_the_same_wherever_its_clock_jumps(kind: BudgetWindow, zone: str, moments: list[float]) -> None:
    calendar = BudgetCalendar(zone_named)
    for moment in moments:
        found, right = calendar.at(kind, zone, moment), window_at(kind, zone_named(zone), moment)
        assert (found.name, found.end) == (right.name, right.end)
