"""Connections that only cost a place: idle in every phase, dripping, leaving in every phase, coming in floods."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.answering_upstream import AnsweringUpstream
from tests.support.raw_client import RawClient, post
from tests.support.waiting import wait_until
from tests.support.watched import CONNECT, SOON_LEVEL, WatchedRouter

pytestmark = pytest.mark.alone

MANY = 500
PER_CONNECTION = 0.15
"""MiB of a connection inside TLS: OpenSSL's two buffers and state, and the objects of its phases."""
SOME = 16
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)
"""The start of a ClientHello."""
QUICK = {
    "connect_head_seconds": 1.0,
    "tls_handshake_seconds": 1.0,
    "head_seconds": 1.0,
    "body_progress_seconds": 1.0,
    "keep_alive_seconds": 1.0,
    **SOON_LEVEL,
}


@pytest.fixture(scope="module")
def quick_router(answering: AnsweringUpstream) -> Iterator[WatchedRouter]:
    with WatchedRouter({"main": {"url": answering.url}}, QUICK) as router:
        router.settle()
        yield router


def at_connect(router: WatchedRouter) -> RawClient:
    client = router.connect()
    client.send(CONNECT[:20])
    return client


def at_handshake(router: WatchedRouter) -> RawClient:
    client = router.connect()
    client.send(CONNECT + HELLO)
    client.read_until(b"\r\n\r\n")
    return client


def inside(sent: bytes) -> Callable[[WatchedRouter], RawClient]:
    def enter(router: WatchedRouter) -> RawClient:
        client = router.tunnel()
        client.send(sent)
        return client

    return enter


def kept(router: WatchedRouter) -> RawClient:
    client = inside(post())(router)
    assert client.answer().status == 200
    return client


PHASES: dict[str, Callable[[WatchedRouter], RawClient]] = {
    "nothing sent": WatchedRouter.connect,
    "in CONNECT": at_connect,
    "in the handshake": at_handshake,
    "before a head": WatchedRouter.tunnel,
    "in a head": inside(post()[:40]),
    "in a body": inside(post(b"{" * 2000)[:-500]),
    "in a chunk": inside(post()[:-2].replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + b"ffff\r\n{"),
    "between requests": kept,
}


@pytest.mark.parametrize("phase", PHASES)
def test_500_idle_connections_block_nobody(router: WatchedRouter, phase: str) -> None:
    with router.withstanding(mib=MANY * PER_CONNECTION + SOME), contextlib.ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(PHASES[phase](router))
        # All of them have been accepted; one or two kept upstream connections may have gone meanwhile.
        wait_until(lambda: router.report().descriptors >= router.level.descriptors + MANY - 5)
        for _ in range(3):
            assert router.serve_one() < 5.0


def test_the_deadline_of_every_phase_ends_idle_connections(quick_router: WatchedRouter) -> None:
    with quick_router.withstanding(mib=SOME + 20), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(enter(quick_router)) for enter in PHASES.values() for _ in range(15)]
        quick_router.wait_level()  # though no client has left
        for client in clients:
            client.read_to_end()


@pytest.mark.parametrize("phase", ["in CONNECT", "in the handshake", "in a head"])
def test_a_byte_now_and_then_does_not_help(quick_router: WatchedRouter, phase: str) -> None:
    with quick_router.withstanding(mib=SOME), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(PHASES[phase](quick_router)) for _ in range(30)]
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                for client in clients:
                    with contextlib.suppress(OSError):
                        client.send(b"a" if phase != "in the handshake" else b"\x00")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            quick_router.wait_level()
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("how", ["fin", "half", "rst"])
def test_whoever_leaves_in_whatever_phase_leaves_nothing(router: WatchedRouter, how: str) -> None:
    asked = inside(post(path=b"/v1/chat/completions?flood=events"))
    with router.withstanding(mib=SOME + 40), contextlib.ExitStack() as stack:
        for enter in [*PHASES.values(), asked]:
            for _ in range(15):
                client = stack.enter_context(enter(router))
                if how == "fin":
                    client.close()
                elif how == "rst":
                    client.reset()
                else:
                    client.half_close()
        router.wait_level()  # those that are half closed are still open on this side


def flood(router: WatchedRouter, stop: threading.Event, act: Callable[[RawClient], None], count: list[int]) -> None:
    while not stop.is_set():
        with router.connect() as client, contextlib.suppress(OSError, AssertionError):
            act(client)
        count.append(1)


def say_nothing(client: RawClient) -> None:
    client.reset()


def say_hello(client: RawClient) -> None:
    client.send(CONNECT + HELLO)


def ask_elsewhere(client: RawClient) -> None:
    client.send(CONNECT.replace(b"inference.local", b"example.com"))
    client.read_to_end()


@pytest.mark.parametrize("act", [say_nothing, say_hello, ask_elsewhere])
def test_a_flood_of_connections_leaves_the_door_open(router: WatchedRouter, act: Callable[[RawClient], None]) -> None:
    count: list[int] = []
    stop = threading.Event()
    with router.withstanding(mib=SOME):
        threads = [threading.Thread(target=flood, args=(router, stop, act, count)) for _ in range(3)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert router.serve_one() < 5.0
        stop.set()
        for thread in threads:
            thread.join()
    assert len(count) > 100


def test_200_handshakes_that_come_at_once_do_not_hold_up_the_loop(router: WatchedRouter) -> None:
    hello = client_hello(router)
    with router.withstanding(mib=200 * PER_CONNECTION + SOME):
        clients = [router.connect() for _ in range(200)]
        for client in clients:
            client.send(CONNECT)
            client.read_until(b"\r\n\r\n")
        for client in clients:
            client.send(hello)
        for client in clients:
            assert client.sock.recv(1, socket.MSG_PEEK) == b"\x16"
        for client in clients:
            client.close()


def client_hello(router: WatchedRouter) -> bytes:
    """A whole ClientHello for the door."""
    outgoing = ssl.MemoryBIO()
    tls = router.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="inference.local")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
