"""Redaction leaves JSON of the same shape, whatever its pattern matches and wherever that stands, names included."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.policy import Effect
from pointsman.routing.policy import PASSED, Unsearchable
from pointsman.routing.redaction import REDACTED
from pointsman.wire.json_strings import MOST_ESCAPES
from tests.support.policies import decide, rule
from tests.unit.wire.test_json_strings import TEXT, VALUES, written

PATTERNS = [
    ".",
    r"(?s).+",
    r"\\",
    '"',
    "[^a]",
    r"\s",
    "[{}:,]",
    "u00",
    "é",
    r"\x{1F600}",
    r"[\x{80}-\x{10FFFF}]",
    "red",
    r"\n.",
]
"""What matches most, quotes and backslashes, halves of escapes as they are written, and the replacement itself."""
ONCE = ["é", r"\x{1F600}", r"\x{2028}", r"[\x{80}-\x{10FFFF}]+", r"\n"]
"""That do not match the replacement."""
BODY = st.fixed_dictionaries(
    {
        "model": st.just("fast"),
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.just("user"), "content": TEXT | st.lists(TEXT)}), max_size=3
        ),
        "metadata": st.dictionaries(TEXT, VALUES, max_size=3),
        "tools": st.lists(
            st.fixed_dictionaries({"name": TEXT, "description": TEXT, "input_schema": VALUES}), max_size=2
        ),
    }
)
LUCK = st.builds(random.Random, st.integers(0, 2**40))


def shape(value: Any) -> Any:
    """All but its texts; of an object the number of its members, since two names may have become one."""
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value) if isinstance(value, str | float) else value


def read(body: bytes) -> Any:
    """Objects as lists of their values."""
    return json.loads(body, object_pairs_hook=lambda pairs: [value for _, value in pairs])


@pytest.mark.guarantee("P3")
@given(BODY, st.sampled_from(PATTERNS), LUCK)
def test_whatever_a_pattern_matches_the_rest_is_json_of_the_same_shape(
    body: dict[str, Any], pattern: str, luck: random.Random
) -> None:
    spelling = written(body, luck).encode("utf-8", "surrogatepass")
    decision = decide(spelling, rule(effect=Effect.REDACT, pattern=pattern))
    if decision.body is not None:
        assert shape(read(decision.body)) == shape(read(spelling))


@pytest.mark.guarantee("P3")
@given(BODY, st.sampled_from(ONCE), LUCK)
def test_redacting_twice_is_redacting_once(body: dict[str, Any], pattern: str, luck: random.Random) -> None:
    hide = rule(effect=Effect.REDACT, pattern=pattern)
    once = decide(written(body, luck).encode("utf-8", "surrogatepass"), hide).body
    if once is None:
        return
    try:
        assert decide(once, hide).body is None
    except Unsearchable:  # two names have become one
        assert once.count(b'"[redacted]"') > 1


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("character", ["é", "😀", '"', "\\", "\n", "\x7f"])
def test_a_huge_string_full_of_escapes_is_redacted_as_well_as_a_small_one(character: str, more: int) -> None:
    text = (
        "secret"
        + character * (MOST_ESCAPES // len(json.dumps(character)[1:-1].split("\\")[1:] or [1]) + more)
        + "secret"
    )
    body = {"messages": [{"content": text}], "metadata": {text: 1}}
    decision = decide(body, rule(effect=Effect.REDACT, pattern="secret"))
    assert decision.body is not None
    assert REDACTED in decision.body
    assert decide(decision.body, rule(pattern="secret")) == PASSED
