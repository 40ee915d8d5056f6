"""Days of time zones: how long they are, when they begin, and that they follow each other without gap or overlap."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.quota_window import DayCalendar, day_at, day_of, minute_of, next_midnight

ZONES = (
    "UTC",
    "Europe/Budapest",
    "Australia/Lord_Howe",  # summer time is half an hour
    "America/Sao_Paulo",  # began at midnight until 2018
    "Africa/Cairo",  # begins at midnight
    "America/Havana",  # goes back to midnight
    "America/St_Johns",  # went over midnight at 00:01 until 2011
    "America/Toronto",  # jumped over midnight from 23:30 in 1919
    "Pacific/Apia",  # left out 2011-12-30
    "Asia/Kathmandu",
)


def _epoch(zone: str, text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("zone", "date", "hours", "first"),
    [
        ("UTC", "2026-03-29", 24, "00:00"),
        ("Europe/Budapest", "2026-03-28", 24, "00:00"),
        ("Europe/Budapest", "2026-03-29", 23, "00:00"),
        ("Europe/Budapest", "2026-10-25", 25, "00:00"),
        ("Australia/Lord_Howe", "2026-04-05", 24.5, "00:00"),
        ("Australia/Lord_Howe", "2026-10-04", 23.5, "00:00"),
        ("America/Sao_Paulo", "2018-11-04", 23, "01:00"),
        ("America/Sao_Paulo", "2018-02-17", 25, "00:00"),
        ("Africa/Cairo", "2026-04-24", 23, "01:00"),
        ("America/Havana", "2026-11-01", 25, "00:00"),
        ("America/Toronto", "1919-03-31", 23.5, "00:30"),
        ("Pacific/Apia", "2011-12-31", 24, "00:00"),
    ],
)
def test_a_day_is_as_long_as_the_zone_says_and_begins_at_its_first_moment(
    zone: str, date: str, hours: float, first: str
) -> None:
    start = _epoch(zone, f"{date}T{first}")
    for moment in (start, start + 0.5, start + hours * 1800, start + hours * 3600 - 0.1):
        day = day_at(ZoneInfo(zone), moment)
        assert (day.name, day.start, day.end) == (date, start, start + hours * 3600)
    assert day_of(ZoneInfo(zone), start - 0.1) < date < day_of(ZoneInfo(zone), start + hours * 3600)


def test_a_midnight_that_strikes_twice_ends_the_day_each_time() -> None:
    zone = ZoneInfo("America/St_Johns")
    first, second = (_epoch("America/St_Johns", "2010-11-07T00:00", fold) for fold in (0, 1))
    assert second - first == 3600
    assert next_midnight(zone, first - 1) == first
    assert next_midnight(zone, first + 90) == second
    assert day_of(zone, first) == day_of(zone, second) == "2010-11-07"
    assert day_of(zone, first + 90) == "2010-11-06"


@given(st.sampled_from(ZONES), st.integers(-1_600_000_000_000, 4_000_000_000_000))
def test_every_moment_is_in_the_day_it_is_said_to_be_in(name: str, milliseconds: int) -> None:
    zone = ZoneInfo(name)
    now = milliseconds / 1000
    day = day_at(zone, now)
    assert day.start <= now < day.end == next_midnight(zone, now)
    assert day.name == day_of(zone, now) < day.ahead_name
    assert day_of(zone, day.end) <= day.ahead_name == day_of(zone, day.end - 1 + 86_400)
    assert day_of(zone, day.end - 1) <= day.name
    assert day_of(zone, day.start) == day.name


@pytest.mark.parametrize(
    ("name", "moment", "ahead"),
    [
        ("UTC", "2026-03-28", "2026-03-29"),
        ("Europe/Budapest", "2026-03-27", "2026-03-28"),
        ("Europe/Budapest", "2026-03-28", "2026-03-30"),  # the 29th has 23 hours
        ("Europe/Budapest", "2026-03-29", "2026-03-30"),
        ("Europe/Budapest", "2026-10-24", "2026-10-25"),  # which has 25
        ("Pacific/Apia", "2011-12-29", "2011-12-31"),  # there was no 30th
    ],
)
def test_the_last_date_that_a_clock_24_hours_behind_was_at_can_be_the_one_after_the_next(
    name: str, moment: str, ahead: str
) -> None:
    zone = ZoneInfo(name)
    assert day_at(zone, datetime.fromisoformat(f"{moment}T12:00").replace(tzinfo=zone).timestamp()).ahead_name == ahead


@pytest.mark.parametrize(("now", "minute"), [(0.0, 0), (59.999, 0), (60.0, 1), (-0.5, -1)])
def test_a_minute_is_sixty_seconds_of_the_epoch(now: float, minute: int) -> None:
    assert minute_of(now) == minute


def test_a_calendar_computes_a_day_once_and_anew_when_the_clock_leaves_it() -> None:
    asked = []

    def zone_named(name: str) -> ZoneInfo:
        asked.append(name)
        return ZoneInfo(name)

    calendar = DayCalendar(zone_named)
    midnight = datetime(2026, 9, 22, tzinfo=UTC).timestamp()
    for now, name in ((midnight - 1, 21), (midnight - 0.1, 21), (midnight, 22), (midnight + 9, 22), (midnight - 1, 21)):
        assert calendar.at("Etc/UTC", now).name == f"2026-09-{name}"
    assert len(asked) == 3
