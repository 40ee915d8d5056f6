"""The properties. Each takes bytes and raises AssertionError, or anything that is no RouterError, when one is broken.

How the bytes are split is derived from the bytes, so that a finding is reproduced by its bytes alone.
"""

import itertools
import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from pointsman.core.errors import MalformedRequest, RouterError
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.routing.pattern import is_door, read_target
from pointsman.wire.chunked import ChunkedDecoder
from pointsman.wire.connect import read_connect
from pointsman.wire.json_model import splice_model
from pointsman.wire.request import Request, RequestHead, RequestReader
from pointsman.wire.sse import EventTail
from tests.fuzz.peers import Pairs, Reading, has_lone_surrogate, read_json

TIGHT = replace(
    DEFAULT_LIMITS,
    connect_head_bytes=96,
    request_line_bytes=48,
    head_bytes=192,
    head_fields=5,
    body_bytes=24,
    chunks=3,
    chunk_extension_bytes=12,
    trailer_fields=2,
    trailer_bytes=40,
)
"""Limits that a short input can reach."""
JSON_TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"model"', b'"model":', b'"mod\\u0065l":', b'"a":', b'"\xc3\xa9":', b'""'),
    *(
        b" ",
        b"\n",
        b"1",
        b"-0",
        b"1.50",
        b"1e999",
        b"123456789012345678901234567890",
        b"true",
        b"null",
        b'"',
        b"\\",
        b"\\u",
    ),
    *(
        b'"model "',
        b'"\\ud83d\\ude00"',
        b'"\\ud800"',
        b"NaN",
        b"\xff",
        b'{"model":1}',
        b'{"a":[{"model":{}}]}',
        b'"\\"model\\":"',
    ),
)
MODEL = b'"real"'
KEY_LIMIT = 50
_BYTE_BY_BYTE = 2048
_BOUNDARY = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)\Z")


def splits(data: bytes) -> Iterator[list[bytes]]:
    """The bytes in one piece, one by one, and cut at random places."""
    yield [data]
    if len(data) <= _BYTE_BY_BYTE:
        yield [data[at : at + 1] for at in range(len(data))]
    places = random.Random(zlib.crc32(data))
    for count in (1, 2, 5):
        edges = [0, *sorted(places.randint(0, len(data)) for _ in range(count)), len(data)]
        yield [data[begin:end] for begin, end in itertools.pairwise(edges)]


def _same_for_every_split(data: bytes, read: Callable[[list[bytes]], object]) -> object:
    results = [read(pieces) for pieces in splits(data)]
    for result in results[1:]:
        assert result == results[0], f"{result!r} when split, {results[0]!r} in one piece"
    return results[0]


def request_head(data: bytes) -> None:
    """Requests are the same however they arrive, and llhttp reads what is admitted the same way."""
    for limits in (DEFAULT_LIMITS, TIGHT):
        _same_for_every_split(data, lambda pieces, limits=limits: _requests(pieces, limits))  # type: ignore[misc]
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(data)
    begin = 0
    try:
        while (event := reader.next_event()) is not None:
            if isinstance(event, Request):
                end = len(data) - reader.buffered
                read_target(event.head)
                _assert_read_alike(event, data[begin:end])
                begin = end
    except RouterError:
        pass


def _requests(pieces: list[bytes], limits: Limits) -> list[object]:
    reader = RequestReader(limits)
    found: list[object] = []
    try:
        for piece in pieces:
            reader.receive(piece)
            while (event := reader.next_event()) is not None:
                if isinstance(event, Request):
                    found.append((*_facts(event.head), event.body))
    except RouterError as error:
        found.append(type(error))
    return found


def _facts(head: RequestHead) -> tuple[object, ...]:
    fields = tuple(head.fields)
    return head.method, head.target, head.minor, fields, head.content_length, head.chunked, head.keep_alive, head.host


def _assert_read_alike(request: Request, data: bytes) -> None:
    head, theirs = request.head, Reading(_without_upgrade(data))
    assert theirs.messages == 1
    assert (theirs.method, theirs.url) == (head.method.encode(), head.target.encode())
    assert theirs.body == request.body
    # A length in its usual spelling is taken out of the fields, and trailers are dropped.
    fields = [(name, value.strip(b" \t")) for name, value in head.fields if name.lower() != b"content-length"]
    fields = [(b"no-upgr", value) if name.lower() == b"upgrade" else (name, value) for name, value in fields]
    assert [field for field in theirs.fields if field[0].lower() != b"content-length"][: len(fields)] == fields
    assert int(theirs.field(b"content-length") or b"0") == head.content_length
    assert theirs.keep_alive == head.keep_alive


def _without_upgrade(data: bytes) -> bytes:
    """The same with another name for Upgrade, behind which llhttp reads no body; we neither upgrade nor pass it on."""
    end = data.index(b"\r\n\r\n")
    return re.sub(rb"(?i)\r\nupgrade:", b"\r\nno-upgr:", data[:end]) + data[end:]


_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: inference.local\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked_body(data: bytes) -> None:
    """A chunked body is the same however it arrives, and llhttp reads it the same way."""
    for limits in (TIGHT, DEFAULT_LIMITS):
        result = _same_for_every_split(data, lambda pieces, limits=limits: _chunked(pieces, limits))  # type: ignore[misc]
    if isinstance(result, tuple):
        body, rest = result
        theirs = Reading(_CHUNKED_HEAD + data[: len(data) - len(rest)])
        assert theirs.messages == 1
        assert theirs.body == body


def _chunked(pieces: list[bytes], limits: Limits) -> object:
    decoder = ChunkedDecoder(limits)
    rest = b""
    try:
        for piece in pieces:
            if decoder.done:
                rest += piece
            else:
                decoder.receive(piece)
    except RouterError as error:
        return type(error)
    return (decoder.body(), decoder.rest() + rest) if decoder.done else "more"


def connect_head(data: bytes) -> None:
    """A tunnel is opened, or not, whatever way its head arrives, and llhttp reads an accepted one the same way."""
    # As by default, no line is too long for a head that is not.
    tight = replace(TIGHT, request_line_bytes=TIGHT.connect_head_bytes)
    _same_for_every_split(data, lambda pieces: _connect(pieces, tight))
    result = _same_for_every_split(data, lambda pieces: _connect(pieces, DEFAULT_LIMITS))
    if isinstance(result, tuple) and is_door(result[0], result[1]):
        theirs = Reading(data[: len(data) - len(result[2])])
        assert theirs.messages == 1
        assert (theirs.method, theirs.url) == (b"CONNECT", f"{result[0]}:{result[1]}".encode())


def _connect(pieces: list[bytes], limits: Limits) -> object:
    buffer = b""
    try:
        for at, piece in enumerate(pieces):
            buffer += piece
            connect = read_connect(buffer, limits)
            if connect is not None:
                host, port, rest = connect
                return host, port, rest + b"".join(pieces[at + 1 :])
    except RouterError as error:
        return type(error)
    return "more"


def json_splice(data: bytes) -> None:
    """A body is pinned with nothing but its model changed, or refused, or no reader could take it for an object."""
    try:
        spliced = b"".join(splice_model(data, MODEL, KEY_LIMIT))
    except MalformedRequest:
        assert not _must_be_spliced(data)
        return
    before = _lenient_readings(data)
    if not before:
        assert spliced == data
        return
    assert len(before) == 1
    assert isinstance(before[0], Pairs)
    places = [place for place, (name, _) in enumerate(before[0]) if name == "model"]
    assert len(places) < 2
    after = read_json(spliced.decode("utf-8"))
    if places:
        assert after == Pairs([(name, "real" if name == "model" else value) for name, value in before[0]])
    else:
        assert after == Pairs([("model", "real"), *before[0]])
    _assert_one_place_changed(data, spliced)


def json_tokens(data: bytes) -> None:
    """The same property for texts put together of JSON's own pieces: one for each byte."""
    json_splice(b"".join(JSON_TOKENS[byte % len(JSON_TOKENS)] for byte in data))


def _assert_one_place_changed(data: bytes, spliced: bytes) -> None:
    """Some cut before and behind one occurrence of the new value leaves the old text's own beginning and end."""
    for match in re.finditer(re.escape(MODEL), spliced):
        begin, tail = spliced[: match.start()], spliced[match.end() :]
        if data.startswith(begin) and data.endswith(tail) and len(begin) + len(tail) < len(data):
            return
        if begin.endswith(b'"model":') and data == begin.removesuffix(b'"model":') + tail.removeprefix(b","):
            return
    raise AssertionError(f"more than the model's value changed: {spliced!r}")


def _must_be_spliced(data: bytes) -> bool:
    """Whether the body is a sound UTF-8 object that nothing of ours may refuse."""
    try:
        value = read_json(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, Pairs) or has_lone_surrogate(value) or len(value) > KEY_LIMIT:
        return False
    return [name for name, _ in value].count("model") < 2


def _lenient_readings(data: bytes) -> list[object]:
    """Objects and arrays that a lenient reader finds in the body, in whatever Unicode encoding."""
    found: list[object] = []
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        try:
            value = read_json(data.decode(encoding).strip("\ufeff\0 \t\r\n"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list) and value not in found:
            found.append(value)
    return found


def event_tail(data: bytes) -> None:
    """Events pass whole, in order, complete; what is held back stays within its bound."""
    for limit in (DEFAULT_LIMITS.event_tail_bytes, 8):
        for pieces in splits(data):
            tail = EventTail(limit)
            taken, passed = b"", b""
            for piece in pieces:
                taken += piece
                passed += tail.receive(piece)
                assert taken.startswith(passed)
                held = taken[len(passed) :]
                assert len(held) <= limit
                at_boundary = not passed or _BOUNDARY.search(passed) is not None
                assert at_boundary or tail.inside_event
                assert not (tail.inside_event and held)
                if limit > len(data):
                    assert not tail.inside_event
                    # Empty lines between events, and the LF of a CRLF whose CR ended one, may wait for the next.
                    assert not _BOUNDARY.search(taken) or not held.strip(b"\r\n")
            assert passed + tail.finish() == data


PROPERTIES: dict[str, Callable[[bytes], None]] = {
    "request": request_head,
    "chunked": chunked_body,
    "connect": connect_head,
    "json": json_splice,
    "json-tokens": json_tokens,
    "events": event_tail,
}
