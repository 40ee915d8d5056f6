"""Request lines and fields: one spelling, one reading. A sound request is glued behind every row and never read."""

import pytest

from tests.support.door import Door
from tests.support.raw_client import GET_MODELS, post
from tests.support.recorder import Recorder, assert_refused

HOST = b"Host: inference.local\r\n"
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"


def with_field(line: bytes) -> bytes:
    """A request that is sound but for this text, among its fields."""
    return LINE + HOST + line + b"Content-Length: 2\r\n\r\n{}"


@pytest.mark.guarantee("F8")
@pytest.mark.parametrize(
    "field",
    [
        *(b"X: 1\n", b"X: 1\r", b"X: 1\r\r\n", b"X: 1\n\r\n", b"X: a\rb\r\n", b"X: a\nb\r\n", b"\n", b"\rX: 1\r\n"),
        *(
            b"X: a\x00b\r\n",
            b"X: \x01\r\n",
            b"X: \x07\r\n",
            b"X: \x0b1\r\n",
            b"X: 1\x0c\r\n",
            b"X: \x1f\r\n",
            b"X: \x7f\r\n",
        ),
        *(b"X: 1\r\n 2\r\n", b"X: 1\r\n\t2\r\n", b"X:\r\n 1\r\n", b" X: 1\r\n", b"\tX: 1\r\n"),
        *(b"X : 1\r\n", b"X\t: 1\r\n", b": 1\r\n", b":\r\n", b"X\r\n", b"X 1\r\n", b"X Y: 1\r\n", b"X\x00: 1\r\n"),
        *(
            b"X(: 1\r\n",
            b"X,: 1\r\n",
            b"X/Y: 1\r\n",
            b"X=: 1\r\n",
            b"X@: 1\r\n",
            b"X[0]: 1\r\n",
            b'"X": 1\r\n',
            b"X\\: 1\r\n",
        ),
        *(
            "Ü: 1\r\n".encode(),
            b"X\x80: 1\r\n",
            b"X\x0b: 1\r\n",
            b"X;: 1\r\n",
            b"X{}: 1\r\n",
            b"Content-Length : 2\r\n",
        ),
        *(b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding\r\n", b"X: 1\r\nTransfer-Encoding:\x0bchunked\r\n"),
    ],
)
def test_a_field_out_of_grammar_is_refused(strict_door: Door, recorder: Recorder, field: bytes) -> None:
    assert_refused(strict_door, recorder, with_field(field))


@pytest.mark.guarantee("F8")
@pytest.mark.parametrize("first", [b" ", b"\t", b"\r\n", b"\n", b"\x00", b"\xef\xbb\xbf", b" \r\n"])
def test_nothing_may_come_before_the_request_line_or_the_first_field(
    strict_door: Door, recorder: Recorder, first: bytes
) -> None:
    assert_refused(strict_door, recorder, first + GET_MODELS)
    assert_refused(strict_door, recorder, LINE + first + HOST + b"\r\n")


@pytest.mark.guarantee("F8")
def test_every_control_byte_in_every_part_of_a_head_is_refused(strict_door: Door, recorder: Recorder) -> None:
    seen = len(recorder.requests)
    controls = [byte for byte in (*range(0x20), 0x7F) if byte not in b"\t\r\n"]
    for byte in controls:
        for data in (
            GET_MODELS.replace(b"/v1", b"/v%c1" % byte),
            with_field(b"X%c: 1\r\n" % byte),
            with_field(b"X: %c\r\n" % byte),
        ):
            with strict_door.plain() as client:
                client.send(data)
                assert client.answer().status == 400, data
    assert len(recorder.requests) == seen


@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("excess", [0, 1])
def test_a_request_line_has_8_kib(strict_door: Door, recorder: Recorder, excess: int) -> None:
    empty = b"GET /v1/models? HTTP/1.1"
    data = GET_MODELS.replace(b"/v1/models", b"/v1/models?" + b"q" * (8192 - len(empty) + excess))
    if excess:
        assert_refused(strict_door, recorder, data, 414)
        return
    with strict_door.tunnel() as client:
        client.send(data)
        assert client.answer().status == 200


@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("excess", [0, 1])
def test_a_head_has_64_kib(strict_door: Door, recorder: Recorder, excess: int) -> None:
    data = GET_MODELS[:-2] + b"X: \r\n\r\n"
    data = data.replace(b"X: ", b"X: " + b"a" * (65536 - len(data) + excess))
    if excess:
        assert_refused(strict_door, recorder, data, 431)
        return
    with strict_door.tunnel() as client:
        client.send(data)
        assert client.answer().status == 200


@pytest.mark.guarantee("F9")
@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n", b"content-LENGTH: 0\r\n"])
def test_a_head_has_100_fields(strict_door: Door, recorder: Recorder, excess: int, length: bytes) -> None:
    data = GET_MODELS[:-2] + length + b"X: 1\r\n" * (99 - bool(length) + excess) + b"\r\n"
    if excess:
        assert_refused(strict_door, recorder, data, 431)
        return
    with strict_door.tunnel() as client:
        client.send(data)
        assert client.answer().status == 200


@pytest.mark.guarantee("F9")
def test_an_endless_request_line_and_an_endless_head_are_refused_before_their_end(
    strict_door: Door, recorder: Recorder
) -> None:
    assert_refused(strict_door, recorder, b"GET /" + b"a" * 9000, 414)
    assert_refused(strict_door, recorder, LINE + HOST + b"X: " + b"a" * 70_000, 431)
    assert_refused(strict_door, recorder, LINE + HOST + b"X: 1\r\n" * 12_000, 431)


@pytest.mark.guarantee("F10")
@pytest.mark.parametrize(
    "fields",
    [
        b"",
        HOST + HOST,
        HOST + b"host: example.com\r\n",
        b"HOST: example.com\r\n" + HOST,
        b"Hosts: inference.local\r\n",
        *(
            b"Host: " + host + b"\r\n"
            for host in (
                *(b"", b" ", b"example.com", b"inference.local.example.com", b"xinference.local", b"inference.local/"),
                *(
                    b"inference.local/v1",
                    b"inference.local?",
                    b"inference.local#",
                    b"a@inference.local",
                    b"@inference.local",
                ),
                *(b"inference.local@example.com", b"inference.local:", b"inference.local:80", b"inference.local:0443"),
                *(b"inference.local:443:443", b"inference.local..", b"inference.local, inference.local", b"127.0.0.1"),
                *(b"inference.local inference.local", b"https://inference.local", b"inference%2elocal", b"[::1]"),
                *(b"inference.local\\", b"inference.local;", b"inference.local\x00", "ｉnference.local".encode()),
            )
        ),
    ],
)
def test_a_host_that_is_not_the_tunnels_once_is_refused(strict_door: Door, recorder: Recorder, fields: bytes) -> None:
    assert_refused(strict_door, recorder, LINE + fields + b"Content-Length: 2\r\n\r\n{}")
    assert_refused(strict_door, recorder, b"GET https://inference.local/v1/models HTTP/1.1\r\n" + fields + b"\r\n")


@pytest.mark.guarantee("F10")
@pytest.mark.parametrize(
    "host", [b"INFERENCE.local", b"inference.local.", b"inference.local:443", b"\t inference.local \t"]
)
def test_every_spelling_of_the_tunnels_own_host_passes(strict_door: Door, host: bytes) -> None:
    with strict_door.tunnel() as client:
        client.send(GET_MODELS.replace(b" inference.local", host if host[:1] == b"\t" else b" " + host))
        assert client.answer().status == 200


@pytest.mark.guarantee("F11")
@pytest.mark.parametrize(
    "target",
    [
        *(
            b"http://inference.local/v1/models",
            b"https://example.com/v1/models",
            b"https://inference.local.example.com/v1/models",
        ),
        *(b"https://a@inference.local/v1/models", b"https://inference.local:80/v1/models", b"https:///v1/models"),
        *(
            b"https://inference.local\\/v1/models",
            b"https:/inference.local/v1/models",
            b"https:inference.local/v1/models",
        ),
        *(
            b"ftp://inference.local/v1/models",
            b"https://inference.local?/v1/models",
            b"https://inference.local#/v1/models",
        ),
        *(b"*", b"inference.local:443", b"inference.local", b"v1/models", b"./v1/models", b"?x", b"#", b"/v1/models#x"),
        *(b"https://inference.local/v1/models#x", b"https://[::1]/v1/models", b"https://127.0.0.1/v1/models"),
    ],
)
def test_a_target_in_another_form_or_for_another_host_is_refused(
    strict_door: Door, recorder: Recorder, target: bytes
) -> None:
    assert_refused(strict_door, recorder, b"GET %b HTTP/1.1\r\n" % target + HOST + b"\r\n")
    assert_refused(strict_door, recorder, b"POST %b HTTP/1.1\r\n" % target + HOST + b"Content-Length: 2\r\n\r\n{}")


@pytest.mark.guarantee("F12")
@pytest.mark.parametrize(
    "line",
    [
        *(b"GET /v1/models", b"GET /v1/models ", b"GET  /v1/models HTTP/1.1", b"GET /v1/models  HTTP/1.1"),
        *(
            b"GET /v1/models HTTP/1.1 ",
            b"GET\t/v1/models HTTP/1.1",
            b"GET /v1/models\tHTTP/1.1",
            b"GET /v1/ models HTTP/1.1",
        ),
        *(b"GET /v1/models HTTP/0.9", b"GET /v1/models HTTP/1.2", b"GET /v1/models HTTP/2.0", b"GET /v1/models HTTP/2"),
        *(
            b"GET /v1/models HTTP/1.10",
            b"GET /v1/models HTTP/11",
            b"GET /v1/models HTTP/1,1",
            b"GET /v1/models HTTP/01.1",
        ),
        *(
            b"GET /v1/models http/1.1",
            b"GET /v1/models HTTPS/1.1",
            b"GET /v1/models ICE/1.0",
            b"GET /v1/models HTTP/1.1\x00",
        ),
        *(
            b"GET /v1/models HTTP /1.1",
            "GET /v1/models HTTP/1.１".encode(),
            b"PRI * HTTP/2.0",
            b"GET(/v1/models HTTP/1.1",
        ),
        *(
            b"G(ET /v1/models HTTP/1.1",
            b"G,ET /v1/models HTTP/1.1",
            "GÉT /v1/models HTTP/1.1".encode(),
            b" /v1/models HTTP/1.1",
        ),
        *(
            b"/v1/models HTTP/1.1",
            b"GET HTTP/1.1",
            b"GET",
            b'"GET" /v1/models HTTP/1.1',
            b"GET /v1/mod\xc3\xa9ls HTTP/1.1",
        ),
        *(b"GET /v1/models?\x80 HTTP/1.1", b"GET /v1/models HTTP/1.1\x0b", b"GET\x0b/v1/models HTTP/1.1"),
    ],
)
def test_a_request_line_out_of_grammar_is_refused(strict_door: Door, recorder: Recorder, line: bytes) -> None:
    assert_refused(strict_door, recorder, line + b"\r\n" + HOST + b"\r\n")


@pytest.mark.guarantee("F12")
@pytest.mark.parametrize(
    "method", [b"get", b"Get", b"post", b"GETT", b"PO", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"TRACE", b"PRI"]
)
@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/chat/completions"])
def test_a_method_in_another_case_or_of_another_kind_is_no_inference(
    strict_door: Door, recorder: Recorder, method: bytes, path: bytes
) -> None:
    seen = len(recorder.requests)
    with strict_door.tunnel() as client:
        client.send(b"%b %b HTTP/1.1\r\n" % (method, path) + HOST + b"\r\n" + GET_MODELS)
        assert client.read_until(b"\r\n").startswith(b"HTTP/1.1 403 ")
        assert client.read_to_end().count(b"HTTP/1.1 ") == 0
    assert len(recorder.requests) == seen


@pytest.mark.guarantee("F12")
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_both_versions_pass(strict_door: Door, version: bytes) -> None:
    with strict_door.tunnel() as client:
        client.send(post(version=version))
        assert client.answer().status == 200


@pytest.mark.guarantee("F12")
def test_the_preface_of_http_2_is_refused(strict_door: Door, recorder: Recorder) -> None:
    assert_refused(strict_door, recorder, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
