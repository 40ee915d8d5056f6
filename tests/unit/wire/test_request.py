"""The request grammar: what is refused, what is accepted, and that splitting the bytes changes nothing."""

import itertools
from dataclasses import replace

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import (
    BodyTooLarge,
    EncodedBody,
    ExpectationFailed,
    HeadTooLarge,
    MalformedRequest,
    RouterError,
    TargetTooLong,
)
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.wire.request import Request, RequestHead, RequestReader

HOST = b"Host: inference.local\r\n"


def post(fields: bytes = b"", body: bytes = b"", line: bytes = b"POST /v1/chat/completions HTTP/1.1") -> bytes:
    return line + b"\r\n" + HOST + fields + b"\r\n" + body


def read_all(data: bytes, limits: Limits = DEFAULT_LIMITS, cuts: tuple[int, ...] = ()) -> list[object]:
    """What a reader makes of the bytes: requests, as comparable tuples, then the class of an error if one ends it."""
    reader = RequestReader(limits)
    found: list[object] = []
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    try:
        for begin, end in itertools.pairwise(edges):
            reader.receive(data[begin:end])
            while (event := reader.next_event()) is not None:
                if isinstance(event, Request):
                    head = event.head
                    found.append((head.method, head.target, head.minor, tuple(head.fields), event.body))
    except RouterError as error:
        found.append(type(error))
    return found


def only_request(data: bytes) -> Request:
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(data)
    event = reader.next_event()
    if isinstance(event, RequestHead):
        event = reader.next_event()
    assert isinstance(event, Request)
    return event


MALFORMED = {
    "length and chunked together": post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunked and length together": post(b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", b"0\r\n\r\n"),
    "two equal lengths": post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"),
    "a list of lengths": post(b"Content-Length: 5, 5\r\n", b"hello"),
    "a signed length": post(b"Content-Length: +5\r\n", b"hello"),
    "a negative zero length": post(b"Content-Length: -0\r\n"),
    "an underscored length": post(b"Content-Length: 5_0\r\n"),
    "a hexadecimal length": post(b"Content-Length: 0x5\r\n"),
    "an empty length": post(b"Content-Length: \r\n"),
    "an Arabic digit": post("Content-Length: ٥\r\n".encode()),
    "a length of twenty digits": post(b"Content-Length: 00000000000000000005\r\n"),
    "a comma before chunked": post(b"Transfer-Encoding: ,chunked\r\n", b"0\r\n\r\n"),
    "chunked and gzip": post(b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n"),
    "gzip only": post(b"Transfer-Encoding: gzip\r\n"),
    "identity": post(b"Transfer-Encoding: identity\r\n"),
    "a vertical tab before chunked": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "a parameter of chunked": post(b"Transfer-Encoding: chunked;a=b\r\n", b"0\r\n\r\n"),
    "chunked twice": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunked on HTTP/1.0": post(b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"POST / HTTP/1.0"),
    "a folded field": post(b"X-A: 1\r\n 2\r\n"),
    "a bare line feed in a field": post(b"X-A: 1\nX-B: 2\r\n"),
    "a bare carriage return in a field": post(b"X-A: 1\rX-B: 2\r\n"),
    "a NUL in a value": post(b"X-A: 1\x002\r\n"),
    "a bell in a value": post(b"X-A: \x07\r\n"),
    "a delete in a value": post(b"X-A: \x7f\r\n"),
    "a space before the colon": post(b"X-A : 1\r\n"),
    "an empty name": post(b": 1\r\n"),
    "a name with a space": post(b"X A: 1\r\n"),
    "a name with a bracket": post(b"X[A]: 1\r\n"),
    "a line without a colon": post(b"X-A\r\n"),
    "a space before the first field": b"GET / HTTP/1.1\r\n Host: inference.local\r\n\r\n",
    "no Host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "two Hosts": post(b"Host: inference.local\r\n"),
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: inference.local/x\r\n\r\n",
    "a Host with user info": b"GET / HTTP/1.1\r\nHost: a@inference.local\r\n\r\n",
    "an empty Host": b"GET / HTTP/1.1\r\nHost: \r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab": b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a trailing space": b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "lower-case http": b"GET / http/1.1\r\n" + HOST + b"\r\n",
    "a non-ASCII target": "GET /ü HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "an empty line first": b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: inference.local\n\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a chunk size with 0x": post(b"Transfer-Encoding: chunked\r\n", b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a chunk size with an underscore": post(b"Transfer-Encoding: chunked\r\n", b"5_0\r\n"),
    "a signed chunk size": post(b"Transfer-Encoding: chunked\r\n", b"+5\r\nhello\r\n0\r\n\r\n"),
    "an empty chunk size": post(b"Transfer-Encoding: chunked\r\n", b"\r\nhello\r\n0\r\n\r\n"),
    "a chunk size of seventeen digits": post(b"Transfer-Encoding: chunked\r\n", b"00000000000000005\r\nhello"),
    "a space behind the chunk size": post(b"Transfer-Encoding: chunked\r\n", b"5 \r\nhello\r\n0\r\n\r\n"),
    "a bare semicolon": post(b"Transfer-Encoding: chunked\r\n", b"5;\r\nhello\r\n0\r\n\r\n"),
    "a line feed in an extension": post(b"Transfer-Encoding: chunked\r\n", b"5;a\n\r\nhello\r\n0\r\n\r\n"),
    "a bare line feed behind the size": post(b"Transfer-Encoding: chunked\r\n", b"5\nhello\r\n0\r\n\r\n"),
    "data longer than its size": post(b"Transfer-Encoding: chunked\r\n", b"5\r\nhelloX\r\n0\r\n\r\n"),
    "a bare line feed behind the data": post(b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\n0\r\n\r\n"),
    "a byte behind the last chunk": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nX\r\n\r\n"),
    "a length in the trailers": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nContent-Length: 5\r\n\r\n"),
    "a coding in the trailers": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a Host in the trailers": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nHost: other\r\n\r\n"),
    "a key in the trailers": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nAuthorization: Bearer x\r\n\r\n"),
    "a folded trailer": post(b"Transfer-Encoding: chunked\r\n", b"0\r\nA: 1\r\n 2\r\n\r\n"),
}


@pytest.mark.guarantee("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F10", "F12")
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests_are_refused(data: bytes) -> None:
    assert read_all(data) == [MalformedRequest]


@pytest.mark.guarantee("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F10", "F12")
@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_refused_byte_by_byte_as_well(data: bytes) -> None:
    assert read_all(data, cuts=tuple(range(len(data)))) == [MalformedRequest]


def test_a_request_with_a_length_is_read_whole() -> None:
    request = only_request(post(b"Content-Length: 5\r\n", b"hello"))
    assert (request.head.method, request.head.target, request.body) == ("POST", "/v1/chat/completions", b"hello")


def test_names_keep_their_spelling_and_values_lose_only_the_space_before_them() -> None:
    request = only_request(post(b"X-MiXed:  a  b \r\n"))
    assert request.head.fields[-1] == (b"X-MiXed", b"a  b ")


@pytest.mark.guarantee("F5", "F7")
def test_a_chunked_body_is_decoded_and_its_extensions_and_trailers_are_dropped() -> None:
    body = b'5;a=b;c="d;\\"e"\r\nhello\r\n006;x\r\n world\r\n0\r\nX-T: 1\r\n\r\n'
    request = only_request(post(b"Transfer-Encoding: Chunked\r\n", body))
    assert request.body == b"hello world"
    assert all(name != b"X-T" for name, _ in request.head.fields)


@pytest.mark.parametrize(
    ("line", "fields", "expected"),
    [
        (b"GET / HTTP/1.1", b"", True),
        (b"GET / HTTP/1.1", b"Connection: close\r\n", False),
        (b"GET / HTTP/1.1", b"Connection: Keep-Alive, Close\r\n", False),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_connections_persist_as_the_version_and_the_client_say(line: bytes, fields: bytes, expected: bool) -> None:
    assert only_request(post(fields, line=line)).head.keep_alive is expected


def test_http_1_0_needs_no_host() -> None:
    assert only_request(b"GET /v1/models HTTP/1.0\r\n\r\n").head.host == b""


@pytest.mark.guarantee("F16")
def test_expect_continue_is_noted_and_other_expectations_are_refused() -> None:
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(post(b"Expect: 100-Continue\r\nContent-Length: 1\r\n"))
    head = reader.next_event()
    assert isinstance(head, RequestHead)
    assert head.expects_continue
    assert read_all(post(b"Expect: something\r\n")) == [ExpectationFailed]


@pytest.mark.guarantee("J7")
def test_an_encoded_body_is_refused_and_identity_is_not() -> None:
    assert read_all(post(b"Content-Encoding: gzip\r\n")) == [EncodedBody]
    assert len(read_all(post(b"Content-Encoding: identity\r\n"))) == 1


@pytest.mark.limit("request_line_bytes")
@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("size", [8192, 8193])
def test_a_request_line_may_have_8_kib(size: int) -> None:
    line = b"GET /" + b"a" * (size - len(b"GET / HTTP/1.1")) + b" HTTP/1.1"
    expected = [TargetTooLong] if size > 8192 else []
    assert [found for found in read_all(post(line=line)) if isinstance(found, type)] == expected
    if size > 8192:
        assert read_all(line[:size]) == [TargetTooLong]


@pytest.mark.limit("head_bytes")
@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("size", [65536, 65537])
def test_a_head_may_have_64_kib(size: int) -> None:
    empty = len(post(b"X-A: \r\n" * 9))
    share, rest = divmod(size - empty, 9)
    data = post(b"".join(b"X-A: " + b"a" * (share + (rest if i == 0 else 0)) + b"\r\n" for i in range(9)))
    assert len(data) == size
    assert [found for found in read_all(data) if isinstance(found, type)] == ([HeadTooLarge] if size > 65536 else [])
    assert read_all(data, cuts=tuple(range(0, size, 1000)))[-1] == read_all(data)[-1]


@pytest.mark.limit("head_fields")
@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("count", [100, 101])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n", b"CONTENT-LENGTH: 0\r\n"])
def test_a_head_may_have_100_fields(count: int, length: bytes) -> None:
    found = read_all(post(b"X: 1\r\n" * (count - 1 - bool(length)) + length))
    assert found[0] is HeadTooLarge if count > 100 else isinstance(found[0], tuple)


SMALL = replace(DEFAULT_LIMITS, body_bytes=10, chunks=3, chunk_extension_bytes=8, trailer_fields=2)


@pytest.mark.limit("body_bytes")
@pytest.mark.guarantee("F15")
@pytest.mark.parametrize("size", [10, 11])
def test_a_body_may_have_the_limit_by_length_and_by_chunks(size: int) -> None:
    by_length = read_all(post(b"Content-Length: %d\r\n" % size, b"a" * size), SMALL)
    by_chunks = read_all(
        post(b"Transfer-Encoding: chunked\r\n", b"5\r\naaaaa\r\n%x\r\n%b\r\n0\r\n\r\n" % (size - 5, b"a" * (size - 5))),
        SMALL,
    )
    for found in (by_length, by_chunks):
        assert found[-1] is BodyTooLarge if size > 10 else isinstance(found[-1], tuple)


@pytest.mark.guarantee("F4", "F15")
def test_a_declared_length_beyond_the_limit_is_refused_before_the_body_comes() -> None:
    assert read_all(post(b"Content-Length: 11\r\n"), SMALL) == [BodyTooLarge]
    huge = post(b"Transfer-Encoding: chunked\r\n", b"FFFFFFFFFFFFFFFF\r\n")
    assert read_all(huge) == [BodyTooLarge]


@pytest.mark.limit("chunks")
@pytest.mark.parametrize("count", [3, 4])
def test_a_body_may_have_the_limit_of_chunks(count: int) -> None:
    found = read_all(post(b"Transfer-Encoding: chunked\r\n", b"1\r\na\r\n" * count + b"0\r\n\r\n"), SMALL)
    assert found[-1] is MalformedRequest if count > 3 else isinstance(found[-1], tuple)


@pytest.mark.limit("chunk_extension_bytes")
@pytest.mark.guarantee("F5")
@pytest.mark.parametrize("size", [8, 9])
def test_chunk_extensions_may_have_the_limit_together(size: int) -> None:
    chunks = b"1;a=b\r\na\r\n" + b"1;" + b"x" * (size - 5) + b"\r\na\r\n0\r\n\r\n"
    found = read_all(post(b"Transfer-Encoding: chunked\r\n", chunks), SMALL)
    assert found[-1] is MalformedRequest if size > 8 else isinstance(found[-1], tuple)


@pytest.mark.limit("trailer_fields")
@pytest.mark.guarantee("F7")
@pytest.mark.parametrize("count", [2, 3])
def test_trailers_may_have_the_limit_of_fields(count: int) -> None:
    found = read_all(post(b"Transfer-Encoding: chunked\r\n", b"0\r\n" + b"X: 1\r\n" * count + b"\r\n"), SMALL)
    assert found[-1] is MalformedRequest if count > 2 else isinstance(found[-1], tuple)


@pytest.mark.guarantee("F1", "F2")
def test_a_repeated_head_with_another_length_is_read_as_the_first_was() -> None:
    one, two = post(b"Content-Length: 2\r\nX: 1\r\n", b"ab"), post(b"Content-Length: 3\r\nX: 1\r\n", b"cde")
    found = read_all(one + two + one)
    assert [each[-1] for each in found if isinstance(each, tuple)] == [b"ab", b"cde", b"ab"]
    assert read_all(one + two.replace(b"X: 1", b"Content-Length: 3"))[-1] is MalformedRequest
    assert read_all(one + two.replace(b"X: 1", b"Transfer-Encoding: chunked"))[-1] is MalformedRequest
    assert read_all(one + two.replace(b"Content-Length: 3", b"Content-Length: +3"))[-1] is MalformedRequest
    assert read_all(one + two.replace(b"Content-Length: 3", b"Content-Length: 3\r\n 4"))[-1] is MalformedRequest


@pytest.mark.guarantee("F13")
def test_pipelined_requests_come_one_by_one_and_a_bad_one_ends_them() -> None:
    good = post(b"Content-Length: 2\r\n", b"ab")
    found = read_all(good + good + b"BAD\r\n\r\n" + good)
    assert [type(each) for each in found[:2]] == [tuple, tuple]
    assert found[2:] == [MalformedRequest]


PIECES = st.sampled_from(
    [
        b"GET /v1/models HTTP/1.1\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n",
        b"POST / HTTP/1.0\r\n",
        HOST,
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"X-A:1\r\n",
        b"X-A : 1\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"abc",
        b"3\r\nabc\r\n",
        b"3;x=y\r\nabc\r\n",
        b"0\r\n\r\n",
        b"0\r\nT: 1\r\n\r\n",
        b"\x00",
        b" ",
    ]
)
STREAMS = st.one_of(st.lists(PIECES, max_size=12).map(b"".join), st.binary(max_size=200))


@pytest.mark.guarantee("F13")
@given(STREAMS, st.lists(st.integers(0, 300), max_size=20))
def test_any_splitting_of_the_bytes_gives_the_same_requests(data: bytes, cuts: list[int]) -> None:
    whole = read_all(data)
    split = read_all(data, cuts=tuple(cuts))
    byte_by_byte = read_all(data, cuts=tuple(range(len(data))))
    assert split == byte_by_byte
    # Whole, an error may be seen before a request that precedes it has been handed out: never after another one.
    assert whole == split


class _Peer:
    """What llhttp makes of a request."""

    def __init__(self) -> None:
        self.url, self.body, self.fields, self.complete = b"", b"", [(b"", b"")][:0], False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.rstrip(b" \t")))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def parser_length(peer: _Peer) -> bytes:
    return next((value for name, value in peer.fields if name.lower() == b"content-length"), b"0")


@given(STREAMS)
def test_any_request_we_accept_llhttp_reads_the_same_way(data: bytes) -> None:
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(data)
    try:
        event = reader.next_event()
        if isinstance(event, RequestHead):
            event = reader.next_event()
    except RouterError:
        return
    if not isinstance(event, Request):
        return
    peer = _Peer()
    parser = httptools.HttpRequestParser(peer)
    parser.feed_data(data[: len(data) - reader.buffered])
    assert peer.complete
    assert parser.get_method().decode() == event.head.method
    assert peer.url.decode() == event.head.target
    assert peer.body == event.body
    own = [(name, value.rstrip(b" \t")) for name, value in event.head.fields]
    # A length in its usual spelling is taken out of the fields.
    theirs = [field for field in peer.fields if field[0].lower() != b"content-length"]
    own = [field for field in own if field[0].lower() != b"content-length"]
    assert theirs[: len(own)] == own
    assert int(parser_length(peer)) == event.head.content_length
    assert parser.should_keep_alive() == event.head.keep_alive
