"""Replacing the top-level `model` of a JSON request, every other byte untouched (DESIGN 6.1).

The body is validated by msgspec, which skips values at C speed and keeps their bytes; the place of the value is
found by lengths, never by a walk over nested structure in Python, so that no body of 10 MiB stalls the loop.
"""

import re
from typing import TypeVar

import msgspec

from pointsman.core.errors import MalformedRequest
from pointsman.core.limits import DEFAULT_LIMITS

_SPACE = re.compile(rb"[ \t\r\n]*")
# Possessive: a key of 10 MiB of escapes would otherwise leave 5 million places to come back to, and 600 MiB.
_MEMBER = re.compile(rb'[ \t\r\n]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t\r\n]*+:[ \t\r\n]*+', re.S)
_KEY = b'"model"'
_SMALL = 32 * 1024
"""Beyond it, searching the text for the key costs more than reading all keys."""
_WINDOW = 64 * 1024
_REST_COUNTS = {
    "utf-8": "ignore",
    "utf-16-le": "replace",
    "utf-16-be": "replace",
    "utf-32-le": "replace",
    "utf-32-be": "replace",
}
"""The encodings in which a body may be read, and whether what does not decode counts as a character."""
_BLANKS = "".join(
    map(chr, (*range(0x21), *range(0x7F, 0xA1), 0x1680, *range(0x2000, 0x2010), *range(0x2028, 0x2030)))
) + ("\u205f\u2060\u3000\ufeff\ufffe")
"""Everything that some reader takes for space, and byte order marks of either order."""
_NOT_AN_OBJECT = "request body is not a valid JSON object in UTF-8"


class _Key:
    """A key that equals only itself, so that a dict keeps duplicates, in order."""

    __slots__ = ()


class _ModelOnly(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"")


_model_decoder = msgspec.json.Decoder(_ModelOnly)
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_T = TypeVar("_T")


def _decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        if not body.isascii():
            body.decode("utf-8")  # msgspec does not check strings that it skips
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # msgspec wraps what a hook raises
        cause = error.__cause__
        raise cause if isinstance(cause, MalformedRequest) else MalformedRequest(_NOT_AN_OBJECT) from None


class _KeyReader:
    """Decodes the top level of an object; collects the names as msgspec meets them. For one body at a time."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=self._key)
        self._names: list[str] = []
        self._limit = 0

    def _key(self, _: type, name: str) -> _Key:
        self._names.append(name)
        if len(self._names) > self._limit:
            raise MalformedRequest("request body has too many top-level keys")
        return _Key()

    def read(self, body: bytes, key_limit: int) -> tuple[list[str], list[int]]:
        """Decoded names of the top-level keys and the lengths of their values, in the order of the text."""
        names = self._names = []
        self._limit = key_limit
        values = _decode(self._decoder, body).values()
        return names, [memoryview(value).nbytes for value in values]


_idle_readers: list[_KeyReader] = []
"""Building a decoder costs as much as using it. Bodies that are read at once, on several threads, have one each."""


def _read_keys(body: bytes, key_limit: int) -> tuple[list[str], list[int]]:
    """As `_KeyReader.read`, on any thread."""
    try:
        reader = _idle_readers.pop()
    except IndexError:
        reader = _KeyReader()
    try:
        return reader.read(body, key_limit)
    finally:
        _idle_readers.append(reader)


Pieces = tuple[bytes | memoryview, ...]
"""A body in pieces; the large ones are views, since a copy of 200 KiB costs as much as a small request."""


Place = tuple[int, int]
"""Where a body's `model` value begins and ends. `(at, at)`: it has none, and a member is to be inserted there."""
UNCHANGED: Place = (0, 0)
"""Of a body that is no JSON."""


def splice_model(body: bytes, model: bytes, key_limit: int) -> Pieces:
    """The body, in pieces, with its top-level `model` value replaced by `model` (JSON bytes), or inserted.

    A body that is not JSON is returned as it is: see `is_json_like`. Raises MalformedRequest as `find_model`.
    """
    return with_model(body, find_model(body, key_limit), model)


def find_model(body: bytes, key_limit: int) -> Place:
    """Where a model belongs. A body of 10 MiB takes up to a tenth of a second: find it once.

    Raises MalformedRequest for a body that looks like JSON and is not a UTF-8 object without a byte order mark, has two
    `model` keys, escaped spellings included, or more than `key_limit` top-level keys.
    """
    start = _end_of_space(body)
    if body[start : start + 1] != b"{":
        if is_json_like(body):
            raise MalformedRequest(_NOT_AN_OBJECT)
        return UNCHANGED
    begin, end = _find_value(body, start, key_limit)
    return (begin, end) if begin else (start + 1, start + 1)


def with_model(body: bytes, place: Place, model: bytes) -> Pieces:
    """The body, in pieces, with `model` (JSON bytes) at the place that was found in it."""
    begin, end = place
    if not begin:
        return (body,)
    if begin < end:
        return body[:begin], model, memoryview(body)[end:]
    empty = body[_end_of_space(body, begin)] == ord("}")
    return body[:begin], b'"model":', model, b"" if empty else b",", memoryview(body)[begin:]


def read_model(body: bytes) -> str | None:
    """The top-level `model` of a body; None when there is none, or the body is not JSON.

    Raises MalformedRequest for what `find_model` refuses, but for repeated keys, and for a model that is no string.
    """
    start = _end_of_space(body)
    if body[start : start + 1] != b"{":
        if is_json_like(body):
            raise MalformedRequest(_NOT_AN_OBJECT)
        return None
    value = _decode(_model_decoder, body).model
    if not memoryview(value).nbytes:
        return None
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        raise MalformedRequest("model is not a string") from None


def members(body: bytes, key_limit: int) -> list[tuple[str, Place]]:
    """Decoded names of an object's keys and the places of their values, in the order of the text; repeated ones too.

    Raises MalformedRequest for what is no object, and for too many or too long keys.
    """
    names, lengths = _read_keys(body, key_limit)
    if sum(map(len, names)) > DEFAULT_LIMITS.json_key_characters:
        raise MalformedRequest("request body has too long top-level keys")
    found = []
    at = _end_of_space(body) + 1
    for name, length in zip(names, lengths, strict=True):
        begin = _value_start(body, at)
        found.append((name, (begin, begin + length)))
        at = _end_of_space(body, begin + length) + 1
    return found


def elements(body: bytes, place: Place) -> list[Place]:
    """Where the elements of an array begin and end; the array's own place is known. Raises MalformedRequest.

    It makes an object of each: whoever calls it has bounded their number.
    """
    begin, end = place
    try:
        values = _array_decoder.decode(memoryview(body)[begin:end])
    except (msgspec.DecodeError, RecursionError):
        raise MalformedRequest("not an array") from None
    found = []
    at = begin + 1
    for value in values:
        start = _end_of_space(body, at)
        found.append((start, start + memoryview(value).nbytes))
        at = _end_of_space(body, found[-1][1]) + 1
    return found


def is_json_like(body: bytes) -> bool:
    """Whether some reader could take the body for a JSON object or array.

    In any of UTF-8, UTF-16 and UTF-32, its first character that is neither space, control character nor byte order
    mark is a brace or a bracket. Undecodable bytes are passed over, as a lenient reader would. A body that shows no
    character in its first 64 KiB counts as well: looking on would cost a hostile client nothing and us a second.
    """
    window = body[:_WINDOW]
    # Without a NUL there is no brace in UTF-16 or UTF-32, and decoding text as if it were costs milliseconds.
    for encoding in _REST_COUNTS if b"\0" in body else ("utf-8",):
        text = window.decode(encoding, "ignore").lstrip(_BLANKS)
        if text[:1] in ("{", "["):
            return True
        # In UTF-32 hardly any text decodes; a body in which nothing does is not one that shows no character.
        if not text and len(body) > _WINDOW and not window.decode(encoding, _REST_COUNTS[encoding]).lstrip(_BLANKS):
            return True
    return False


def _end_of_space(body: bytes, at: int = 0) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _find_value(body: bytes, start: int, key_limit: int) -> tuple[int, int]:
    """Span of the top-level model's value; (0, 0) when there is none."""
    if len(body) <= _SMALL and body.count(_KEY) == 1 and body.count(b":") <= key_limit and b"\\u00" not in body:
        # Only one place can be the key, so it needs no names and lengths of the others. A third of the time.
        value = memoryview(_decode(_model_decoder, body).model).nbytes
        begin = _value_start(body, body.find(_KEY)) if value else 0
        return begin, begin + value
    names, lengths = _read_keys(body, key_limit)
    if sum(map(len, names)) > DEFAULT_LIMITS.json_key_characters:
        # They are walked over again below: 10 MiB of escapes would take a tenth of a second.
        raise MalformedRequest("request body has too long top-level keys")
    if "model" not in names:
        return 0, 0
    place = names.index("model")
    if "model" in names[place + 1 :]:
        raise MalformedRequest("request body has two model keys")
    at = start + 1
    for length in lengths[:place]:
        at = _end_of_space(body, _value_start(body, at) + length) + 1
    begin = _value_start(body, at)
    return begin, begin + lengths[place]


def _value_start(body: bytes, at: int) -> int:
    """Start of the value whose key begins behind `at`; msgspec has read the text already, so it is well-formed."""
    match = _MEMBER.match(body, at)
    if match is None:
        raise MalformedRequest(_NOT_AN_OBJECT)
    return match.end()
