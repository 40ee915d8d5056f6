"""However an answer is split, the same becomes of it; and nothing that is forbidden gets through."""

import json
import re
from itertools import pairwise

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.policy import Effect, Rule
from pointsman.routing.pattern_length import longest_match
from tests.support.answers import STREAMS, Passed, answer_rule, rules_of, text_of

FORBIDDEN = re.compile("secret", re.I)
PATTERNS = ("secret", r"\bsecret\b", "sec(ret|ure)", "se[a-d]r?et|word", "(?-i)secret", "secret+", "^secret", "😀x")
PIECES = (
    "sec",
    "ret",
    "s",
    "e",
    "c",
    "r",
    "e",
    "t",
    "secret",
    " ",
    "\n",
    "é",
    "\u200b",
    "😀",
    "x",
    "word",
    "\\",
    '"',
    "ure",
)


def patterned(*patterns: str, effect: Effect = Effect.REDACT) -> tuple[Rule, ...]:
    return tuple(answer_rule(f"r{number}", effect, pattern=each) for number, each in enumerate(patterns))


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[str], bytes]:
    dialect = draw(st.sampled_from(sorted(STREAMS)))
    parts = draw(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), max_size=8))
    stream = b"".join(STREAMS[dialect](parts, ascii_only=draw(st.booleans())))
    return dialect, parts, stream.replace(b"\n", b"\r\n") if draw(st.booleans()) else stream


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(bounds)]


RULES = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique=True)
EFFECTS = st.sampled_from((Effect.BLOCK, Effect.REDACT, Effect.FLAG))


@pytest.mark.guarantee("P6")
@settings(max_examples=150, deadline=None)
@given(streams(), RULES, EFFECTS, st.lists(st.integers(0, 10_000), max_size=12))
def test_which_reads_brought_the_bytes_makes_no_difference(
    stream: tuple[str, list[str], bytes], patterns: list[str], effect: Effect, places: list[int]
) -> None:
    dialect, _, data = stream
    rules = rules_of(*patterned(*patterns, effect=effect), dialect=dialect)
    whole = Passed(rules, [data])
    assert Passed(rules, cut(data, places)) == whole
    assert Passed(rules, [data[at : at + 1] for at in range(len(data))]) == whole


@pytest.mark.guarantee("P6")
@settings(max_examples=300, deadline=None)
@given(streams(), RULES)
def test_nothing_forbidden_passes_and_what_passes_can_be_read(
    stream: tuple[str, list[str], bytes], patterns: list[str]
) -> None:
    dialect, parts, data = stream
    made = Passed(rules_of(*patterned("secret", *patterns), dialect=dialect), [data])
    assert not made.told
    said = text_of(made.out)
    assert not FORBIDDEN.search(said)
    assert not FORBIDDEN.search(said.replace("\u200b", ""))
    assert made.out.count(b"data:") == data.count(b"data:")
    if not made.hits:
        assert made.out == data
    blocked = Passed(rules_of(*patterned("secret", effect=Effect.BLOCK), dialect=dialect), [data])
    text = "".join(parts)
    assert bool(blocked.told) == bool(FORBIDDEN.search(text.replace("\u200b", "")))
    assert not FORBIDDEN.search(text_of(blocked.out))


@pytest.mark.guarantee("P6")
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.integers(0, 60), max_size=8), RULES)
def test_the_text_after_redaction_is_that_of_the_whole_text(
    pieces: list[str], places: list[int], patterns: list[str]
) -> None:
    text = "".join(pieces).replace("\u200b", "")
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(bounds)]
    rules = rules_of(*patterned(*patterns))
    one = b'{"choices":[{"message":{"content":%b}}]}' % json.dumps(text).encode()
    whole = Passed(rules, [one], is_stream=False)
    expected = json.loads(whole.out)["choices"][0]["message"]["content"]
    streamed = Passed(rules, STREAMS["openai_chat_completions"](parts))
    assert text_of(streamed.out) == expected
    assert {rule for rule, _ in streamed.places} == {rule for rule, _ in whole.places}


ATOMS = st.sampled_from(
    (
        "a",
        "b",
        ".",
        "[ab]",
        r"\d",
        r"\b",
        "^",
        "a?",
        "b{2}",
        "a{1,3}",
        "(?:ab|b)",
        "(a|bb)",
        "(?i:B)",
        r"\x{61}",
        "[[:alpha:]]",
    )
)
SOME_PATTERNS = st.lists(ATOMS, min_size=1, max_size=4).map("".join).flatmap(
    lambda one: st.sampled_from((one, f"({one}){{2}}", f"{one}|ab", f"(?:{one})?a"))
)  # fmt: skip


@given(SOME_PATTERNS, st.text("ab1\n", max_size=24))
def test_no_match_is_longer_than_its_pattern_says(pattern: str, text: str) -> None:
    longest = longest_match(pattern)
    assert longest is not None
    for match in re2.compile(f"(?im:{pattern})").finditer(text):
        assert len(match.group()) <= longest


@pytest.mark.parametrize(
    "pattern", ["a+", "a*", "(ab){2,}", r"\Qa\E", "a{,3}", "(", "[a", "(?P<n", r"\7", "x{1000}{1000}{9}"]
)
def test_what_has_no_bound_or_is_not_understood_has_none(pattern: str) -> None:
    assert longest_match(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "longest"), [("secret", 6), (r"\bAKIA[0-9A-Z]{16}\b", 20), ("[]a]x|(?P<n>abc)", 3), (r"[\]a]{2}", 2)]
)
def test_what_has_a_bound_says_it(pattern: str, longest: int) -> None:
    assert longest_match(pattern) == longest
