"""How it is written what a route takes out of conversations."""

import pytest

from pointsman.core.context_options import (
    LEAST_TOKENS,
    LONGEST_CONTEXT,
    MOST_TOKENS,
    ContextOptions,
    read_context,
    written_context,
)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", None),
        ("  ", None),
        ("none", None),
        ("drop-duplicates", ContextOptions(drop_duplicates=True)),
        ("drop-unused-tools", ContextOptions(drop_unused_tools=True)),
        (f"most-tokens={LEAST_TOKENS}", ContextOptions(most_tokens=LEAST_TOKENS)),
        (f"most-tokens={MOST_TOKENS}", ContextOptions(most_tokens=MOST_TOKENS)),
        (" most-tokens=60000 , drop-unused-tools,drop-duplicates", ContextOptions(True, True, 60_000)),
    ],
)
def test_options_are_read_and_written_again(text: str, options: ContextOptions | None) -> None:
    assert read_context(text) == options
    assert read_context(written_context(options)) == options


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drop-everything", "'drop-everything' is none of its options"),
        ("drop-duplicates=yes", "none of its options"),
        ("most-tokens", "none of its options"),
        ("drop-duplicates,", "none of its options"),
        ("none,drop-duplicates", "none of its options"),
        ("drop-duplicates,drop-duplicates", "twice"),
        ("most-tokens=", "whole number"),
        ("most-tokens=1e5", "whole number"),
        ("most-tokens=06000", "whole number"),
        ("most-tokens=٦٠٠٠", "whole number"),
        (f"most-tokens={LEAST_TOKENS - 1}", f"between {LEAST_TOKENS} and {MOST_TOKENS}"),
        (f"most-tokens={MOST_TOKENS + 1}", f"between {LEAST_TOKENS} and {MOST_TOKENS}"),
        (" " * LONGEST_CONTEXT + "x", "longer"),
    ],
)
def test_what_is_no_option_is_told_with_those_that_are(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_context(text)
