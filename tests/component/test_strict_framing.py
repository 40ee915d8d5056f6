"""How long a request is: what leaves room for two readings is refused, and no upstream hears of it.

Every row goes through a real tunnel, with a sound request glued behind it that must never be read.
"""

from pathlib import Path

import pytest

from tests.support.door import Door
from tests.support.raw_client import GET_MODELS, post
from tests.support.recorder import Recorder, assert_alive, assert_refused

LINE = b"POST /v1/chat/completions HTTP/1.1\r\nHost: inference.local\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
EMPTY_CHUNKS = b"0\r\n\r\n"


def lengths(*values: bytes) -> bytes:
    return LINE + b"".join(b"Content-Length: %b\r\n" % value for value in values) + b"\r\nhello"


def codings(*values: bytes) -> bytes:
    return LINE + b"".join(b"Transfer-Encoding: %b\r\n" % value for value in values) + b"\r\n" + EMPTY_CHUNKS


@pytest.mark.guarantee("F1")
@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"content-length: 5\r\ntransfer-encoding: CHUNKED\r\n",
        b"CONTENT-LENGTH: 5\r\nX: 1\r\nTRANSFER-ENCODING: chunked\r\n",
        b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 999\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ],
)
def test_a_length_and_a_coding_together_are_refused(strict_door: Door, recorder: Recorder, fields: bytes) -> None:
    hidden = b"GET /v1/models/hidden HTTP/1.1\r\nHost: inference.local\r\n\r\n"
    assert_refused(strict_door, recorder, LINE + fields + b"\r\n" + EMPTY_CHUNKS + hidden)
    assert_refused(strict_door, recorder, (LINE + fields).replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + EMPTY_CHUNKS)


@pytest.mark.guarantee("F2")
@pytest.mark.parametrize(
    "data",
    [
        lengths(b"5", b"5"),
        lengths(b"5", b"6"),
        LINE + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello",
        LINE + b"CONTENT-LENGTH: 5\r\ncontent-LENGTH: 0\r\n\r\nhello",
        *(
            lengths(value)
            for value in (
                *(b"5, 5", b"5,5", b"5 5", b"+5", b"-5", b"-0", b"5_0", b"0x5", b"5.0", b"5e0", b"5;", b'"5"', b"five"),
                *(b"", b" ", b"\t", "٥".encode(), "５".encode(), b"\xb2", b"5\x0b", b"\x0c5", b"0" * 19 + b"5"),
                *(b"18446744073709551621", b"5\x00"),
            )
        ),
    ],
)
def test_a_length_that_is_not_one_plain_number_is_refused(strict_door: Door, recorder: Recorder, data: bytes) -> None:
    assert_refused(strict_door, recorder, data)
    if data.count(b"Content-Length") == 1:  # spelled in another way, the field takes another path through the reader
        assert_refused(strict_door, recorder, data.replace(b"Content-Length", b"Content-LENGTH"))


@pytest.mark.guarantee("F3")
@pytest.mark.parametrize(
    "data",
    [
        codings(b"chunked", b"chunked"),
        codings(b"chunked", b"identity"),
        codings(b"identity", b"chunked"),
        codings(b"chunked").replace(b"HTTP/1.1", b"HTTP/1.0"),
        *(
            codings(value)
            for value in (
                *(
                    b",chunked",
                    b"chunked,",
                    b"chunked, chunked",
                    b"chunked,gzip",
                    b"gzip, chunked",
                    b"gzip",
                    b"identity",
                ),
                *(
                    b"\x0bchunked",
                    b"chunked\x0c",
                    b"chunked;a=b",
                    b"chunked; q=1",
                    b'"chunked"',
                    b"xchunked",
                    b"chunke",
                ),
                *(b"", b" ", b"chun ked", b"chunked\x00", "chunked\u00a0".encode(), "ｃhunked".encode()),
            )
        ),
    ],
)
def test_a_coding_that_is_not_chunked_once_is_refused(strict_door: Door, recorder: Recorder, data: bytes) -> None:
    assert_refused(strict_door, recorder, data)


@pytest.mark.guarantee("F4")
@pytest.mark.parametrize(
    "size",
    [
        *(b"0x5", b"5_0", b"+5", b"-5", b"", b" 5", b"5 ", b"\t5", b"g", b"5h", b"5.", "٥".encode(), b"5\x00", b"\xb9"),
        *(b"0" * 16 + b"5", b"10000000000000005", b"5,5", b"0x", b"\\x35"),
    ],
)
def test_a_chunk_size_that_is_not_plain_hexadecimal_is_refused(
    strict_door: Door, recorder: Recorder, size: bytes
) -> None:
    assert_refused(strict_door, recorder, CHUNKED + size + b"\r\nhello\r\n" + EMPTY_CHUNKS)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.guarantee("F4")
def test_a_chunk_size_alone_makes_nobody_allocate(strict_door: Door, recorder: Recorder) -> None:
    assert_refused(strict_door, recorder, CHUNKED + b"FFFFFFFFFFFFFFFF\r\n", 413)
    seen, before = len(recorder.requests), resident_bytes()
    clients = [strict_door.tunnel() for _ in range(20)]
    for client in clients:
        client.send(CHUNKED + b"A00000\r\n{")  # 10 MiB announced
    assert_alive(strict_door, recorder, seen)  # so they have been read
    assert resident_bytes() - before < 20 * 2**20
    for client in clients:
        client.close()


@pytest.mark.guarantee("F5")
@pytest.mark.parametrize(
    "extension",
    [
        *(b";", b";;a", b"; ", b";=", b";=b", b";a=", b";a==b", b";a b", b';a="b', b';a="b"c', b";a=b;", b";a\x00"),
        *(
            b";a\n",
            b";a\r",
            b";a=\r\n b",
            b';a="\r\n"',
            b';a="\n"',
            b';a="\x00"',
            b";a\x0b",
            b" ;a",
            b"; a",
            b";a =b",
            b"x",
        ),
    ],
)
def test_a_chunk_extension_out_of_grammar_is_refused(strict_door: Door, recorder: Recorder, extension: bytes) -> None:
    assert_refused(strict_door, recorder, CHUNKED + b"5" + extension + b"\r\nhello\r\n" + EMPTY_CHUNKS)


@pytest.mark.guarantee("F5")
@pytest.mark.parametrize("excess", [0, 1])
def test_chunk_extensions_are_dropped_and_have_8_kib_together(
    strict_door: Door, recorder: Recorder, excess: int
) -> None:
    body = b'{"model":"real-model","pad":0}'
    share = 8192 // len(body)
    chunks = [b"1;" + b"x" * (share - 1) + b"\r\n%c\r\n" % byte for byte in body]
    left = 8192 - share * len(body) + excess
    chunks[-1] = chunks[-1].replace(b"1;", b"1;" + b"y" * left)
    data = CHUNKED + b"".join(chunks) + EMPTY_CHUNKS
    if excess:
        assert_refused(strict_door, recorder, data)
        return
    with strict_door.tunnel() as client:
        client.send(data)
        assert client.answer().status == 200
    assert recorder.requests[-1].body == body


@pytest.mark.guarantee("F6")
@pytest.mark.parametrize(
    "chunks",
    [
        *(b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n"),
        *(
            b"5\r\nhello\r\r\n0\r\n\r\n",
            b"5\r\nhello\n\r\n0\r\n\r\n",
            b"5\r\nhello\x00\x000\r\n\r\n",
            b"5\nhello\r\n0\r\n\r\n",
        ),
        *(
            b"5\r\rhello\r\n0\r\n\r\n",
            b"5\r\nhell\r\n0\r\n\r\n",
            b"5\r\nhello\r\n\r\n0\r\n\r\n",
            b"0\r\nX\r\n\r\n",
            b"0\n\n",
        ),
        *(b"0\r\n\n", b"0\r\n\rX", b"0\r\n\r\r\n", b"00\n\r\n", b"0\r\r\n"),
    ],
)
def test_a_chunk_that_does_not_end_where_it_says_is_refused(
    strict_door: Door, recorder: Recorder, chunks: bytes
) -> None:
    assert_refused(strict_door, recorder, CHUNKED + chunks)


@pytest.mark.guarantee("F7")
@pytest.mark.parametrize(
    "trailer",
    [
        *(
            b"Content-Length: 5\r\n",
            b"content-LENGTH: 0\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Host: inference.local\r\n",
        ),
        *(
            b"Authorization: Bearer x\r\n",
            b"X: 1\r\nAUTHORIZATION: x\r\n",
            b"X : 1\r\n",
            b"X\r\n",
            b": 1\r\n",
            b" X: 1\r\n",
        ),
        *(b"X: 1\r\n 2\r\n", b"X: 1\nY: 2\r\n", b"X: 1\rY: 2\r\n", b"X: \x00\r\n", b"X: 1\r\n" * 33),
        b"X: " + b"a" * (8 * 1024 - len(b"X: \r\n\r\n") + 1) + b"\r\n",
    ],
)
def test_a_trailer_out_of_grammar_or_with_a_say_in_framing_is_refused(
    strict_door: Door, recorder: Recorder, trailer: bytes
) -> None:
    assert_refused(strict_door, recorder, CHUNKED + b"0\r\n" + trailer + b"\r\n")


@pytest.mark.guarantee("F7")
@pytest.mark.limit("trailer_fields", "trailer_bytes")
@pytest.mark.parametrize("trailer", [b"X: 1\r\n" * 32, b"X: " + b"a" * (8 * 1024 - len(b"X: \r\n\r\n")) + b"\r\n"])
def test_trailers_within_their_bounds_are_dropped(strict_door: Door, recorder: Recorder, trailer: bytes) -> None:
    with strict_door.tunnel() as client:
        client.send(CHUNKED + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n")
        assert client.answer().status == 200
        client.send(post())  # and the connection goes on behind them
        assert client.answer().status == 200
    assert all(request.value(b"x") is None for request in recorder.requests[-2:])


@pytest.mark.guarantee("F1", "F2", "F3")
@pytest.mark.parametrize(
    "fields",
    [b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: +5\r\n"],
)
def test_a_request_without_a_body_by_nature_is_held_to_the_same_rules(
    strict_door: Door, recorder: Recorder, fields: bytes
) -> None:
    assert_refused(strict_door, recorder, GET_MODELS[:-2] + fields + b"\r\n" + EMPTY_CHUNKS)
