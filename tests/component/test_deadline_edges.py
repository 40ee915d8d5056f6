"""Every deadline, with the design's own numbers: nothing happens a millisecond before it, and it strikes on time.

The clock stands still until a test moves it, so nothing here waits for time to pass.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import trustme

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.testing import FakeClock
from tests.component.test_tls_upstream import server_context
from tests.support.door import Door, candidate
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer, begin

BEFORE = 0.001
CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"


@pytest.fixture
def timed_door(upstream: Upstream) -> Iterator[Door]:
    with Door(candidate(upstream.url), clock=FakeClock()) as door:
        yield door
    assert not door.leftover


def is_quiet(client: RawClient | UpstreamPeer) -> bool:
    """Whether the connection is open and nothing waits to be read from it."""
    client.sock.setblocking(False)
    try:
        client.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        client.sock.settimeout(10)
    return False


def strike(door: Door, client: RawClient | UpstreamPeer, seconds: float) -> None:
    """Move to just before the deadline, see that nothing happens, then move on to it."""
    door.advance(seconds - BEFORE)
    assert is_quiet(client)
    door.advance(BEFORE)
    assert not is_quiet(client)


@pytest.mark.limit("connect_head_seconds")
@pytest.mark.parametrize("sent", [b"", b"CONNECT inference.local:443 HTTP/1.1\r\nHost: "])
def test_a_connect_head_has_10_s(timed_door: Door, sent: bytes) -> None:
    with timed_door.connect() as client:
        client.send(sent)
        strike(timed_door, client, 10.0)
        assert client.read_to_end() == b""


@pytest.mark.limit("tls_handshake_seconds")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_tls_handshake_has_10_s_from_connect(timed_door: Door, sent: bytes) -> None:
    with timed_door.connect() as client:
        client.send(CONNECT[:-1])
        timed_door.advance(9.0)
        client.send(CONNECT[-1:])
        client.read_until(b"\r\n\r\n")
        client.send(sent)
        strike(timed_door, client, 10.0)
        assert client.read_to_end() == b""


@pytest.mark.limit("head_seconds")
@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HT"])
def test_a_first_head_has_30_s(timed_door: Door, sent: bytes) -> None:
    with timed_door.plain() as client:
        client.send(sent)
        strike(timed_door, client, 30.0)
        if sent:
            assert client.answer().status == 408
            timed_door.advance(2.0)
        assert client.read_to_end() == b""


@pytest.mark.limit("head_seconds", "keep_alive_seconds")
@pytest.mark.parametrize("idle", [0.0, 74.0])
def test_a_later_head_has_30_s_from_its_first_byte(timed_door: Door, upstream: Upstream, idle: float) -> None:
    with timed_door.plain() as client:
        begin(client, upstream).respond()
        assert client.answer().status == 200
        timed_door.advance(idle)
        client.send(b"PO")
        timed_door.advance(20.0)
        client.send(b"ST")
        strike(timed_door, client, 10.0)
        assert client.answer().status == 408


@pytest.mark.limit("body_progress_seconds")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_30_s_from_one_byte_to_the_next(timed_door: Door, chunked: bool) -> None:
    request = post(b'{"abcde":1}')
    if chunked:
        request = request.replace(b"Content-Length: 11", b"Transfer-Encoding: chunked").replace(b"\r\n{", b"\r\nb\r\n{")
    with timed_door.plain() as client:
        client.send(request[:-5])
        for byte in request[-5:-2]:
            timed_door.advance(30.0 - BEFORE)
            assert is_quiet(client)
            client.send(bytes([byte]))
        strike(timed_door, client, 30.0)
        assert client.answer().status == 408


@pytest.mark.limit("keep_alive_seconds")
def test_an_idle_client_has_75_s(timed_door: Door, upstream: Upstream) -> None:
    with timed_door.plain() as client:
        begin(client, upstream).respond()
        assert client.answer().status == 200
        strike(timed_door, client, 75.0)
        assert client.read_to_end() == b""


@pytest.mark.limit("response_header_seconds")
@pytest.mark.parametrize(("timeout", "seconds"), [(0, 120.0), (7.5, 7.5), (300.0, 300.0)])
def test_response_headers_have_120_s_or_the_route_timeout(upstream: Upstream, timeout: float, seconds: float) -> None:
    with (
        Door(candidate(upstream.url, timeout_seconds=timeout), clock=FakeClock()) as door,
        door.plain() as client,
    ):
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 200 OK\r\n")
        strike(door, client, seconds)
        assert client.answer().status == 503
        assert peer.wait_closed()


@pytest.mark.limit("chunk_idle_seconds")
def test_a_stream_has_120_s_from_one_chunk_to_the_next(timed_door: Door, upstream: Upstream) -> None:
    with timed_door.plain() as client:
        peer = begin(client, upstream)
        peer.start_events()
        client.read_until(b"\r\n\r\n")
        for _ in range(2):
            timed_door.advance(120.0 - BEFORE)
            assert is_quiet(client)
            peer.chunk(b": still here\n\n")
            client.read_until(b": still here\n\n\r\n")
        strike(timed_door, client, 120.0)
        assert b"response truncated: chunk idle timeout exceeded" in client.read_until(b"0\r\n\r\n")
        assert peer.wait_closed()


@pytest.mark.limit("client_stall_seconds")
def test_a_client_that_takes_nothing_has_120_s_and_the_upstream_waits_with_it(
    timed_door: Door, upstream: Upstream
) -> None:
    with timed_door.plain() as client:
        peer = begin(client, upstream)
        peer.start_events()
        fill(peer)
        timed_door.advance(120.0 - BEFORE)
        assert is_quiet(peer)
        timed_door.advance(BEFORE)
        assert not is_quiet(peer)


def fill(peer: UpstreamPeer) -> None:
    """Send until nothing more is taken, which is when the client's side of the door is full as well."""
    event = b"data: " + b"x" * 60_000 + b"\n\n"
    chunks = b"%x\r\n%b\r\n" % (len(event), event)
    peer.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        peer.send(chunks * 1000)


@pytest.mark.limit("idle_clear_seconds")
def test_a_kept_connection_without_tls_has_4_s(timed_door: Door, upstream: Upstream) -> None:
    with timed_door.plain() as client:
        peer = begin(client, upstream)
        peer.respond()
        assert client.answer().status == 200
        timed_door.advance(4.0)
        assert is_quiet(peer)
        timed_door.advance(BEFORE)
        assert peer.wait_closed()


@pytest.mark.limit("idle_tls_seconds")
def test_a_kept_connection_with_tls_has_20_s(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = trustme.CA()
    bundle = tmp_path_factory.mktemp("ca") / "bundle.pem"
    authority.cert_pem.write_to_path(bundle)
    with Upstream(server_context(authority)) as upstream:
        peers: list[UpstreamPeer] = []

        def serve() -> None:
            peers.append(upstream.accept())
            peers[0].request()
            peers[0].respond()

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            Door(candidate(upstream.url, ca_bundle=str(bundle)), clock=FakeClock()) as door,
            door.plain() as client,
        ):
            client.send(post())
            assert client.answer().status == 200
            thread.join()
            door.advance(20.0)
            peers[0].sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                peers[0].sock.recv(1)
            door.advance(BEFORE)
            assert peers[0].wait_closed()


def answered_late(upstream: Upstream, delay: float) -> Callable[[], None]:
    def serve() -> None:
        peer = upstream.accept()
        peer.request()
        assert not peer.wait_closed(delay)
        peer.sock.settimeout(10)
        peer.respond(b'{"late":1}')

    return serve


@pytest.mark.limit("buffered_seconds")
def test_a_system_call_without_a_route_timeout_has_its_own_limit(upstream: Upstream, quick_limits: Limits) -> None:
    route = candidate(upstream.url, route="sandbox-system")
    arguments: tuple[Any, ...] = ("openai_chat_completions", "POST", "/v1/chat/completions", [], b"{}")
    patient = replace(quick_limits, buffered_seconds=20.0, response_header_seconds=60.0)
    thread = threading.Thread(target=answered_late(upstream, 0.3))
    thread.start()
    with Door(route, limits=patient) as door:
        assert door.system_inference(*arguments).body == b'{"late":1}'
    thread.join()
    with Door(route, limits=replace(patient, buffered_seconds=0.3)) as door:
        started = time.monotonic()
        with pytest.raises(UpstreamUnavailable):
            door.system_inference(*arguments)
        assert 0.29 < time.monotonic() - started < 10
        assert upstream.accept().wait_closed()


@pytest.mark.limit("connect_seconds")
@pytest.mark.parametrize(("seconds", "status"), [(20.0, 200), (0.3, 503)])
def test_the_connection_to_an_upstream_tls_included_has_its_limit(seconds: float, status: int) -> None:
    # The upstream takes the connection at once and its part of the handshake 0.6 s later.
    authority = trustme.CA()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            sock, _ = listener.accept()
            sock.settimeout(10)
            peer = UpstreamPeer(sock)
            with sock:
                if status == 503:
                    assert peer.wait_closed(5.0)
                    return
                threading.Event().wait(0.6)
                peer.sock = server_context(authority).wrap_socket(sock, server_side=True)
                peer.request()
                peer.respond()
                peer.sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with authority.cert_pem.tempfile() as bundle:
            route = candidate(f"https://localhost:{port}/v1", ca_bundle=bundle)
            limits = replace(DEFAULT_LIMITS, connect_seconds=seconds)
            with Door(route, limits=limits) as door, door.plain() as client:
                client.send(post())
                assert client.answer().status == status
        thread.join()
