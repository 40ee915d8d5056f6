"""The door without CONNECT, for clients that ignore proxy variables: the same checks, limits and log."""

import gc
import ssl
import time
from collections.abc import Callable

import pytest

from pointsman.proxy.client_connection import ClientConnection
from tests.support.door import Door
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream

CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"


def at_tls(door: Door, way: str) -> RawClient:
    """A client for which TLS is what comes next."""
    if way == "direct":
        return door.direct()
    client = door.connect()
    client.send(CONNECT)
    client.read_until(b"\r\n\r\n")
    return client


both_ways = pytest.mark.parametrize("way", ["tunnel", "direct"])


def test_a_client_that_was_led_here_by_name_gets_the_same_answer_and_log(door: Door, upstream: Upstream) -> None:
    with door.direct() as client:
        client.start_tls(door.client_context(), "inference.local")
        client.send(post(b'{"model":"a"}'))
        peer = upstream.accept()
        assert peer.request().body == b'{"model":"real-model"}'
        peer.respond(b'{"id":1}')
        assert client.answer().body == b'{"id":1}'
        client.send(b"GET /elsewhere HTTP/1.1\r\nHost: inference.local\r\n\r\n")
        assert client.answer().status == 403
    assert "infer_completed" in door.logged()


@both_ways
@pytest.mark.parametrize("name", ["example.com", "xinference.local", "localhost", None])
def test_tls_for_another_name_is_refused(door: Door, way: str, name: str | None) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with at_tls(door, way) as client, pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        context.wrap_socket(client.sock, server_hostname=name)


@pytest.mark.parametrize("spoken", [CONNECT, b"GET /v1/models HTTP/1.1\r\nHost: inference.local\r\n\r\n"])
def test_what_is_not_tls_gets_no_answer(door: Door, spoken: bytes) -> None:
    with door.direct() as client:
        client.send(spoken)
        assert b"HTTP/" not in client.read_to_end()
    assert "internal error" not in door.logged()


@both_ways
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_handshake_must_end_in_time(quick_door: Door, way: str, sent: bytes) -> None:
    with at_tls(quick_door, way) as client:
        client.send(sent)
        started = time.monotonic()
        client.read_to_end()
        assert time.monotonic() - started > 0.2


@both_ways
def test_a_handshake_in_time_has_no_deadline_left(quick_door: Door, way: str) -> None:
    with at_tls(quick_door, way) as client:
        client.start_tls(quick_door.client_context(), "inference.local")
        client.sock.settimeout(10)
        # The deadline of a request's head is what ends it, and that one answers.
        client.send(b"GET /v1/models HTTP/1.1\r\n")
        assert client.answer().status == 408


@both_ways
def test_a_handshake_that_fails_leaves_nothing_behind(door: Door, way: str) -> None:
    def broken(client: RawClient) -> None:
        client.send(b"rubbish, not TLS\r\n\r\n")
        client.read_to_end()

    def left(client: RawClient) -> None:
        client.reset()

    def half(client: RawClient) -> None:
        client.half_close()
        client.read_to_end()

    ways_to_fail: tuple[Callable[[RawClient], None], ...] = (broken, left, half)
    for fail in ways_to_fail:
        with at_tls(door, way) as client:
            fail(client)
    deadline = time.monotonic() + 10
    while True:
        gc.collect()
        kept = [each for each in gc.get_objects() if type(each) is ClientConnection]
        if not kept:
            break
        assert time.monotonic() < deadline, f"{len(kept)} connections are still there"
        time.sleep(0.02)
