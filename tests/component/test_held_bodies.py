"""Bodies of all connections together have a bound: one agent may open as many connections as it likes."""

import socket
from dataclasses import replace

import pytest

from pointsman.core.errors import Overloaded
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.proxy.held_bodies import HeldBodies
from tests.support.door import Door, candidate
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, begin

KIB = 1024
LIMITS = replace(DEFAULT_LIMITS, held_body_bytes=100 * KIB)
BODY = b'{"a":"' + b"x" * (80 * KIB - 8) + b'"}'
HALF = len(post(BODY)) - 20 * KIB
CHUNKED = post().replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2]


@pytest.mark.limit("held_body_bytes")
@pytest.mark.parametrize("extra", [0, 1])
def test_bodies_may_hold_the_limit_together(extra: int) -> None:
    bodies = HeldBodies(100)
    bodies.change(0, 60)
    if extra:
        with pytest.raises(Overloaded):
            bodies.change(0, 41)
    else:
        bodies.change(0, 40)
    bodies.change(60, 0)  # letting go never fails, whatever the others hold
    assert bodies.total == 40 + extra


def half(door: Door, request: bytes = post(BODY)[:HALF]) -> RawClient:
    """A client whose body has come in part, and is held."""
    client = door.plain()
    client.send(request)
    return client


@pytest.mark.limit("held_body_bytes")
@pytest.mark.parametrize("late", [post(BODY)[:HALF], CHUNKED + b"FFFF\r\n" + b"{" * 60 * KIB])
def test_whose_body_is_too_much_for_all_is_503_and_the_others_go_on(upstream: Upstream, late: bytes) -> None:
    with Door(candidate(upstream.url), limits=LIMITS) as door, half(door) as first:
        _until_held(door, 50 * KIB)
        with half(door, late) as second:
            answer = second.answer()
            assert (answer.status, answer.body) == (503, b'{"error":"inference service unavailable"}')
            assert second.read_to_end() == b""
        first.send(post(BODY)[HALF:])
        peer = upstream.accept()
        assert len(peer.request().body) > len(BODY)
        peer.respond()
        assert first.answer().status == 200
        first.send(post(BODY))  # what the first one held has been let go, on the same connection and by the other
        peer.request()
        peer.respond()
        assert first.answer().status == 200
        assert "reason=overloaded" in door.logged()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_holds_nothing(upstream: Upstream, how: str) -> None:
    with Door(candidate(upstream.url), limits=LIMITS) as door:
        for _ in range(5):  # together four times what may be held
            client = half(door)
            _until_held(door, 50 * KIB)
            getattr(client, how)()
            _until_held(door, 0, 0)


def _until_held(door: Door, least: int, most: int = LIMITS.held_body_bytes) -> None:
    """Wait until as much is held."""

    async def held() -> int:
        return door.router.held_body_bytes

    while not least <= door.call(held()) <= most:
        pass


@pytest.mark.limit("connections")
def test_the_door_takes_as_many_connections_as_its_limit_and_says_when_there_are_more(upstream: Upstream) -> None:
    limits = replace(DEFAULT_LIMITS, connections=2)
    with Door(candidate(upstream.url), limits=limits) as door, door.tunnel() as first, door.tunnel():
        with door.connect() as third:
            third.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n")
            assert third.answer().status == 503
        with RawClient(socket.create_connection(door.direct_address, 10)) as fourth:
            assert fourth.read_to_end() == b""
            assert fourth.how_ended in ("closed", "reset")
        assert door.logged().count("reason=overloaded") == 2
        first.close()
        _until_left(door, 1)
        with door.tunnel() as next_one:
            begin(next_one, upstream).respond()
            assert next_one.answer().status == 200


def _until_left(door: Door, count: int) -> None:
    async def connections() -> int:
        return door.router.open_connections

    while door.call(connections()) != count:
        pass


@pytest.mark.parametrize("size", [16 * KIB, 16 * KIB + 1])
def test_a_body_that_came_at_once_counts_beyond_16_kib(upstream: Upstream, size: int) -> None:
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    with Door(candidate(upstream.url)) as door, door.plain() as client:
        client.send(post(body))
        peer = upstream.accept()
        peer.request()

        async def held() -> int:
            return door.router.held_body_bytes

        assert door.call(held()) == (size if size > 16 * KIB else 0)
        peer.respond()
        assert client.answer().status == 200
