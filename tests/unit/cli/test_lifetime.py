"""How people write how long a token is valid."""

import pytest

from pointsman.cli.lifetime import LONGEST_SECONDS, read_lifetime

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("90m", 5400),
        ("12h", 43200),
        ("30d", 30 * 86400),
        ("2w", 14 * 86400),
        (" 1h ", 3600),
        ("2027-01-16", 16 * 3600),
        ("2027-01-15T09:00", 3600),
        ("2027-01-15T09:00:00Z", 3600),
        ("2027-01-15T10:00+01:00", 3600),
        ("3650d", LONGEST_SECONDS),
    ],
)
def test_a_span_or_a_date_becomes_seconds(text: str, seconds: int) -> None:
    assert read_lifetime(text, NOW) == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0s", "not in the future"),
        ("2027-01-15T08:00", "not in the future"),
        ("2020-01-01", "not in the future"),
        ("3651d", "more than ten years"),
        ("9999-12-31", "more than ten years"),
        ("", "no time span and no date"),
        ("12", "no time span and no date"),
        ("-1h", "no time span and no date"),
        ("1.5h", "no time span and no date"),
        ("tomorrow", "no time span and no date"),
        ("2027-13-01", "no time span and no date"),
    ],
)
def test_what_is_no_time_to_come_is_refused_with_a_next_step(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_lifetime(text, NOW)
    assert "; write 30d" in str(caught.value) or "; leave --expires out" in str(caught.value)
