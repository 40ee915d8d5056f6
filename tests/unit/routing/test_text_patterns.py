"""Patterns of RE2: which may be used, and that many are found as each by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.routing.text_patterns import LONGEST_PATTERN, PatternSet, pattern_problem, plain


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "not understood"),
        ("a)(b", "not understood"),
        (r"(a)\1", "not understood"),
        ("(?=a)", "not understood"),
        ("x*", "everything"),
        ("", "everything"),
        (r"\Aa", r"write \^"),
        (r"a\z", r"write \$"),
        (r"\C", r"write \."),
        ("(?-m)^a", r"switches off"),
        ("(?s-im:^a)", r"switches off"),
        ("a\0", "NUL"),
        ("cafe\u0301", "NFKC"),
        ("ｓecret", "NFKC"),
        ("a\u200bb", "NFKC"),
        ("a" * (LONGEST_PATTERN + 1), "longer than"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        assert not pattern_problem(pattern)


@pytest.mark.parametrize(
    "pattern", ["a", "(?-i)A", "^a$", r"\\A", r"\bkey\b", "é+", "a" * LONGEST_PATTERN, r"\x{1F600}"]
)
def test_a_pattern_of_re2_may_be_used(pattern: str) -> None:
    assert pattern_problem(pattern) == ""


def test_case_counts_only_where_the_pattern_says_so() -> None:
    patterns = PatternSet(["secret", "(?-i)AKIA"])
    assert patterns.matching(b"a SECRET akia") == {0}
    assert patterns.matching(b"AKIA") == {1}


def test_a_match_is_told_in_bytes_and_never_cuts_a_character() -> None:
    assert list(PatternSet(["é."]).spans(0, "aé😀b".encode())) == [(1, 7)]


def test_line_ends_are_where_a_text_begins_and_ends() -> None:
    patterns = PatternSet(["^b$"])
    assert patterns.matching(b"a\nb\nc") == {0}
    assert patterns.matching(b"ab") == set()


def test_many_patterns_are_found_though_none_or_all_match() -> None:
    patterns = PatternSet([f"word{number}x" for number in range(1000)])
    assert patterns.matching(b"nothing") == set()
    assert patterns.matching(b"word7x word999x") == {7, 999}


@given(st.text("abcABC\n é", max_size=20))
def test_all_at_once_find_what_each_finds(text: str) -> None:
    patterns = PatternSet(["ab", "^c", "a$", "b.c", "é+", r"\ba"])
    data = text.encode()
    assert patterns.matching(data) == {number for number in range(6) if patterns.matches(number, data)}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("s\0e\x08c\x0e\x1fr\x7fet", "secret"),
        ("s\x80e\x84c\x86\x9fret", "secret"),
        ("\t\n\v\f\r\x85", "\t\n\v\f\r\x85"),
        ("s\ufff9e\ufffbcret", "secret"),
        ("s\U0001bca0e\U0001bca3c\U0001d173r\U0001d17aet", "secret"),
        ("ｓｅｃ\u200bret", "secret"),
        ("se\u00adcret", "secret"),
        ("ﬁ", "fi"),
        ("é", "é"),
        ("a\ud800b", "ab"),
    ],
)
def test_what_looks_alike_is_read_alike(text: str, read: str) -> None:
    assert plain(text) == read
