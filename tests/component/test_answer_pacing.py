"""An answer that is searched beside the event loop: its upstream waits, whatever the client does."""

import select
import threading
import time

import pytest

from pointsman.core.model_table import ModelTable
from pointsman.proxy.answer_searches import MOST_ON_THE_LOOP
from pointsman.proxy.stages import Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer

EVENT = b"data: " + b"x" * 65_528 + b"\n\n"
MOST_TAKEN = 24 << 20
"""Bytes that the kernels' buffers of both ends may hold, with air."""
ENOUGH = 64 << 20
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Gate:
    """A filter that holds nothing, and takes as long as a test wants."""

    holds = True
    held = 0

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def work(self, data: bytes, *, last: bool) -> int:
        return MOST_ON_THE_LOOP + 1

    def receive(self, data: bytes) -> bytes:
        self.begun.set()
        assert self.go_on.wait(60)
        return data

    def finish(self, *, is_whole: bool = True) -> bytes:
        return b""


def taken_of(peer: UpstreamPeer, most: int) -> int:
    """Bytes of chunks that are taken before nothing more is for a second."""
    chunk = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
    peer.sock.setblocking(False)
    taken = 0
    rest = memoryview(b"")
    while taken < most:
        if not rest:
            rest = memoryview(chunk)
        if not select.select([], [peer.sock], [], 1.0)[1]:
            break
        sent = peer.sock.send(rest)
        taken, rest = taken + sent, rest[sent:]
    peer.sock.setblocking(True)
    while rest:
        rest = rest[peer.sock.send(rest) :]
    return taken


def asked(door: DataDoor, upstream: Upstream) -> tuple[RawClient, UpstreamPeer]:
    client = door.connect()
    client.send(post(b'{"model":"fast","stream":true}', b"/v1/chat/completions"))
    peer = upstream.accept()
    peer.request()
    peer.start_events()
    peer.chunk(EVENT)
    return client, peer


@pytest.mark.guarantee("P9")
def test_an_upstream_is_not_read_while_its_answer_waits_for_a_search_and_is_read_to_its_end_then(
    upstream: Upstream,
) -> None:
    gate = Gate()
    door = DataDoor(table=ModelTable({"fast": candidate(upstream.url, route="fast")}))
    door.stages = Stages(response_policy=lambda record, head: gate)
    with door:
        client, peer = asked(door, upstream)
        assert gate.begun.wait(30)
        taken = taken_of(peer, ENOUGH)
        assert taken < MOST_TAKEN
        gate.go_on.set()
        end = threading.Thread(target=peer.send, args=(LAST,))
        end.start()
        answer = client.answer()
        end.join()
        client.close()
    assert answer.complete
    assert answer.body.count(b"data: x") >= taken // len(EVENT)
    assert answer.body.endswith(b"data: [DONE]\n\n")


def test_a_client_that_goes_while_its_answer_is_searched_stops_the_upstream_that_waits(upstream: Upstream) -> None:
    gate = Gate()
    door = DataDoor(table=ModelTable({"fast": candidate(upstream.url, route="fast")}))
    door.stages = Stages(response_policy=lambda record, head: gate)
    with door:
        client, peer = asked(door, upstream)
        assert gate.begun.wait(30)
        assert taken_of(peer, ENOUGH) < MOST_TAKEN
        client.close()
        began = time.monotonic()
        assert peer.wait_closed(30)
        assert time.monotonic() - began < 30
        gate.go_on.set()
