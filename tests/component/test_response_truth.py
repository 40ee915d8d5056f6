"""What reaches the client: the upstream's bytes, or an honest sign that they are not all there (DESIGN 6.2–6.4)."""

import gzip
import json
from collections.abc import Callable

import pytest

from tests.support.door import KEY, Door, candidate
from tests.support.raw_client import GET_MODELS, Answer, RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer

EVENTS = b'data: {"a":1}\n\n: ping\n\nevent: x\r\ndata: {"b":"\xc3\xa9"}\r\n\r\ndata: [DONE]\n\n'
ERROR = b'data: {"error":{"message":"response truncated: %b","type":"proxy_stream_error"}}\n\n'


def begin(client: RawClient, upstream: Upstream, path: bytes = b"/v1/chat/completions") -> UpstreamPeer:
    """Send a request and hand over the upstream that has read it."""
    client.send(post(path=path))
    peer = upstream.accept()
    peer.request()
    return peer


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


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(door: Door, upstream: Upstream, status: int) -> None:
    with Upstream() as elsewhere, door.tunnel() as client:
        peer = begin(client, upstream)
        location = elsewhere.url.encode()
        peer.send(b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, location))
        answer = client.answer()
        assert (answer.status, answer.value(b"location")) == (status, location)
        assert elsewhere.saw_nothing()


CUTS: dict[str, Callable[[UpstreamPeer], None]] = {"fin": UpstreamPeer.close, "rst": UpstreamPeer.reset}


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_stream_loses_its_half_event_and_ends_in_one_error_event(
    door: Door, upstream: Upstream, cut: str
) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
        peer.chunk(b"data: half")
        CUTS[cut](peer)
        rest = client.read_until(b"0\r\n\r\n")
        event = ERROR % b"upstream read error"
        assert rest == b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)
        # The client's connection is sound: the next request goes through.
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200


def test_a_cut_before_the_first_event_ends_in_an_error_event(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.close()
        answer = client.answer()
    assert (answer.status, answer.body, answer.complete) == (200, ERROR % b"upstream read error", True)


def test_a_cut_messages_stream_ends_in_an_error_that_its_clients_see(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream, b"/v1/messages")
        peer.start_events()
        peer.chunk(b'event: ping\ndata: {"type":"ping"}\n\nevent: half')
        peer.close()
        answer = client.answer()
    first, error = answer.body.split(b"\n\n")[:2]
    assert first.startswith(b"event: ping")
    assert error.startswith(b"event: error\ndata: ")
    assert json.loads(error.split(b"data: ")[1]) == {
        "type": "error",
        "error": {"type": "proxy_stream_error", "message": "response truncated: upstream read error"},
    }


def cut_answer(door: Door, upstream: Upstream, data: bytes, *, tunnel: bool = True) -> tuple[Answer, RawClient]:
    with door.tunnel() if tunnel else door.plain() as client:
        peer = begin(client, upstream)
        peer.send(data)
        peer.close()
        return client.answer(), client


CUT_BODIES = {
    "json by length": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"a":1',
    "json by chunks": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'6\r\n{"a":1\r\n',
    "gzip events": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n4\r\n\x1f\x8b\x08\x00\r\n",
    "a long event": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"11170\r\ndata: " + b"x" * 69_994 + b"\r\n",
    "a broken chunk": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'6\r\n{"a":1\r\nzz\r\n',
}


@pytest.mark.parametrize("form", CUT_BODIES)
@pytest.mark.parametrize("tunnel", [True, False])
def test_other_bodies_that_are_cut_end_without_a_terminator(
    door: Door, upstream: Upstream, form: str, tunnel: bool
) -> None:
    answer, _ = cut_answer(door, upstream, CUT_BODIES[form], tunnel=tunnel)
    assert answer.status == 200
    assert not answer.complete
    assert b"proxy_stream_error" not in answer.body
    assert answer.body[:4] in (b'{"a"', b"\x1f\x8b\x08\x00", b"data")


def test_an_http_1_0_client_gets_plain_bytes_and_a_close(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        client.send(post(version=b"1.0"))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(EVENTS)
        peer.end_chunks()
        data = client.read_to_end()
    assert b"transfer-encoding" not in data.lower()
    assert data.endswith(b"\r\n\r\n" + EVENTS)
    assert client.how_ended == "closed"


def test_an_http_1_0_client_sees_a_cut_as_a_reset(door: Door, upstream: Upstream) -> None:
    with door.plain() as client:
        client.send(post(version=b"1.0"))
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
        client.read_until(b"{")
        peer.close()
        client.read_to_end()
    assert client.how_ended == "reset"


BROKEN = {
    "garbage": b"hello there\r\n\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a signed length": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
    "a bare line feed in a field": b"HTTP/1.1 200 OK\r\nX-A: 1\nX-B: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a bare carriage return in a field": b"HTTP/1.1 200 OK\r\nX-A: 1\rX-B: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a NUL in a field": b"HTTP/1.1 200 OK\r\nX-A: \x00\r\nContent-Length: 2\r\n\r\n{}",
    "a folded field": b"HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\n{}",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length: 2\r\n\r\n{}",
    "switching protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "a thousand hints": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000,
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 9000,
    "257 fields": b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 257 + b"\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "status 600": b"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("form", BROKEN)
def test_a_response_that_is_not_http_is_502_and_nothing_of_it_leaks(door: Door, upstream: Upstream, form: str) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(BROKEN[form])
        if form in ("nothing", "half a head"):
            peer.close()
        answer = client.answer()
        assert answer.status == 502
        assert answer.body == b'{"error":"inference service error"}'
        if form not in ("nothing", "half a head"):
            assert peer.wait_closed()
        # A broken connection is not used again.
        client.send(GET_MODELS)
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200


def test_a_second_response_glued_to_the_first_reaches_nobody(door: Door, upstream: Upstream) -> None:
    glued = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + glued)
        assert client.answer().body == b"{}"
        assert peer.wait_closed()
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond(b'{"own":1}')
        assert client.answer().body == b'{"own":1}'


def test_bytes_on_an_idle_connection_close_it(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.respond()
        assert client.answer().status == 200
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        assert peer.wait_closed()
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond(b'{"own":1}')
        assert client.answer().body == b'{"own":1}'


def test_a_kept_connection_that_has_died_is_replaced_once_and_unseen(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.respond()
        assert client.answer().status == 200
        client.send(post())
        peer.request()
        peer.close()
        again = upstream.accept()
        again.request()
        again.respond(b'{"again":1}')
        answer = client.answer()
    assert (answer.status, answer.body) == (200, b'{"again":1}')
    assert answer.value(b"x-pointsman-attempts") == b"1"


def test_a_new_connection_that_dies_is_not_replaced(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        begin(client, upstream).close()
        assert client.answer().status == 502
    assert upstream.saw_nothing()


def test_a_kept_connection_that_dies_after_a_byte_is_not_replaced(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.respond()
        assert client.answer().status == 200
        client.send(post())
        peer.request()
        peer.send(b"H")
        peer.close()
        assert client.answer().status == 502
    assert upstream.saw_nothing()


def test_an_answer_that_comes_before_the_request_was_read_is_relayed(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post(b'{"a":"' + b"x" * 6_000_000 + b'"}'))
        peer = upstream.accept()
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}")
        answer = client.answer()
        assert (answer.status, answer.value(b"retry-after")) == (429, b"7")
        assert peer.wait_closed(5)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_stream_may_have_32_mib_exactly(upstream: Upstream, extra: int) -> None:
    event = b"data: " + b"x" * (1024 * 1024 - 8) + b"\n\n"
    with Door(candidate(upstream.url)) as door, door.plain() as client:
        client.sock.settimeout(30)
        peer = begin(client, upstream)
        peer.start_events()
        client.read_until(b"\r\n\r\n")
        received = b""
        for number in range(32):
            peer.chunk(event)
            if number == 31 and extra:
                peer.chunk(b"d")
            elif number == 31:
                peer.end_chunks()
            size = 0
            while size < len(event):
                size += (length := int(client.read_until(b"\r\n"), 16))
                received += client.read_exactly(length + 2)[:-2]
        tail = client.read_until(b"0\r\n\r\n")
    assert received == event * 32
    expected = ERROR % b"exceeded maximum streaming body size"
    assert tail == (b"%x\r\n%b\r\n0\r\n\r\n" % (len(expected), expected) if extra else b"0\r\n\r\n")


def test_pipelined_requests_are_answered_in_order(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post(b'{"n":1}') + post(b'{"n":2}') + GET_MODELS)
        peer = upstream.accept()
        for expected in (b'"n":1', b'"n":2', b""):
            request = peer.request()
            assert expected in request.body
            peer.respond(request.line)
        assert client.answer().body == b"POST /v1/chat/completions HTTP/1.1"
        assert client.answer().body == b"POST /v1/chat/completions HTTP/1.1"
        assert client.answer().body == b"GET /v1/models HTTP/1.1"


def test_a_bad_request_behind_a_good_one_ends_the_connection(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post() + b"BAD\r\n\r\n" + post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        assert client.answer().status == 400
        assert client.read_to_end() == b""
    assert upstream.saw_nothing()


@pytest.mark.parametrize("extra", [0, 1])
def test_64_kib_may_be_pipelined(door: Door, upstream: Upstream, extra: int) -> None:
    with door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        client.send(b"G" * (64 * 1024 + extra))
        if extra:
            client.read_to_end()
            assert peer.wait_closed()
        else:
            peer.respond()
            assert client.answer().status == 200
