"""A text that comes in parts is searched as if it had come whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.routing.answer_search import MOST_WINDOW, Found, TextSearch, certain
from pointsman.routing.pattern_length import longest_match
from pointsman.routing.text_patterns import PatternSet

PATTERNS = ("ab", "aba", "abab", r"\bab\b", "^ab", "ab$", "a.b", r"\Bab", "(a|ab)b?", "b{1,3}a", "é", "ab*", "a+", "😀")
SETS = {pattern: PatternSet([pattern]) for pattern in PATTERNS}
PIECES = ("a", "b", "ab", " ", "\n", "ａ", "e\u0301", "\u200b", "é", "😀", "\ud83d", "\ude00", "ﬁ", "\u1100", "\u1161")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def found_in(pattern: str, parts: list[str]) -> list[Found]:
    search = TextSearch(SETS[pattern], {0}, longest_match(pattern))
    found = [each for part in parts for each in search.add(part)]
    return sorted({*found, *search.settle(is_end=True)})


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATTERNS), TEXTS, st.data())
def test_parts_make_no_difference(pattern: str, text: str, data: st.DataObject) -> None:
    whole = found_in(pattern, [text])
    assert found_in(pattern, list(text)) == whole
    at = data.draw(st.integers(0, len(text)))
    assert found_in(pattern, [text[:at], text[at:]]) == whole


@pytest.mark.parametrize(
    ("pattern", "text", "places"),
    [
        (r"\bab\b", "xab and more", []),
        ("^ab", "xab and more", []),
        ("ab$", "abx and more ab", [(13, 15)]),
        ("abab", "ababab and more", [(0, 4)]),
        (r"\bab\b", "ｘａb and more", []),
        ("ab", "xxxa\u200b\u200b\u200b\u200bb and more", [(3, 9)]),
        ("é", "xe\u0301x and more", [(1, 3)]),
        ("a+", "xaaax", [(1, 4)]),
        ("aba", "ababａ xx and more", [(0, 3)]),
    ],
)
def test_where_it_is_found_is_told_exactly(pattern: str, text: str, places: list[tuple[int, int]]) -> None:
    assert [(begin, end) for _, begin, end in found_in(pattern, list(text))] == places


def test_what_is_certain_ends_before_the_longest_match() -> None:
    assert certain("abcdefgh", 3) == 4
    assert [certain("abcdefgh"[:length], 3) for length in (3, 4, 5)] == [0, 0, 1]
    assert certain("abécdefgh", 3) == 5
    assert certain("abécdef\u0301g\u200bh", 3) == 5


@pytest.mark.parametrize(("longest", "holds"), [(1_024, False), (1_025, True)])
def test_a_match_that_may_be_too_long_is_looked_for_at_the_end(longest: int, holds: bool) -> None:
    search = TextSearch(SETS["ab"], {0}, longest)
    search.add("ab" * 2_000)
    assert (search.base == 0) is holds
    assert len(search.settle(is_end=True)) == (2_000 if holds else 512)


@pytest.mark.parametrize("more", [0, 1])
def test_a_pattern_that_may_match_more_than_the_window_is_searched_at_the_end_of_the_text(more: int) -> None:
    search = TextSearch(PatternSet(["x"]), {0}, MOST_WINDOW + more)
    assert bool(search.add("x" + "a" * 4 * MOST_WINDOW)) is not bool(more)
    assert bool(search.settle(is_end=True)) is bool(more)
