"""Clients that ask and never read: what waits for them is bounded, others are served, and patience ends."""

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.support.answering_upstream import FAT_ANSWER, AnsweringUpstream
from tests.support.raw_client import RawClient, post
from tests.support.waiting import wait_until
from tests.support.watched import SOON_LEVEL, WatchedRouter

pytestmark = pytest.mark.alone

PER_CLIENT = 1.0
"""MiB in the process for a client that reads nothing: 64 KiB until writing pauses, one read of the upstream behind it
(256 KiB), the same once more while it is encrypted, the connections' own objects. The rest waits in the kernel."""
SOME = 16
CLIENTS = 40


@pytest.fixture(scope="module")
def router(answering: AnsweringUpstream) -> Iterator[WatchedRouter]:
    limits = {"client_stall_seconds": 2.0, **SOON_LEVEL}
    with WatchedRouter({"main": {"url": answering.url}}, limits) as router:
        router.settle()
        yield router


@pytest.mark.parametrize(("flood", "tunnel"), [(b"events", True), (b"json", False)])
def test_clients_that_never_read_hold_little_and_are_dropped(
    router: WatchedRouter, answering: AnsweringUpstream, flood: bytes, tunnel: bool
) -> None:
    query = b"flood=" + flood
    with router.withstanding(mib=CLIENTS * PER_CLIENT + SOME), contextlib.ExitStack() as stack:
        before = answering.answered[query]
        for _ in range(CLIENTS):
            client = stack.enter_context(router.tunnel() if tunnel else router.plain())
            client.send(post(path=b"/v1/chat/completions?" + query))
        wait_until(lambda: answering.answered[query] == before + CLIENTS)
        assert router.serve_one() < 5.0
        # They stay, and the router ends it: the level is reached again while their sockets are still open.
        router.wait_level()


def pipeline(client: RawClient, answering: AnsweringUpstream, seconds: float) -> int:
    """Keep requests waiting at the router's door without reading an answer; how many went."""
    request = post(path=b"/v1/chat/completions?fat")
    before, sent = answering.answered[b"fat"], 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if sent - (answering.answered[b"fat"] - before) < 200:
            client.send(request * 100)
            sent += 100
        else:
            time.sleep(0.005)
    return sent


@pytest.mark.parametrize("tunnel", [True, False])
def test_answers_to_pipelined_requests_do_not_pile_up(
    router: WatchedRouter, answering: AnsweringUpstream, tunnel: bool
) -> None:
    before = answering.answered[b"fat"]
    with router.withstanding(mib=PER_CLIENT + SOME), router.tunnel() if tunnel else router.plain() as client:
        sent = pipeline(client, answering, 1.0)
        # What the kernel's buffers take, and no more: 60 MiB a second came when nothing held them back.
        assert (answering.answered[b"fat"] - before) * len(FAT_ANSWER) < 32 * 1024 * 1024
        assert router.serve_one() < 5.0
        # A client that reads after all gets everything, in order.
        for _ in range(sent):
            answer = client.answer()
            assert (answer.status, answer.body) == (200, FAT_ANSWER)
    assert answering.answered[b"fat"] - before == sent


def test_refusals_of_pipelined_requests_do_not_pile_up(router: WatchedRouter) -> None:
    # Answered without any upstream: JSON that is none, which leaves the connection open.
    request = post(b"[")
    with router.withstanding(mib=PER_CLIENT + SOME), router.plain() as client:
        client.sock.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            for _ in range(4000):
                client.send(request * 250)
                sent += 250
        # It was stopped: by what it may have waiting, or because nothing was taken from it any more.
        assert sent < 1_000_000
