"""Bodies that are cut end in an error event or without a terminator: never in silence (DESIGN 6.3)."""

import json
from collections.abc import Callable

import pytest

from tests.support.door import Door, candidate
from tests.support.raw_client import Answer, RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer, begin

EVENTS = b"data: 1\n\ndata: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"response truncated: %b","type":"proxy_stream_error"}}\n\n'

CUTS: dict[str, Callable[[UpstreamPeer], None]] = {"fin": UpstreamPeer.close, "rst": UpstreamPeer.reset}


@pytest.mark.guarantee("R7", "R8")
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


@pytest.mark.guarantee("R8")
def test_a_cut_before_the_first_event_ends_in_an_error_event(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.close()
        answer = client.answer()
    assert (answer.status, answer.body, answer.complete) == (200, ERROR % b"upstream read error", True)


@pytest.mark.guarantee("R8")
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


@pytest.mark.guarantee("R9", "R12")
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


@pytest.mark.limit("response_body_bytes")
@pytest.mark.guarantee("R6")
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
