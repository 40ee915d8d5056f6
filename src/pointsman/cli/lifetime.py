"""How long a token is to be valid, as people write it. Pure."""

import re
from datetime import UTC, datetime

_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
LONGEST_SECONDS = 10 * 365 * 86400
"""Ten years. Whoever means forever leaves --expires out."""
_NEXT = "write 30d, 12h, 90m, or a date such as 2031-12-31 or 2031-12-31T18:00+01:00"


def read_lifetime(text: str, now: float) -> int:
    """Seconds from `now` (since the epoch), at least 1, for `30d`, `12h` or an ISO date (UTC unless it says otherwise).

    A day without a time ends the token as that day begins. Raises ValueError with a next step.
    """
    text = text.strip()
    span = _SPAN.fullmatch(text)
    seconds = int(span[1]) * _SECONDS[span[2]] if span else round(_moment(text) - now)
    if seconds <= 0:
        raise ValueError(f"{text!r} is not in the future; {_NEXT}")
    if seconds > LONGEST_SECONDS:
        raise ValueError(f"{text!r} is more than ten years away; leave --expires out for a token that never expires")
    return seconds


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time span and no date; {_NEXT}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
