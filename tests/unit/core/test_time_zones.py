"""Zones by name."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from pointsman.core.time_zones import UnknownZone, zone_named
from tests.support.processes import run_to_end


def test_zones_are_found_by_their_names() -> None:
    assert zone_named("UTC") is UTC
    assert zone_named("Europe/Budapest").utcoffset(datetime(2026, 7, 1)) == timedelta(hours=2)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Budapst", "did you mean Europe/Budapest?"),
        ("America", "the time zone 'America' is not known"),
        ("", "write an IANA name such as Europe/Budapest"),
        ("../../etc/passwd", "is not known"),
        ("/etc/passwd", "is not known"),
        ("a\0b", "is not known"),
        ("\ud800", "is not known"),
        ("x" * 10_000, "is not known"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownZone) as caught:
        zone_named(name)
    assert hint in str(caught.value)


def test_zones_are_found_where_the_system_has_none() -> None:
    code = "from pointsman.core.time_zones import zone_named; print(zone_named('Europe/Budapest'))"
    done = run_to_end([sys.executable, "-c", code], environ={"PYTHONTZPATH": ""})
    assert (done.stdout, done.stderr) == ("Europe/Budapest\n", "")
