"""A client that goes away takes its request with it, in every phase (DESIGN 6.5), and a slow one is waited for."""

import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from pointsman.core.limits import Limits
from tests.support.door import Door, candidate
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer


def leave(client: RawClient, how: str) -> None:
    {"fin": client.close, "half": client.half_close, "rst": client.reset}[how]()


@pytest.mark.guarantee("F18")
@pytest.mark.guarantee("R11", "U6")
@pytest.mark.parametrize("how", ["fin", "half", "rst"])
@pytest.mark.parametrize("phase", ["before the head", "mid-stream", "mid-json", "before the first event"])
@pytest.mark.parametrize("tunnel", [True, False])
def test_a_client_that_leaves_closes_the_upstream(
    door: Door, upstream: Upstream, how: str, phase: str, tunnel: bool
) -> None:
    client = door.tunnel() if tunnel else door.plain()
    client.send(post())
    peer = upstream.accept()
    peer.request()
    if phase == "mid-stream":
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
    elif phase == "before the first event":
        peer.start_events()
        client.read_until(b"\r\n\r\n")
    elif phase == "mid-json":
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
        client.read_until(b"{")
    leave(client, how)
    assert peer.wait_closed(1.0)
    client.close()
    assert "infer_cancelled" in door.logged()


@pytest.mark.guarantee("F18")
def test_a_client_that_leaves_in_the_middle_of_its_body_reaches_no_upstream(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        client.send(post(b'{"a":1}')[:-1])
    assert upstream.saw_nothing()


@pytest.mark.guarantee("R11")
def test_a_client_that_leaves_while_it_reads_nothing_is_noticed(door: Door, upstream: Upstream) -> None:
    client = door.plain()
    client.send(post())
    peer = upstream.accept()
    peer.request()
    peer.start_events()
    fill(peer)
    client.reset()
    assert peer.wait_closed(1.0)


def fill(peer: UpstreamPeer) -> int:
    """Send until nothing more is taken; the bytes that went."""
    peer.sock.settimeout(0.5)
    event = b"data: " + b"x" * 60_000 + b"\n\n"
    sent = 0
    try:
        for _ in range(2000):
            peer.chunk(event)
            sent += len(event)
    except TimeoutError:
        peer.sock.settimeout(10)
        return sent
    pytest.fail("a client that reads nothing did not slow the upstream")


@pytest.mark.guarantee("R10")
@pytest.mark.parametrize("tunnel", [True, False])
def test_a_slow_client_pauses_the_upstream_and_loses_nothing(door: Door, upstream: Upstream, tunnel: bool) -> None:
    with door.tunnel() if tunnel else door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        event = b"data: " + b"x" * 60_000 + b"\n\n"
        chunk = b"%x\r\n%b\r\n" % (len(event), event)
        peer.sock.setblocking(False)
        sent = 0
        deadline = time.monotonic() + 10
        stalled = 0.0
        data = chunk * 2000
        while stalled < 0.3 and time.monotonic() < deadline:
            try:
                sent += peer.sock.send(data[sent : sent + 100_000])
                stalled_since = time.monotonic()
            except BlockingIOError:
                stalled = time.monotonic() - stalled_since
        assert 0 < sent < 40_000_000
        peer.sock.settimeout(10)
        # Now the client reads: the rest of the chunk under way and the end of the stream get through.
        rest = data[sent : -(-sent // len(chunk)) * len(chunk)]
        sender = threading.Thread(target=peer.send, args=(rest + b"0\r\n\r\n",))
        sender.start()
        answer = client.answer()
        sender.join()
    assert answer.complete
    assert answer.body == event * -(-sent // len(chunk))


def test_a_client_that_reads_nothing_for_too_long_is_dropped(quick_door: Door, upstream: Upstream) -> None:
    with quick_door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        with suppress(ConnectionResetError):  # it may come while we still fill
            fill(peer)
        assert peer.wait_closed(2.0)


def test_the_idle_clock_stands_still_while_the_client_is_slow(upstream: Upstream, quick_limits: Limits) -> None:
    limits = replace(quick_limits, chunk_idle_seconds=0.1, client_stall_seconds=30.0)
    with Door(candidate(upstream.url), limits=limits) as door, door.plain() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        fill(peer)  # takes longer than the idle limit after the last byte
        peer.sock.settimeout(0.3)
        assert not peer.wait_closed(0.3)


@pytest.mark.parametrize(
    ("last", "outcome"), [(b"data: [DONE]\n\n", "infer_completed"), (b"data: {}\n\n", "infer_cancelled")]
)
def test_a_client_that_hangs_up_on_the_last_event_has_had_its_answer(
    door: Door, upstream: Upstream, last: bytes, outcome: str
) -> None:
    with door.tunnel() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(last)
        client.read_until(last)
    assert peer.wait_closed(1.0)
    assert outcome in door.logged()
