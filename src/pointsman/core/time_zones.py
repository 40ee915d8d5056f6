"""Time zones by name, from the system's zone data or the `tzdata` package's. Not here: what a day is."""

import difflib
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from pointsman.core.quota import DEFAULT_ZONE


class UnknownZone(ValueError):
    """No zone has that name. The text names the nearest."""


@lru_cache(maxsize=1024)  # more than there are: a plan never waits for a file of a zone that has been asked for
def zone_named(name: str) -> tzinfo:
    """The zone with an IANA name; `UTC` needs no data. Reads a file at the first use of a name. Raises UnknownZone."""
    if name == DEFAULT_ZONE:
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # also: a path out of the data, a directory of it
        near = difflib.get_close_matches(name[:64], available_timezones(), 1)
    hint = f"did you mean {near[0]}?" if near else "write an IANA name such as Europe/Budapest"
    raise UnknownZone(f"the time zone {name[:64]!r} is not known; {hint}")
