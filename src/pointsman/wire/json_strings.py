"""All strings of a JSON text at once, where they stand, and replacing parts of them, every other byte untouched."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from pointsman.core.errors import MalformedRequest

Span = tuple[int, int]

_LONG = 4096
MOST_ESCAPES = 50_000
"""In a string of which parts are replaced: each costs half a microsecond."""
_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"', re.S)
# A pair of surrogates is one character.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.S)
_CONTROL = re.compile(rb"\\u00(..)|\\b|\\f")
_BACKSLASH, _QUOTE = b"\xff", b"\xfe"  # bytes that are in no UTF-8
_REST = bytes.maketrans(b'"' + _BACKSLASH + _QUOTE, b'\n\\"')


class Document:
    """A JSON text that was read whole, and names no member twice."""

    __slots__ = ("canonical", "value")

    def __init__(self, value: Any, canonical: bytes) -> None:
        self.value = value
        """Dicts, lists, texts, numbers. Texts may hold lone surrogates."""
        self.canonical = canonical
        """The same, each character spelled in one way only."""


def read_document(text: bytes) -> Document:
    """Raises MalformedRequest for what is no JSON in UTF-8, is nested too deeply, or names a member twice anywhere."""
    try:
        value = msgspec.json.decode(text)
        canonical = msgspec.json.encode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _read_slowly(text)  # what it cannot read may be half a character, which others let pass
    # Whatever was named twice is there once, so that there are fewer colons; unless one can be spelled otherwise.
    if canonical == text:  # so most clients spell it
        return Document(value, canonical)
    if _colons(canonical) == _colons(text) and b"\\u003" not in text:
        return Document(value, canonical)
    return _read_slowly(text)


def _colons(text: bytes) -> int:
    return len(text.split(b":")) if len(text) > _LONG else text.count(b":")  # `split` skips text, `count` walks


def _read_slowly(text: bytes) -> Document:
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
        canonical = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, MalformedRequest) else MalformedRequest("the body cannot be read") from None
    return Document(value, canonical)


def _without_duplicates(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) != len(members):
        raise MalformedRequest("request body names a member of an object twice")
    return made


def flat_text(canonical: bytes, *, has_lines: bool = True) -> bytes:
    """All that the strings say, and what stands between them: for searching only.

    With `has_lines` each string is on lines of its own, else it may be in quotes.
    """
    if b"\\" not in canonical:
        return canonical.replace(b'"', b"\n") if has_lines else canonical
    text = _with_few_escapes(canonical)
    if text is not None:
        return text
    holds_some = b"\\\\" in canonical or b'\\"' in canonical
    text = canonical.replace(b"\\\\", _BACKSLASH).replace(b'\\"', _QUOTE) if holds_some else canonical
    text = text.replace(b"\\n", b"\n")  # the most frequent by far
    if b"\\" in text:
        text = text.replace(b"\\t", b"\t").replace(b"\\r", b"\r")
        if b"\\" in text:
            text = _CONTROL.sub(_control, text)
    if holds_some:
        return text.translate(_REST)
    return text.replace(b'"', b"\n") if has_lines else text


def _with_few_escapes(canonical: bytes) -> bytes | None:
    """The same for a text with few escapes, and those the frequent ones: a third of the time."""
    first, *pieces = canonical.replace(b'"', b"\n").split(b"\\", _FEW_ESCAPES)
    if len(pieces) >= _FEW_ESCAPES:
        return None
    made = [first]
    rest = iter(pieces)
    for piece in rest:
        if not piece:  # a backslash, and what follows stands for itself
            made += (b"\\", next(rest, b""))
            continue
        said = _SAID.get(piece[0])
        if said is None:
            return None
        made += (said, piece[1:])
    return b"".join(made)


_FEW_ESCAPES = 1_000
_SAID = {ord("n"): b"\n", ord("\n"): b'"', ord("t"): b"\t", ord("r"): b"\r"}
"""Of what follows a backslash where quotes have become line ends."""


def may_hold_controls(canonical: bytes) -> bool:
    """Whether a string may hold control characters beside line ends and tabs: told sooner than by looking for them."""
    if b"\x7f" in canonical:
        return True
    return b"\\" in canonical and (b"\\u00" in canonical or b"\\b" in canonical)


def _control(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 16),)) if match[1] else {b"\\b": b"\b", b"\\f": b"\f"}[match[0]]


def string_spans(text: bytes) -> list[Span]:
    """Where the strings of a well-formed text stand, names of members included, in order; without their quotes."""
    return [match.span(1) for match in _STRING.finditer(text)]


def utf8(text: str) -> bytes:
    """As it is searched; half a character takes three bytes."""
    return text.encode("utf-8", "surrogatepass")


def encoded_spans(encoded: bytes, spans: Iterable[Span]) -> list[Span]:
    """Where parts of a string, given in bytes of UTF-8, stand in it as it is spelled in JSON.

    In a string of very many escapes parts are not told apart: all of it stands for them.
    """
    spans = list(spans)
    if b"\\" not in encoded or not spans:
        return spans
    if encoded.count(b"\\") > MOST_ESCAPES:
        return [(0, len(encoded))]
    escapes = [
        (match.start(), match.end() - match.start(), _decoded_length(match[0])) for match in _ESCAPE.finditer(encoded)
    ]
    gained = [0, *accumulate(length - decoded for _, length, decoded in escapes)]
    begins = [start - gained[number] for number, (start, _, _) in enumerate(escapes)]

    def place(at: int) -> int:
        number = bisect_right(begins, at) - 1
        if number < 0:
            return at
        start, length, decoded = escapes[number]
        inside = at - begins[number]
        return start if inside == 0 else start + length + inside - decoded

    return [(place(begin), place(end)) for begin, end in spans]


def unescaped(text: bytes) -> bytes:
    """A text with all of JSON's escapes in it undone, wherever they stand."""
    if b"\\" not in text:
        return text
    text = text.replace(b"\\\\", _BACKSLASH)
    for escape, said in _FREQUENT:
        text = text.replace(escape, said)
    if b"\\" in text:
        text = _ESCAPE.sub(_undo, text)
    return text.replace(_BACKSLASH, b"\\")


_FREQUENT = ((b"\\n", b"\n"), (b'\\"', b'"'), (b"\\t", b"\t"))
"""Undone at once: the others take a third of a microsecond each."""
_SHORT = {b"r": b"\r", b"b": b"\b", b"f": b"\f"}


def _undo(match: re.Match[bytes]) -> bytes:
    escape = match[0]
    if len(escape) == 2:
        return _SHORT.get(escape[1:], escape[1:])
    if len(escape) == 6:
        return utf8(chr(int(escape[2:], 16)))
    return utf8(chr(0x10000 + ((int(escape[2:6], 16) & 0x3FF) << 10) + (int(escape[8:], 16) & 0x3FF)))


def _decoded_length(escape: bytes) -> int:
    if len(escape) == 2:
        return 1
    if len(escape) == 12:
        return 4
    code = int(escape[2:], 16)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sorted, those that overlap or touch as one."""
    made: list[Span] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((begin, end))
    return made


def replaced(text: bytes, spans: Sequence[Span], by: bytes) -> bytes:
    """The text with something else in place of each span; they are sorted and apart."""
    pieces, at = [], 0
    for begin, end in spans:
        pieces += [text[at:begin], by]
        at = end
    pieces.append(text[at:])
    return b"".join(pieces)
