"""What a connection used goes when it goes: nothing waits for the garbage collector, which comes late by design."""

import contextlib
import gc
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.tls_transport import TlsTransport
from pointsman.proxy.tunnel import Tunnel
from pointsman.proxy.upstream.connection import UpstreamConnection
from pointsman.proxy.upstream.exchange import Exchange
from pointsman.wire.request import Request, RequestReader
from tests.support.door import Door
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, begin

KINDS = (ClientConnection, TlsTransport, Tunnel, UpstreamConnection, Exchange, RequestReader, Request)
CONNECT = b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n"


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    # What other tests have left is of no interest, and to look through it all takes seconds.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def alive() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS))


def idle(door: Door, upstream: Upstream) -> None:
    door.connect().close()


def refused(door: Door, upstream: Upstream) -> None:
    with door.connect() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        client.read_to_end()


def in_the_handshake(door: Door, upstream: Upstream) -> None:
    with door.connect() as client:
        client.send(CONNECT + b"\x16\x03\x01\x02\x00")
        client.read_until(b"\r\n\r\n")


def failing_the_handshake(door: Door, upstream: Upstream) -> None:
    with door.connect() as client:
        client.send(CONNECT)
        client.read_until(b"\r\n\r\n")
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ssl.SSLError, OSError):
            client.read_to_end()


def in_a_body(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post(b"{" * 100)[:-1])


def answered(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        begin(client, upstream).respond(fields=b"Connection: close\r\n")
        assert client.answer().status == 200


def cancelled(how: Callable[[RawClient], None], door: Door, upstream: Upstream) -> None:
    client = door.tunnel()
    peer = begin(client, upstream)
    peer.start_events()
    peer.chunk(b"data: 1\n\n")
    client.read_until(b"data: 1\n\n\r\n")
    how(client)
    client.close()
    assert peer.wait_closed()


def waiting_for_a_head(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
    assert peer.wait_closed()


def truncated(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        peer.close()
        assert not client.answer().complete


def broken(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        begin(client, upstream).send(b"garbage\r\n\r\n")
        assert client.answer().status == 502


ENDS: dict[str, Callable[[Door, Upstream], None]] = {
    "idle": idle,
    "refused": refused,
    "in the handshake": in_the_handshake,
    "failing the handshake": failing_the_handshake,
    "in a body": in_a_body,
    "answered": answered,
    "waiting for a head": waiting_for_a_head,
    "truncated": truncated,
    "broken": broken,
    "left by FIN": lambda door, upstream: cancelled(RawClient.close, door, upstream),
    "left by RST": lambda door, upstream: cancelled(RawClient.reset, door, upstream),
}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("end", ENDS)
def test_a_connection_leaves_no_object_behind(door: Door, upstream: Upstream, end: str) -> None:
    door.call(settled())
    before = alive()
    for _ in range(3):
        ENDS[end](door, upstream)
    deadline = time.monotonic() + 5
    while True:
        door.call(settled())
        left = alive() - before
        if not left or time.monotonic() > deadline:
            break
    assert not left


async def settled() -> None:
    """A turn of the loop."""
