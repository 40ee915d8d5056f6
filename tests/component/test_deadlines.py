"""Deadlines of the data plane, each shrunk until a test can wait for it, with the moment just before it."""

import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pointsman.core.limits import Limits
from tests.support.door import Door, candidate
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream


def seconds_until_closed(read: Callable[[], bytes]) -> float:
    started = time.monotonic()
    read()
    return time.monotonic() - started


@pytest.mark.guarantee("F17")
def test_a_connect_head_must_come_in_time(quick_door: Door) -> None:
    with quick_door.connect() as client:
        client.send(b"CONNECT inference.local:443 HTTP/1.1\r\n")
        assert 0.2 < seconds_until_closed(client.read_to_end) < 2


@pytest.mark.guarantee("F17")
def test_a_tls_handshake_must_end_in_time(quick_door: Door) -> None:
    with quick_door.connect() as client:
        client.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        client.read_until(b"\r\n\r\n")
        assert 0.2 < seconds_until_closed(client.read_to_end) < 2


@pytest.mark.guarantee("F17")
def test_a_head_must_come_in_time_and_dripping_does_not_help(quick_door: Door) -> None:
    with quick_door.plain() as client:
        client.sock.settimeout(0.02)
        started = time.monotonic()
        for byte in post(b"x" * 10, fields=b"X-Long: " + b"a" * 1000 + b"\r\n"):
            client.send(bytes([byte]))
            try:
                if client.sock.recv(1, 2):  # MSG_PEEK
                    break
            except TimeoutError:
                pass
        client.sock.settimeout(5)
        assert client.answer().status == 408
        assert 0.2 < time.monotonic() - started < 2
        assert client.read_to_end() == b""


@pytest.mark.guarantee("F17")
def test_a_body_must_make_progress_and_slow_progress_is_enough(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        client.sock.settimeout(0.1)
        request = post(b'{"abcde":1}')
        client.send(request[:-8])
        for byte in request[-8:]:
            with pytest.raises(TimeoutError):
                client.sock.recv(1)
            client.send(bytes([byte]))
        client.sock.settimeout(5)
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        client.send(request[:-1])
        assert client.answer().status == 408
        assert client.read_to_end() == b""


@pytest.mark.guarantee("F17")
def test_an_idle_connection_is_closed_in_silence(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        started = time.monotonic()
        assert client.read_to_end() == b""
        assert 0.4 < time.monotonic() - started < 2


@pytest.mark.guarantee("U7")
def test_response_headers_must_come_in_time(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        answer = client.answer()
        assert (answer.status, answer.body) == (503, b'{"error":"inference service unavailable"}')
        assert peer.wait_closed()


@pytest.mark.guarantee("U7")
def test_a_route_timeout_takes_the_place_of_the_header_wait(upstream: Upstream, quick_limits: Limits) -> None:
    limits = replace(quick_limits, response_header_seconds=0.1)
    with Door(candidate(upstream.url, timeout_seconds=5.0), limits=limits) as door, door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        client.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.sock.recv(1)
        client.sock.settimeout(5)
        peer.respond()
        assert client.answer().status == 200


@pytest.mark.guarantee("R5")
def test_a_stream_lives_as_long_as_it_sends_and_outlives_the_route_timeout(
    upstream: Upstream, quick_limits: Limits
) -> None:
    with Door(candidate(upstream.url, timeout_seconds=0.2), limits=quick_limits) as door, door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        started = time.monotonic()
        client.sock.settimeout(0.1)
        while time.monotonic() - started < 0.8:
            peer.chunk(b": x\n\n")
            client.read_until(b": x\n\n\r\n")
            with pytest.raises(TimeoutError):
                client.sock.recv(1)
        client.sock.settimeout(5)
        rest = client.read_until(b"0\r\n\r\n")
        assert b"response truncated: chunk idle timeout exceeded" in rest
        assert rest.count(b"data: ") == 1
        assert peer.wait_closed()
        client.send(GET_MODELS)
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200


def test_an_idle_json_body_is_cut(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1")
        answer = client.answer()
        assert (answer.body, answer.complete) == (b"[1", False)


def test_idle_upstream_connections_are_closed_in_time(upstream: Upstream, quick_limits: Limits) -> None:
    limits = replace(quick_limits, idle_clear_seconds=0.2)
    with Door(candidate(upstream.url), limits=limits) as door, door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        assert peer.wait_closed(2.0)


@pytest.mark.guarantee("U7")
def test_a_server_that_does_not_take_connections_is_503_in_time(quick_limits: Limits) -> None:
    # A full backlog makes the kernel drop the SYN: the connect hangs, as behind a firewall.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        with Door(candidate(f"http://127.0.0.1:{address[1]}/v1"), limits=quick_limits) as door, door.plain() as client:
            client.send(post())
            started = time.monotonic()
            assert client.answer().status == 503
            assert time.monotonic() - started < 3
        for filler in fillers:
            filler.close()
