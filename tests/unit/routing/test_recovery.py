"""When a provider that has no room may be asked again."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.quota import Quota
from pointsman.core.quota_window import next_midnight
from pointsman.core.time_zones import zone_named
from pointsman.routing.recovery import LONGEST_WAIT, SHORTEST_WAIT, may_ask_again_at
from tests.unit.routing.chains import MIDNIGHT, NOW

DAY = 24 * 3600.0


def wait(fields: Mapping[str, str], quota: Quota = Quota()) -> float:  # noqa: B008
    listed = [(name.encode(), value.encode()) for name, value in fields.items()]
    return round(may_ask_again_at(listed, quota, NOW) - NOW, 6)


UNTIL_MIDNIGHT = MIDNIGHT - NOW


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after": " 7 "}, 7),
        ({"RETRY-AFTER": "7.5"}, 7.5),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30),
        ({"retry-after": "Friday, 15-Jan-27 08:00:30 GMT"}, 30),
        ({"retry-after": "Fri Jan 15 08:00:30 2027"}, 30),
        ({"retry-after-ms": "2500"}, 2.5),
        ({"retry-after-ms": "2500", "retry-after": "3"}, 2.5),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"retry-after": "3", "x-ratelimit-reset": "900"}, 3),
        ({"retry-after": "whenever", "x-ratelimit-reset": "900"}, 900),
        ({"x-ratelimit-reset-requests": "1s"}, 1),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-reset-tokens": "2m59.56s"}, 179.56),
        ({"x-ratelimit-reset-tokens": "1h2m3s"}, 3723),
        ({"x-ratelimit-reset-tokens": "1500ms"}, 1.5),
        ({"x-ratelimit-reset-tokens": "5m"}, 300),
        ({"x-ratelimit-reset-requests-day": "33011.25"}, 33011.25),
        ({"x-ratelimit-reset": "90"}, 90),
        ({"x-ratelimit-reset": str(int(NOW) + 90)}, 90),
        ({"x-ratelimit-reset": str(int(NOW + 90) * 1000)}, 90),
        ({"ratelimit-reset": "90"}, 90),
        ({"anthropic-ratelimit-requests-reset": "2027-01-15T08:01:00Z"}, 60),
        ({"anthropic-ratelimit-tokens-reset": "2027-01-15T09:01:00+01:00"}, 60),
        ({"anthropic-ratelimit-unified-reset": str(int(NOW) + 60)}, 60),
    ],
)
def test_a_field_says_how_long(fields: dict[str, str], seconds: float) -> None:
    assert wait(fields) == seconds


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"x-ratelimit-reset-requests": "8h", "x-ratelimit-reset-tokens": "7s"}, 7),
        (
            {
                "x-ratelimit-reset-requests": "8h",
                "x-ratelimit-reset-tokens": "7s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-remaining-tokens": "500",
            },
            28800,
        ),
        (
            {
                "x-ratelimit-reset-requests": "8h",
                "x-ratelimit-reset-tokens": "7s",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-remaining-tokens": "0",
            },
            28800,
        ),
        (
            {
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:10Z",
                "anthropic-ratelimit-input-tokens-reset": "2027-01-15T08:00:40Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-requests-remaining": "49",
            },
            40,
        ),
        ({"x-ratelimit-reset": "50", "x-ratelimit-remaining": "0", "x-ratelimit-reset-tokens": "5s"}, 50),
    ],
)
def test_the_limit_that_has_nothing_left_counts_else_the_first_to_be_renewed(
    fields: dict[str, str], seconds: float
) -> None:
    assert wait(fields) == seconds


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content-type": "application/json"},
        {"retry-after": ""},
        {"retry-after": "-5"},
        {"retry-after": "soon"},
        {"retry-after": "1e3"},
        {"retry-after": "Fri, 99 Jan 2027 08:00:30 GMT"},
        {"retry-after": "Fri, 15 Jan 99999999999 08:00:30 GMT"},
        {"retry-after": "9" * 65},
        {"retry-after": "١٤"},
        {"x-ratelimit-reset": "never"},
        {"x-ratelimit-reset": "nan"},
        {"x-ratelimit-reset": "inf"},
        {"x-ratelimit-reset-requests": "-1s"},
        {"x-ratelimit-reset-requests": "1x"},
        {"anthropic-ratelimit-requests-reset": "2027-13-15T08:01:00Z"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-limit-requests": "30"},
    ],
)
def test_without_a_usable_field_it_is_the_providers_next_day(fields: dict[str, str]) -> None:
    assert wait(fields) == UNTIL_MIDNIGHT
    assert wait(fields, Quota(reset_timezone="Asia/Tokyo")) == 7 * 3600


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"retry-after": "0"}, SHORTEST_WAIT),
        ({"retry-after-ms": "999"}, SHORTEST_WAIT),
        ({"retry-after-ms": "1000"}, SHORTEST_WAIT),
        ({"retry-after-ms": "1001"}, 1.001),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, SHORTEST_WAIT),
        ({"x-ratelimit-reset": "1000000000"}, SHORTEST_WAIT),
        ({"x-ratelimit-reset-tokens": "20ms"}, SHORTEST_WAIT),
        ({"anthropic-ratelimit-requests-reset": "0001-01-01T00:00:00+23:59"}, SHORTEST_WAIT),
        ({"anthropic-ratelimit-requests-reset": "2020-01-15T08:01:00Z"}, SHORTEST_WAIT),
        ({"retry-after": "86399"}, LONGEST_WAIT - 1),
        ({"retry-after": "86400"}, LONGEST_WAIT),
        ({"retry-after": "86401"}, LONGEST_WAIT),
        ({"retry-after": "999999999999999"}, LONGEST_WAIT),
        ({"x-ratelimit-reset-requests": "1d"}, LONGEST_WAIT),
        ({"x-ratelimit-reset-requests": "999999d"}, LONGEST_WAIT),
        ({"x-ratelimit-reset": "999999999999999"}, LONGEST_WAIT),
        ({"retry-after": "Fri, 15 Jan 2100 08:00:00 GMT"}, LONGEST_WAIT),
    ],
)
def test_what_a_field_says_is_never_in_the_past_and_never_beyond_a_day(fields: dict[str, str], seconds: float) -> None:
    assert wait(fields) == seconds


NAMES = st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "anthropic-ratelimit-a-reset"])


@given(
    st.lists(
        st.tuples(NAMES.map(str.encode), st.binary(max_size=70) | st.from_regex(rb"[0-9:., GMTZsmhd-]*")), max_size=4
    )
)
def test_no_answer_takes_a_provider_away_for_longer_than_a_day(fields: list[tuple[bytes, bytes]]) -> None:
    assert NOW + SHORTEST_WAIT <= may_ask_again_at(fields, Quota(), NOW) <= NOW + LONGEST_WAIT


# Days


def instant(zone: str, *moment: int, fold: int = 0) -> float:
    return datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold).timestamp()  # type: ignore[misc, arg-type]  # year first


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        ("UTC", (2027, 3, 28), 24),
        ("Europe/Berlin", (2027, 3, 27), 24),
        ("Europe/Berlin", (2027, 3, 28), 23),
        ("Europe/Berlin", (2027, 10, 31), 25),
        ("America/New_York", (2027, 3, 14), 23),
        ("America/New_York", (2027, 11, 7), 25),
        ("Australia/Lord_Howe", (2027, 10, 3), 23.5),
        ("Asia/Kolkata", (2027, 3, 28), 24),
        ("America/Santiago", (2022, 9, 10), 24),  # the next day begins at 01:00
        ("Asia/Beirut", (2022, 3, 26), 24),
        ("Pacific/Apia", (2011, 12, 29), 24),  # the 30th was left out
    ],
)
def test_a_day_ends_at_the_next_midnight_however_long_it_is(zone: str, start: tuple[int, ...], hours: float) -> None:
    begin = instant(zone, *start)
    end = begin + hours * 3600
    for moment in (begin, begin + 1, begin + hours * 1800, end - 1, end - 0.001):
        assert next_midnight(zone_named(zone), moment) == end
    assert next_midnight(zone_named(zone), end) > end


def test_a_date_that_begins_twice_resets_at_both_beginnings() -> None:
    # Goose Bay put its clocks back from 00:01 to 23:01.
    zone = zone_named("America/Goose_Bay")
    first, second = instant("America/Goose_Bay", 2010, 11, 7), instant("America/Goose_Bay", 2010, 11, 7, fold=1)
    assert second - first == 3600
    assert next_midnight(zone, first - 1) == first
    assert next_midnight(zone, second - 1) == second
    assert next_midnight(zone, second) == second + DAY


ZONES = st.sampled_from(["UTC", "Europe/Dublin", "America/Havana", "Africa/Cairo", "Antarctica/Troll", "Asia/Gaza"])


@given(ZONES, st.floats(0, 4e9))
def test_the_next_day_begins_within_25_hours_and_has_another_date(name: str, now: float) -> None:
    zone = zone_named(name)
    at = next_midnight(zone, now)
    assert now < at <= now + 25 * 3600
    today = datetime.fromtimestamp(now, zone).date()
    assert datetime.fromtimestamp(at, zone).date() == today + timedelta(days=1)
    assert datetime.fromtimestamp(at - 0.5, zone).date() == today or at - now < 0.5
