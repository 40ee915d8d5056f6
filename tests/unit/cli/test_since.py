"""Since when, as people write it."""

import pytest

from pointsman.cli.since import read_since

NOW = 1_900_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - 90),
        ("15m", NOW - 900),
        (" 12h ", NOW - 43200),
        ("7d", NOW - 604800),
        ("2w", NOW - 1209600),
        ("999999w", 0.0),
        ("2031-12-31", 1956441600.0),
        ("2031-12-31T18:00", 1956441600.0 + 64800),
        ("2031-12-31T18:00+01:00", 1956441600.0 + 61200),
        ("1931-12-31", 0.0),
    ],
)
def test_a_span_or_a_date_is_read(text: str, expected: float) -> None:
    assert read_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "7", "d", "-7d", "1000000s", "2031-13-01"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write 30d"):
        read_since(text, NOW)
