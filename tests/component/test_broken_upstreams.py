"""Upstreams that break HTTP, and connections that are kept, die or are not to be trusted."""

import pytest

from tests.support.door import Door
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream, begin

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


@pytest.mark.guarantee("R2", "R9")
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


@pytest.mark.guarantee("R9")
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


@pytest.mark.guarantee("R9", "U6")
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


@pytest.mark.limit("pipelined_bytes")
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
