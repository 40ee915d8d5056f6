"""Upstreams that never come to an end, or send more than they say: bounded in memory and in time."""

from dataclasses import replace

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.testing import FakeClock
from tests.support.answering_upstream import AnsweringUpstream, gzip_bomb, inflated_size
from tests.support.door import Door, candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream, begin
from tests.support.watched import WatchedRouter

pytestmark = pytest.mark.alone

MIB = 1024 * 1024
SOME = 16
"""MiB that any one exchange may take: two full buffers, and the allocator's slack."""
ERROR = b'data: {"error":{"message":"response truncated: %b","type":"proxy_stream_error"}}\n\n'


def flooded(router: WatchedRouter, name: str) -> Answer:
    with router.tunnel() as client:
        client.send(post(path=b"/v1/chat/completions?flood=" + name.encode()))
        return client.answer()


@pytest.mark.parametrize("name", ["fields", "value", "reason", "interim"])
def test_a_head_without_an_end_is_502(router: WatchedRouter, answering: AnsweringUpstream, name: str) -> None:
    before = answering.flooded
    with router.withstanding(mib=SOME):
        for _ in range(5):
            assert flooded(router, name).status == 502
    assert answering.flooded - before < 5 * 8 * MIB  # what the kernel's buffers hold


@pytest.mark.parametrize("name", ["trailers", "trailer-value", "trailer-name", "extension"])
def test_framing_without_an_end_cuts_the_body(router: WatchedRouter, answering: AnsweringUpstream, name: str) -> None:
    before = answering.flooded
    with router.withstanding(mib=SOME):
        for _ in range(5):
            answer = flooded(router, name)
            assert (answer.status, answer.complete) == (200, False)
            assert answer.body in (b"{}", b"")
    assert answering.flooded - before < 5 * 8 * MIB


def test_an_event_stream_with_trailers_without_an_end_ends_in_an_error_event(router: WatchedRouter) -> None:
    with router.withstanding(mib=SOME):
        answer = flooded(router, "event-trailer-value")
        assert (answer.body, answer.complete) == (b"data: 1\n\n" + ERROR % b"upstream read error", True)


@pytest.mark.parametrize("name", ["events", "json"])
def test_a_body_without_an_end_ends_at_32_mib(router: WatchedRouter, name: str) -> None:
    with router.withstanding(mib=SOME):
        answer = flooded(router, name)
    error = ERROR % b"exceeded maximum streaming body size"
    if name == "events":
        assert answer.complete
        assert answer.body.endswith(b"x\n\n" + error)
        assert 31 * MIB < len(answer.body) - len(error) <= 32 * MIB
    else:
        assert not answer.complete
        assert 31 * MIB < len(answer.body) <= 32 * MIB


def test_a_bomb_in_gzip_is_relayed_as_it_is(router: WatchedRouter) -> None:
    with router.withstanding(mib=SOME), router.tunnel() as client:
        client.send(post(path=b"/v1/chat/completions?gzip"))
        answer = client.answer()
    assert answer.value(b"content-encoding") == b"gzip"
    assert answer.body == gzip_bomb()
    assert inflated_size(answer.body) == 64 * MIB


@pytest.mark.limit("chunk_idle_seconds")
def test_framing_that_trickles_is_not_progress(upstream: Upstream) -> None:
    with Door(candidate(upstream.url), clock=FakeClock()) as door, door.plain() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
        peer.send(b"5;a=")
        for _ in range(11):
            door.advance(10.0)
            peer.send(b"b")
        door.advance(9.999)
        peer.send(b"b")
        door.advance(0.001)
        assert ERROR % b"chunk idle timeout exceeded" in client.read_until(b"0\r\n\r\n")
        assert peer.wait_closed()


@pytest.mark.limit("response_head_bytes")
@pytest.mark.parametrize("extra", [0, 1])
def test_framing_between_two_pieces_of_a_body_may_have_the_size_of_a_head(upstream: Upstream, extra: int) -> None:
    limits = replace(DEFAULT_LIMITS, response_head_bytes=1000)
    with Door(candidate(upstream.url), limits=limits, clock=FakeClock()) as door, door.plain() as client:
        peer = begin(client, upstream)
        peer.start_events()
        client.read_until(b"\r\n\r\n")
        for _ in range(2):
            peer.send(b"9;a=")
            door.advance(0.1)
            peer.send(b"b" * (996 + extra))
            door.advance(0.1)
            if extra:
                break
            peer.send(b"\r\ndata: 1\n\n\r\n")
            client.read_until(b"data: 1\n\n\r\n")
        if extra:
            assert ERROR % b"upstream read error" in client.read_until(b"0\r\n\r\n")
        else:
            peer.end_chunks()
            assert client.read_until(b"0\r\n\r\n") == b"0\r\n\r\n"


def test_large_requests_whose_upstream_fails_go_with_their_answer(router: WatchedRouter) -> None:
    body = b'{"a":"' + b"x" * (10 * MIB - 20) + b'"}'
    # One body at a time, and once more while it is put together. Each used to stay until a full collection.
    with router.withstanding(mib=20 + SOME):
        for _ in range(8):
            with router.plain() as client:
                client.send(post(body, path=b"/v1/chat/completions?flood=value"))
                assert client.answer().status == 502
