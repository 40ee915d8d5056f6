"""Strings of a JSON text: where they stand, what they say, and parts of them replaced with every other byte kept."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import MalformedRequest
from pointsman.wire.json_strings import (
    MOST_ESCAPES,
    encoded_spans,
    flat_text,
    merged,
    read_document,
    replaced,
    string_spans,
    unescaped,
    utf8,
)

TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\/\n\t\x00\x1f\u2028é😀\ue000a'), max_size=12
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", '"': '\\"', "\\": "\\\\", "/": "\\/"}


def spelled(text: str, luck: random.Random) -> str:
    """A string's inside in one of its many spellings."""
    made = []
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass")
        escaped = "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
        may_be_plain = character not in '"\\' and character >= " "
        choices = [
            escaped,
            *([character] if may_be_plain else []),
            *([_SHORT[character]] if character in _SHORT else []),
        ]
        made.append(luck.choice(choices))
    return "".join(made)


def written(value: object, luck: random.Random) -> str:
    """A JSON text in one of its many spellings."""
    space = luck.choice(["", " ", "\n\t"])
    if isinstance(value, str):
        return f'"{spelled(value, luck)}"'
    if isinstance(value, list):
        return f"[{space}{f',{space}'.join(written(each, luck) for each in value)}{space}]"
    if isinstance(value, dict):
        members = [f"{written(key, luck)}{space}:{space}{written(each, luck)}" for key, each in value.items()]
        return f"{{{space}{','.join(members)}{space}}}"
    return json.dumps(value)


def _all_strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in _all_strings(each)]
    if isinstance(value, dict):
        return [text for key, each in value.items() for text in (key, *_all_strings(each))]
    return []


@given(VALUES, st.randoms(use_true_random=False))
def test_every_spelling_is_read_alike_and_its_strings_stand_in_order(value: object, luck: random.Random) -> None:
    text = written(value, luck).encode()
    document = read_document(text)
    assert document.value == value
    assert document.canonical == read_document(json.dumps(value).encode()).canonical
    strings = [unescaped(text[begin:end]).decode() for begin, end in string_spans(text)]
    assert strings == _all_strings(value)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_flat_text_says_what_every_string_says_on_lines_of_its_own(value: object, luck: random.Random) -> None:
    flat = flat_text(read_document(written(value, luck).encode()).canonical)
    for string in _all_strings(value):
        assert b"\n" + string.encode() + b"\n" in flat


@pytest.mark.guarantee("P3")
@given(TEXT, st.data(), st.randoms(use_true_random=False))
def test_parts_of_a_string_are_replaced_in_any_spelling(text: str, data: st.DataObject, luck: random.Random) -> None:
    encoded, decoded = spelled(text, luck).encode(), text.encode()
    ends = sorted({len(text[:at].encode()) for at in range(len(text) + 1)})
    cuts = st.tuples(st.sampled_from(ends), st.sampled_from(ends)).map(lambda pair: (min(pair), max(pair)))
    spans = merged(data.draw(st.lists(cuts, max_size=3)))
    made = replaced(encoded, merged(encoded_spans(encoded, spans)), b"[x]")
    assert json.loads(b'"' + made + b'"').encode() == replaced(decoded, spans, b"[x]")


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1,"a":2,"b":"\\u003a"}',
        '{"a":1,"\\u0061":2}',
        '{"b":[{"x":{}},{"c":"\\u003a","c":""}]}',
        '[{"a:":":","a:":""}]',
    ],
)
def test_a_member_that_is_named_twice_is_refused_at_any_depth(text: str) -> None:
    with pytest.raises(MalformedRequest, match="twice"):
        read_document(text.encode())


@pytest.mark.parametrize("text", ["", "{", '{"a":}', '{"a":"\\q"}', "nul", '{"a":"\x01"}', "[" * 100_000, "\xff"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(MalformedRequest):
        read_document(text.encode("latin-1"))


def test_half_a_character_is_read_for_others_let_it_pass() -> None:
    document = read_document(b'{"a":"x\\ud83dy"}')
    assert document.value == {"a": "x\ud83dy"}
    assert utf8("x\ud83dy") in flat_text(document.canonical)
    assert encoded_spans(b"x\\ud83dy", [(4, 5)]) == [(7, 8)]


def test_of_a_string_of_too_many_escapes_all_is_replaced() -> None:
    exactly, beyond = b"\\n" * MOST_ESCAPES, b"\\n" * (MOST_ESCAPES + 1)
    assert encoded_spans(exactly, [(1, 2)]) == [(2, 4)]
    assert encoded_spans(beyond, [(1, 2)]) == [(0, len(beyond))]
    assert encoded_spans(beyond, []) == []


def test_spans_are_merged_in_order() -> None:
    assert merged([(5, 7), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 7)]


@given(
    st.lists(st.text(st.sampled_from('ab"\\\n\t\r\b\x01é/ '), max_size=20), max_size=3),
    st.sampled_from([0, 998, 2_000]),
)
def test_few_escapes_and_many_are_undone_alike(texts: list[str], lines: int) -> None:
    said = [*texts, "\n" * lines]
    canonical = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    assert flat_text(canonical, has_lines=True) == b"[" + b",".join(b"\n%b\n" % each.encode() for each in said) + b"]"
