"""What a receipt says of a request, on every way out: the bytes that passed, by their hashes."""

import json
import queue
from collections.abc import Iterator
from hashlib import sha256

import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.model_errors import InvalidKey
from pointsman.core.model_table import ModelTable, Target
from pointsman.core.receipt import Receipt, ReceiptScope
from pointsman.events.record import Record
from pointsman.gateway.stages.receipts import LARGE_BODY, ReceiptStages, receipt_of
from pointsman.proxy.stages import Passage, Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream

EMPTY = sha256().digest()
JSON = b"Content-Type: application/json\r\nConnection: close\r\n"


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


class Receipted:
    """A listener whose routes give receipts, but one; what they would say comes out of `made`."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.made: queue.Queue[Receipt | None] = queue.Queue()
        self.refuses = False
        fast = candidate(upstream.url, route="fast", provider="openai-1")
        off = candidate("http://127.0.0.1:1/v1", route="off", provider="openai-0")
        canned = candidate("mock://x", route="canned", provider="mock-1")
        again = Member("openai-1", fast)
        targets: dict[str, Target] = {
            "fast": fast,
            "quiet": candidate(upstream.url, route="quiet"),
            "off": off,
            "canned": canned,
            "chain": Chain("default", "chain", (Member("openai-0", off), again), "in_order"),
            "failing": Chain("default", "failing", (again, Member("mock-1", canned)), "in_order"),
        }
        self.door = DataDoor(table=ModelTable(targets))
        scope = ReceiptScope(routes=frozenset(targets) - {"quiet"})
        stages = ReceiptStages(scope, None, print)  # type: ignore[arg-type]  # nothing is written here
        self.door.stages = Stages(authorize=self._authorize, receipt_open=stages.open, receipt=self._close)

    async def _authorize(self, passage: Passage) -> None:
        if self.refuses:
            raise InvalidKey("not today")

    def _close(self, record: Record) -> None:
        hashes = record.notes.hashes if record.notes is not None else None
        self.made.put(None if hashes is None else receipt_of(record, hashes))

    def receipt(self) -> Receipt:
        made = self.made.get(timeout=10)
        assert made is not None
        return made

    def answered(self, body: bytes, answer: bytes) -> tuple[bytes, Answer]:
        """What the upstream got, and what the client."""
        with self.door.connect() as client:
            client.send(post(body))
            peer = self.upstream.accept()
            sent = peer.request().body
            peer.respond(answer, JSON)
            return sent, client.answer()


@pytest.fixture
def receipted(upstream: Upstream) -> Iterator[Receipted]:
    receipted = Receipted(upstream)
    with receipted.door:
        yield receipted
    assert not receipted.door.leftover
    assert receipted.made.empty()


@pytest.mark.guarantee("V1")
def test_all_four_hashes_are_those_of_the_bytes(receipted: Receipted) -> None:
    body, answer = b'{"model": "fast", "n": 1}', b'{"id": "x"}'
    sent, got = receipted.answered(body, answer)
    made = receipted.receipt()
    assert sent != body
    assert (made.received, made.sent) == (digest(body), digest(sent))
    assert made.answered == made.delivered == digest(answer) == digest(got.body)
    assert (made.account, made.route, made.provider, made.model) == ("default", "fast", "openai-1", "real-model")
    assert (made.status, made.attempts, made.policy_version) == (200, 1, 0)
    assert made.request_id.encode() == got.value(b"x-pointsman-request-id")


@pytest.mark.parametrize("size", [LARGE_BODY - 1, LARGE_BODY, LARGE_BODY + 1])
def test_a_large_body_is_hashed_as_any(receipted: Receipted, size: int) -> None:
    body = b'{"model":"fast","a":"%b"}'
    body %= b"x" * (size - len(body) + 2)
    sent, _ = receipted.answered(body, b"{}")
    made = receipted.receipt()
    assert (len(body), made.received, made.sent) == (size, digest(body), digest(sent))


def test_a_route_that_gives_none_has_nothing_hashed(receipted: Receipted) -> None:
    receipted.answered(b'{"model":"quiet"}', b"{}")
    assert receipted.made.get(timeout=10) is None


@pytest.mark.parametrize("split", [1, 9, 12, 1000])
def test_a_streams_hashes_are_of_all_its_bytes_however_they_come(
    receipted: Receipted, upstream: Upstream, split: int
) -> None:
    events = b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n'
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        for start in range(0, len(events), split):
            peer.chunk(events[start : start + split])
        peer.end_chunks()
        assert client.answer().body == events
    made = receipted.receipt()
    assert made.answered == made.delivered == digest(events)


@pytest.mark.guarantee("V1")
def test_a_truncated_stream_was_answered_with_less_than_was_delivered_and_both_are_told(
    receipted: Receipted, upstream: Upstream
) -> None:
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
        peer.chunk(b"data: half")
        peer.close()
        _, _, event = client.read_until(b"0\r\n\r\n").partition(b"\r\n")
    made = receipted.receipt()
    assert made.answered == digest(b"data: 1\n\ndata: half")
    assert made.delivered == digest(b"data: 1\n\n" + event.removesuffix(b"\r\n0\r\n\r\n"))
    assert made.status == 200


def test_a_client_that_leaves_has_a_receipt_of_what_it_was_handed(receipted: Receipted, upstream: Upstream) -> None:
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
    made = receipted.receipt()
    assert made.answered == made.delivered == digest(b"data: 1\n\n")


def test_a_client_that_leaves_before_an_answer_has_a_receipt_of_its_request(
    receipted: Receipted, upstream: Upstream
) -> None:
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        upstream.accept().request()
    made = receipted.receipt()
    assert (made.received, made.sent) == (digest(b'{"model":"fast"}'), b"")
    assert (made.answered, made.delivered, made.status, made.provider) == (b"", EMPTY, 0, "")


@pytest.mark.guarantee("V1")
def test_a_chain_tells_of_the_attempt_whose_answer_it_was(receipted: Receipted) -> None:
    sent, got = receipted.answered(b'{"model":"chain"}', b'{"id":1}')
    made = receipted.receipt()
    assert (made.route, made.provider, made.attempts, made.status) == ("chain", "openai-1", 2, 200)
    assert (made.sent, made.answered, made.delivered) == (digest(sent), digest(got.body), digest(got.body))


def test_an_answer_in_vain_is_in_no_receipt(receipted: Receipted, upstream: Upstream) -> None:
    """An upstream fails twice; what answers then is sent nothing."""
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"failing"}'))
        for _ in range(2):
            peer = upstream.accept()
            peer.request()
            peer.send(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
        answer = client.answer()
    made = receipted.receipt()
    assert (made.provider, made.attempts, made.sent) == ("mock-1", 3, b"")
    assert made.answered == made.delivered == digest(answer.body)


def test_errors_of_ours_are_delivered_and_nobody_answered(receipted: Receipted) -> None:
    for model, status in (("off", 503), ("fast", 401)):
        receipted.refuses = status == 401
        with receipted.door.connect() as client:
            client.send(post(json.dumps({"model": model}).encode()))
            answer = client.answer()
        made = receipted.receipt()
        assert answer.status == made.status == status
        assert (made.sent, made.answered, made.provider) == (b"", b"", "")
        assert made.delivered == digest(answer.body)


def test_a_body_that_is_replaced_was_not_read(receipted: Receipted, upstream: Upstream) -> None:
    with receipted.door.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        peer = upstream.accept()
        sent = peer.request().body
        peer.send(b"HTTP/1.1 401 No\r\nContent-Length: 5\r\nConnection: close\r\n\r\nsk-ab")
        answer = client.answer()
    made = receipted.receipt()
    assert (made.status, made.sent, made.answered) == (401, digest(sent), b"")
    assert made.delivered == digest(answer.body)
