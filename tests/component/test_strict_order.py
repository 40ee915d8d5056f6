"""One request after the other: pipelining, early answers, expectations, half-closed and HTTP/1.0 clients."""

from collections.abc import Callable

import pytest

from tests.support.door import Door
from tests.support.raw_client import GET_MODELS, RawClient, post
from tests.support.recorder import Recorder, assert_alive, assert_refused
from tests.support.upstream import Upstream

BAD = b"GET /v1/models HTTP/1.1\r\nHost: inference.local\r\nContent-Length: +1\r\n\r\n"
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: inference.local\r\nTransfer-Encoding: chunked\r\n\r\n"


def whole(client: RawClient, data: bytes) -> None:
    client.send(data)


def byte_by_byte(client: RawClient, data: bytes) -> None:
    for byte in data:
        client.send(bytes([byte]))


Sending = Callable[[RawClient, bytes], None]


@pytest.mark.guarantee("F13")
@pytest.mark.parametrize("send", [whole, byte_by_byte])
@pytest.mark.parametrize(
    "bad", [BAD, b"\r\n", b"GET /nowhere HTTP/1.1\r\nHost: inference.local\r\n\r\n", CHUNKED + b"x\r\n"]
)
def test_a_bad_request_between_good_ones_lets_only_the_first_through(
    strict_door: Door, recorder: Recorder, send: Sending, bad: bytes
) -> None:
    seen = len(recorder.requests)
    with strict_door.tunnel() as client:
        send(client, post(b'{"first":1}') + bad + post(b'{"third":3}'))
        assert client.answer().status == 200
        assert client.answer().status in (400, 403)
        assert client.read_to_end() == b""
    assert [request.body for request in recorder.requests[seen:]] == [b'{"model":"real-model","first":1}']
    assert_alive(strict_door, recorder, len(recorder.requests))


@pytest.mark.guarantee("F13")
@pytest.mark.parametrize("send", [whole, byte_by_byte])
def test_pipelined_requests_are_answered_one_by_one_in_their_order(
    door: Door, upstream: Upstream, send: Sending
) -> None:
    paths = [b"/v1/models/a", b"/v1/models/b", b"/v1/models/c"]
    with door.tunnel() as client:
        send(client, b"".join(GET_MODELS.replace(b"/v1/models", path) for path in paths))
        peer = upstream.accept()
        for path in paths:
            assert peer.request().line == b"GET %b HTTP/1.1" % path
            assert not peer.buffer  # the next has not been sent ahead
            peer.respond(path)
            assert client.answer().body == path
    assert upstream.saw_nothing()


@pytest.mark.guarantee("F14")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/nowhere HTTP/1.1\r\nHost: inference.local\r\nContent-Length: 1000\r\n\r\n", 403),
        (b"DELETE /v1/models/a HTTP/1.1\r\nHost: inference.local\r\nTransfer-Encoding: chunked\r\n\r\n", 403),
        (b"POST /v1/completions HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: inference.local\r\nContent-Length: 10485761\r\n\r\n", 413),
        (CHUNKED + b"A00001\r\n", 413),
        (post(fields=b"Content-Encoding: gzip\r\n"), 415),
        (post(fields=b"Expect: a-miracle\r\n"), 417),
    ],
)
def test_behind_an_early_answer_nothing_is_read_as_a_request(
    strict_door: Door, recorder: Recorder, head: bytes, status: int
) -> None:
    assert_refused(strict_door, recorder, head, status)
    assert_refused(strict_door, recorder, head + GET_MODELS * 200, status)


@pytest.mark.guarantee("F16")
@pytest.mark.parametrize("spelling", [b"100-continue", b"100-Continue", b"  100-CONTINUE\t"])
def test_a_client_that_waits_for_continue_gets_it_and_stays_in_step(
    strict_door: Door, recorder: Recorder, spelling: bytes
) -> None:
    request = post(b'{"a":1}', fields=b"Expect: %b\r\n" % spelling)
    with strict_door.tunnel() as client:
        for _ in range(3):
            client.send(request[:-7])
            assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(request[-7:])
            assert client.answer().status == 200
        client.send(CHUNKED[:-2] + b"Expect: %b\r\n\r\n" % spelling)
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"2\r\n{}\r\n0\r\n\r\n" + GET_MODELS)
        assert client.answer().status == 200
        assert client.answer().status == 200
    assert [request.value(b"expect") for request in recorder.requests[-5:]] == [None] * 5


@pytest.mark.guarantee("F16")
def test_a_client_that_does_not_wait_for_continue_and_one_of_http_1_0_get_none(strict_door: Door) -> None:
    with strict_door.tunnel() as client:
        client.send(post(fields=b"Expect: 100-continue\r\n"))
        assert client.answer().status == 200
    with strict_door.tunnel() as client:
        request = post(fields=b"Expect: 100-continue\r\n", version=b"1.0")
        client.send(request[:-2])
        client.send(request[-2:])
        assert client.answer().status == 200


@pytest.mark.guarantee("F16")
@pytest.mark.parametrize("value", [b"", b"200-ok", b"100-continue, x", b"100-continue;q=1", b'"100-continue"', b"100"])
def test_any_other_expectation_is_417(strict_door: Door, recorder: Recorder, value: bytes) -> None:
    assert_refused(strict_door, recorder, post(fields=b"Expect: %b\r\n" % value), 417)


@pytest.mark.guarantee("F18")
@pytest.mark.parametrize("data", [post(b'{"a":1}'), CHUNKED + b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\nX: 1\r\n\r\n'])
def test_a_request_that_ends_anywhere_before_its_end_reaches_no_upstream(
    strict_door: Door, recorder: Recorder, data: bytes
) -> None:
    seen = len(recorder.requests)
    for size in range(len(data)):
        with strict_door.plain() as client:
            client.send(data[:size])
            client.half_close()
            assert client.read_to_end() == b""
    assert_alive(strict_door, recorder, seen)


@pytest.mark.guarantee("F18")
def test_a_client_that_says_goodbye_in_tls_in_the_middle_of_a_body_reaches_no_upstream(
    strict_door: Door, recorder: Recorder
) -> None:
    seen = len(recorder.requests)
    for end in (RawClient.half_close, RawClient.reset, RawClient.close):
        client = strict_door.tunnel()
        client.send(post(b'{"a":1}')[:-1])
        end(client)
        client.close()
    assert_alive(strict_door, recorder, seen)


@pytest.mark.guarantee("F19")
@pytest.mark.parametrize("connection", [b"", b"Connection: keep-alive\r\n"])
def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection(
    door: Door, upstream: Upstream, connection: bytes
) -> None:
    with door.tunnel() as client:
        client.send(post(version=b"1.0", fields=connection))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_chunks()
        head, _, body = client.read_to_end().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"\r\nconnection: close" in head.lower()
    assert (body, client.how_ended) == (b"data: 1\n\ndata: [DONE]\n\n", "closed")


@pytest.mark.guarantee("F19")
def test_an_answer_to_head_has_no_body(strict_door: Door) -> None:
    with strict_door.tunnel() as client:
        client.send(GET_MODELS.replace(b"GET", b"HEAD"))
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 403 ")
        assert client.read_to_end() == b""
    with strict_door.connect() as client:
        client.send(GET_MODELS.replace(b"GET", b"HEAD"))
        assert client.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 403 ")
        assert client.read_to_end() == b""
