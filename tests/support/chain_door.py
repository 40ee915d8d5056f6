"""A chain of upstreams that a test plays by hand, behind a data listener."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pointsman.core.attempts import Chain, Member
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Counters, Quota, QuotaKey
from pointsman.proxy.ledger import QuotaLedger
from tests.support.data_door import ENDS, DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, RawClient
from tests.support.upstream import Upstream, UpstreamPeer

OK = b'{"ok":true}'
NOTHING: Mapping[str, Any] = MappingProxyType({})


def _words(event: Mapping[str, Any]) -> Iterator[str]:
    for name in ("provider", "from_provider", "to_provider", "reason", "http_status", "attempts"):
        if name in event:
            yield str(event[name] if event[name] != "" else "nobody")
    if event.get("fallback"):
        yield "fallback"
    if "ordered_providers" in event:
        yield ",".join(event["ordered_providers"])
        yield from (f"without {each['provider']}: {each['reason']}" for each in event["skipped"])


class ChainDoor:
    """A chain of upstreams that the test plays, behind a data listener."""

    def __init__(self, upstreams: list[Upstream], data: DataDoor) -> None:
        self.upstreams = upstreams
        self.data = data
        self.client: RawClient | None = None
        self.requests = 0
        self.may_break = False
        """Whether an error of our own is what the test is about."""

    def ask(self, *, stream: bool = False, body: bytes = b"") -> None:
        body = body or b'{"model":"fast","stream":%b}' % (b"true" if stream else b"false")
        self.client = self.data.connect()
        self.requests += 1
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        self.client.send(head.encode() + body)

    def asked(self, number: int) -> UpstreamPeer:
        """The connection on which an upstream was asked; its request has been read."""
        peer = self.upstreams[number].accept()
        received = peer.request()
        assert json.loads(received.body)["model"] == f"model-{number}"
        return peer

    def answer(self) -> Answer:
        assert self.client is not None
        answer = self.client.answer()
        self.client.close()
        return answer

    def counters(self, number: int) -> Counters:
        async def look() -> Counters:
            return self.data.ledger.counters(QuotaKey("default", f"p{number}"), Quota(), time.time())

        return self.data.call(look())

    def told(self) -> list[str]:
        """The last request's events without its start: what of them tells it from others, in one line each."""
        events = self.data.ended(self.requests)
        mine = [each for each in events if each["request_id"] == events[-1]["request_id"]]
        return [" ".join([each["event"], *_words(each)]) for each in mine[1:]]

    def used(self) -> list[int]:
        return [self.counters(number).daily for number in range(len(self.upstreams))]


@contextmanager
def chain(
    count: int = 2,
    *,
    limits: Limits = DEFAULT_LIMITS,
    ledger: QuotaLedger | None = None,
    made: Mapping[str, Any] = NOTHING,
    **member: Any,
) -> Iterator[ChainDoor]:
    """Upstreams p0, p1 … in that order. `made` changes the chain by its fields, the others every member.

    In the end, every request must have been told to the operation log from its start to one end.
    """
    with ExitStack() as stack:
        upstreams = [stack.enter_context(Upstream()) for _ in range(count)]
        members = tuple(
            replace(Member(f"p{number}", candidate(upstream.url, route="fast", model=f"model-{number}")), **member)
            for number, upstream in enumerate(upstreams)
        )
        route = replace(Chain("default", "fast", members, "in_order", request_timeout_seconds=30.0), **made)
        data = DataDoor(table=ModelTable({"fast": route}), limits=limits)
        data.ledger = ledger or data.ledger
        stack.enter_context(data)
        door = ChainDoor(upstreams, data)
        yield door
        if door.client is not None:
            door.client.close()
        assert door.may_break or "internal error" not in data.logged()
        started = sorted(each["request_id"] for each in data.operations() if each["event"] == "infer_started")
        ended = sorted(each["request_id"] for each in data.ended(len(started)) if each["event"] in ENDS)
        assert started == ended


def deny(peer: UpstreamPeer, status: int, body: bytes = b"{}", fields: bytes = b"") -> None:
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
    peer.send(head % (status, len(body), fields) + body)


def serve(door: ChainDoor, peer: UpstreamPeer, *, stream: bool) -> None:
    if stream:
        peer.start_events(b"Connection: close\r\n")
        peer.chunk(b'data: {"n":1}\n\n')
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_chunks()
    else:
        peer.respond(OK, b"Content-Type: application/json\r\nConnection: close\r\n")
    answer = door.answer()
    assert answer.status == 200
    assert answer.body == (b'data: {"n":1}\n\ndata: [DONE]\n\n' if stream else OK)


def limited(door: ChainDoor, quota: Quota) -> Chain:
    made = door.data.table.targets["fast"]
    assert isinstance(made, Chain)
    return replace(made, members=tuple(replace(member, quota=quota) for member in made.members))
