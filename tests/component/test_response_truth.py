"""What reaches the client: the upstream's bytes, or an honest sign that they are not all there (DESIGN 6.2–6.4)."""

import gzip
import json

import pytest

from tests.support.door import KEY, Door
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream, begin

EVENTS = b'data: {"a":1}\n\n: ping\n\nevent: x\r\ndata: {"b":"\xc3\xa9"}\r\n\r\ndata: [DONE]\n\n'


@pytest.mark.guarantee("R1")
def test_status_headers_and_body_are_the_upstreams(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(
            b"HTTP/1.1 418 I'm a teapot\r\nX-RateLimit: 5\r\nset-cookie: a\r\nset-cookie: b\r\nContent-Type: x/y\r\n"
            b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTrailer: T\r\nUpgrade: h2\r\n"
            b"X-Pointsman-Route: forged\r\nContent-Length: 4\r\n\r\n\x00\xff{]"
        )
        answer = client.answer()
    assert answer.status_line == b"HTTP/1.1 418 I'm a teapot"
    own = [(name, value) for name, value in answer.fields if not name.startswith(b"x-pointsman-")]
    assert own == [
        (b"X-RateLimit", b"5"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b"),
        (b"Content-Type", b"x/y"),
        (b"transfer-encoding", b"chunked"),
    ]
    assert answer.body == b"\x00\xff{]"
    assert answer.complete


@pytest.mark.guarantee("R1")
def test_the_client_can_see_what_was_used(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        begin(client, upstream).respond()
        answer = client.answer()
    assert answer.value(b"x-pointsman-route") == b"inference.local"
    assert answer.value(b"x-pointsman-model") == b"real-model"
    assert answer.value(b"x-pointsman-attempts") == b"1"
    assert answer.value(b"x-pointsman-request-id")


def split_everywhere(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(data[:at], data[at:]) for at in range(1, len(data))]


WIRE_FORMS = {
    "length": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": 1}\n',
    "chunks": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4\r\n{"a"\r\n5;x=y\r\n: 1}\n\r\n0\r\nT: 1\r\n\r\n',
    "after early hints": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a": 1}\n',
}


@pytest.mark.guarantee("R4")
@pytest.mark.parametrize("form", WIRE_FORMS)
def test_a_response_split_at_every_byte_arrives_the_same(door: Door, upstream: Upstream, form: str) -> None:
    data = WIRE_FORMS[form]
    peer = None
    with door.plain() as client:
        for first, second in split_everywhere(data):
            client.send(post())
            peer = peer or upstream.accept()
            peer.request()
            peer.send(first)
            peer.send(second)
            answer = client.answer()
            assert (answer.status, answer.body, answer.complete) == (200, b'{"a": 1}\n', True)
            assert answer.value(b"link") is None


@pytest.mark.guarantee("R4")
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_event_stream_in_any_pieces_arrives_the_same(door: Door, upstream: Upstream, size: int) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        for at in range(0, len(EVENTS), size):
            peer.chunk(EVENTS[at : at + size])
        peer.end_chunks()
        answer = client.answer()
    assert (answer.body, answer.complete) == (EVENTS, True)


@pytest.mark.guarantee("R3")
def test_the_first_event_arrives_before_the_second_is_sent(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        for number in range(20):
            event = b"data: %d\n\n" % number
            peer.chunk(event)
            assert event in client.read_until(event)
        peer.end_chunks()
        assert client.read_until(b"0\r\n\r\n")


def test_other_content_is_passed_on_as_it_comes(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n[1")
        client.read_until(b"[1")
        peer.send(b",2,3,4]"[:6])
        assert client.read_until(b"0\r\n\r\n")


@pytest.mark.guarantee("R3")
def test_the_head_does_not_wait_for_the_body(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        client.read_until(b"\r\n\r\n")
        peer.chunk(b"data: half")
        peer.chunk(b" an event\n\n")
        assert client.read_until(b"an event\n\n") == b"15\r\ndata: half an event\n\n"
        peer.end_chunks()
        client.read_until(b"0\r\n\r\n")


@pytest.mark.guarantee("R12")
def test_an_encoded_body_passes_with_its_encoding(door: Door, upstream: Upstream) -> None:
    body = gzip.compress(EVENTS * 50)
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events(b"Content-Encoding: gzip\r\n")
        for at in range(0, len(body), 10):
            peer.chunk(body[at : at + 10])
        peer.end_chunks()
        answer = client.answer()
    assert answer.value(b"content-encoding") == b"gzip"
    assert gzip.decompress(answer.body) == EVENTS * 50


def test_a_line_of_300_kb_passes_and_so_do_events_behind_it(door: Door, upstream: Upstream) -> None:
    body = b"data: " + b"x" * 300_000 + b"\n\ndata: after\n\n"
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        for at in range(0, len(body), 10_000):
            peer.chunk(body[at : at + 10_000])
        peer.end_chunks()
        answer = client.answer()
    assert (answer.body, answer.complete) == (body, True)


def test_errors_within_the_stream_pass_as_they_are(door: Door, upstream: Upstream) -> None:
    body = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.chunk(body)
        peer.end_chunks()
        assert client.answer().body == body


def test_an_incomplete_event_at_a_clean_end_is_passed_on(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.chunk(b"data: 1\n\ndata: no empty line")
        peer.end_chunks()
        answer = client.answer()
    assert (answer.body, answer.complete) == (b"data: 1\n\ndata: no empty line", True)


def test_a_body_that_ends_with_its_connection_ends_well(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + EVENTS)
        peer.close()
        answer = client.answer()
    assert (answer.body, answer.complete) == (EVENTS, True)


@pytest.mark.guarantee("F19")
@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_a_body_carry_no_framing(door: Door, upstream: Upstream, status: int) -> None:
    with door.plain() as client:
        client.send(GET_MODELS)
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 %d X\r\nETag: 1\r\n\r\n" % status)
        answer = client.answer()
        assert (answer.status, answer.body) == (status, b"")
        assert answer.value(b"transfer-encoding") is None
        client.send(GET_MODELS)
        peer.request()
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("K3", "R12")
@pytest.mark.parametrize(("status", "text"), [(401, "unauthorized"), (403, "forbidden")])
def test_bodies_that_echo_keys_are_replaced(door: Door, upstream: Upstream, status: int, text: str) -> None:
    body = gzip.compress(f'{{"error":"Incorrect API key: {KEY}"}}'.encode())
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(
            b"HTTP/1.1 %d No\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nWWW-Authenticate: Bearer %b\r\n"
            b"X-Request-Id: r1\r\nContent-Length: %d\r\n\r\n%b" % (status, KEY.encode(), len(body), body)
        )
        answer = client.answer()
        assert answer.status == status
        assert json.loads(answer.body) == {"error": text}
        assert answer.value(b"x-request-id") == b"r1"
        assert answer.value(b"content-type") == b"application/json"
        assert answer.value(b"content-encoding") is None
        assert answer.value(b"www-authenticate") is None
        assert peer.wait_closed()


@pytest.mark.guarantee("U1")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(door: Door, upstream: Upstream, status: int) -> None:
    with Upstream() as elsewhere, door.tunnel() as client:
        peer = begin(client, upstream)
        location = elsewhere.url.encode()
        peer.send(b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location))
        answer = client.answer()
        assert (answer.status, answer.value(b"location")) == (status, location)
        assert elsewhere.saw_nothing()
