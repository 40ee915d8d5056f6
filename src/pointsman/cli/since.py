"""A moment in the past, as people write it: one spelling for every command."""

import re
import time
from datetime import UTC, datetime

import click

_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SINCE_HELP = "7d, 12h, 90m ago, or a date: 2031-12-31 (UTC)."


def read_since(text: str, now: float) -> float:
    """Seconds since the epoch, for `30d` or `12h` before `now`, or an ISO date (UTC unless it says otherwise).

    Raises ValueError with a next step.
    """
    text = text.strip()
    span = _SPAN.fullmatch(text)
    if span is not None:
        return max(0.0, now - int(span[1]) * _SECONDS[span[2]])
    try:
        moment = datetime.fromisoformat(text)
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text[:40]!r} is no time; write 30d, 12h, 90m, or a date such as 2031-12-31 or 2031-12-31T18:00+01:00"
        ) from None


def moment_given(_: click.Context, __: click.Parameter, value: str | None) -> float:
    """An option's callback: seconds since the epoch, 0 when it was not given."""
    try:
        return read_since(value, time.time()) if value is not None else 0.0
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
