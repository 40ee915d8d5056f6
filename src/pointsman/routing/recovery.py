"""When a provider that has no room may be asked again: what its answer says, else the start of its next day.

All times are seconds since the epoch. The time zone database is read on the first use of a zone, and then remembered:
whoever reads a configuration asks for its zones first, so that a plan touches no file and meets no unknown name.
"""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from pointsman.core.quota import Quota
from pointsman.core.quota_window import next_midnight
from pointsman.core.time_zones import zone_named

LONGEST_WAIT = 24 * 3600.0
"""Seconds that a field may ask for. A provider that wants more is asked in vain once a day, and a slip or a hostile
answer takes no provider away for good."""
SHORTEST_WAIT = 1.0
"""Seconds; also where a field says now, or names a time that has passed."""

_LONGEST_VALUE = 64  # characters; the longest form, an HTTP-date, has 30
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,12})?")
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,12})?)s)?")
_MILLISECONDS = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)ms")
_FIRST_EPOCH = 1e9  # 2001; as a number of seconds to wait it would be 31 years
_FIRST_EPOCH_MS = 1e11  # 1973 in milliseconds; in seconds the year 5138
_RESET = re.compile(r"(x-ratelimit|ratelimit)-reset(|-.+)|(anthropic-ratelimit)-(.+)-reset")


def may_ask_again_at(fields: Iterable[tuple[bytes, bytes]], quota: Quota, now: float) -> float:
    """When the provider that sent a 429 with these fields may be asked again.

    `retry-after-ms` and `Retry-After` come first, then the reset of a limit that has nothing left, else the earliest
    reset of any limit: asking too early costs one attempt, waiting for the wrong limit may cost the day. Without a
    usable field it is the quota's next day. Between `SHORTEST_WAIT` and `LONGEST_WAIT` from now where a field said it.
    """
    values: dict[str, str] = {}
    for name, value in fields:
        values.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())
    for field, read in _RETRY_AFTER:
        at = _read(values.get(field, ""), read, now)
        if at is not None:
            return _clamped(at, now)
    at = _reset_of_limits(values, now)
    return _clamped(at, now) if at is not None else next_midnight(zone_named(quota.reset_timezone), now)


def _clamped(at: float, now: float) -> float:
    return min(max(at, now + SHORTEST_WAIT), now + LONGEST_WAIT)


def _reset_of_limits(values: dict[str, str], now: float) -> float | None:
    spent: list[float] = []
    others: list[float] = []
    for name, value in values.items():
        match = _RESET.fullmatch(name)
        at = _read(value, _reset, now) if match is not None else None
        if match is None or at is None:
            continue
        remaining = f"{match[1]}-remaining{match[2]}" if match[1] else f"{match[3]}-{match[4]}-remaining"
        (spent if _is_zero(values.get(remaining, "")) else others).append(at)
    if spent:
        return max(spent)
    return min(others, default=None)


def _is_zero(text: str) -> bool:
    return _NUMBER.fullmatch(text[:_LONGEST_VALUE]) is not None and float(text) == 0


def _read(text: str, read: Callable[[str, float], float | None], now: float) -> float | None:
    if not text or len(text) > _LONGEST_VALUE:
        return None
    try:
        at = read(text, now)
    except (ValueError, TypeError, IndexError, OverflowError):  # dates of no calendar
        return None
    return at if at is not None and math.isfinite(at) else None


def _milliseconds(text: str, now: float) -> float | None:
    return now + float(text) / 1000 if _NUMBER.fullmatch(text) else None


def _retry_after(text: str, now: float) -> float | None:
    if _NUMBER.fullmatch(text):
        return now + float(text)
    return _timestamp(parsedate_to_datetime(text))


def _reset(text: str, now: float) -> float | None:
    """Seconds from now, a duration as in 6m0s or 20ms, seconds or milliseconds since the epoch, or an RFC 3339 time."""
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number < _FIRST_EPOCH:
            return now + number
        return number if number < _FIRST_EPOCH_MS else number / 1000
    if match := _MILLISECONDS.fullmatch(text):
        return now + float(match[1]) / 1000
    if match := _DURATION.fullmatch(text):
        days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
        return now + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return _timestamp(datetime.fromisoformat(text))


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


_RETRY_AFTER = (("retry-after-ms", _milliseconds), ("retry-after", _retry_after))
