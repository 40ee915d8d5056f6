"""What the gateway asks around each request of its data listener: in order, once, and on every way out."""

import asyncio
import json
import queue
from collections.abc import Iterator

import pytest

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.model_errors import InvalidKey
from pointsman.core.model_table import ModelTable
from pointsman.events.record import Record
from pointsman.proxy.stages import NO_STAGES, After, Before, Passage, Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream

BEFORE = ("authorize", "budget_reserve", "request_policy", "context")
AFTER = ("budget_settle", "receipt", "usage_record")


class Staged:
    """A listener whose every stage is noted; the last tells how the request went."""

    def __init__(self, upstream: Upstream) -> None:
        routes = {
            "fast": candidate(upstream.url, route="fast"),
            "canned": candidate("mock://x", route="canned"),
            "off": candidate("http://127.0.0.1:1/v1", route="off"),
        }
        self.door = DataDoor(table=ModelTable(routes))
        self.asked: list[str] = []
        self.ended: queue.Queue[Record] = queue.Queue()
        self.refusing = ""
        self.body = b""
        """What the last stage before the attempts sends instead; empty for what came."""
        self.error: Exception = InvalidKey("not today")
        self.waiting: asyncio.Event | None = None
        before = {name: self._before(name) for name in BEFORE}
        after = {name: self._after(name) for name in AFTER[:-1]}
        self.door.stages = Stages(
            before["authorize"], before["budget_reserve"], before["request_policy"], before["context"], None,
            after["budget_settle"], after["receipt"], self._last,
        )  # fmt: skip

    def _before(self, name: str) -> Before:
        async def ask(passage: Passage) -> None:
            assert passage.record.route
            assert passage.body
            self.asked.append(name)
            if name == "context" and self.body:
                passage.body, passage.notes.own_lines = self.body, b"x-pointsman-policy: trimmed\r\n"
            if name == self.refusing:
                if self.waiting is not None:
                    await self.waiting.wait()
                raise self.error

        return ask

    def _after(self, name: str) -> After:
        return lambda record: self.asked.append(name)

    def _last(self, record: Record) -> None:
        self.asked.append("usage_record")
        self.ended.put(record)

    def ask(self, model: str, path: bytes = b"/v1/chat/completions") -> Answer:
        with self.door.connect() as client:
            client.send(post(json.dumps({"model": model}).encode(), path))
            return client.answer()


@pytest.fixture
def staged(upstream: Upstream) -> Iterator[Staged]:
    staged = Staged(upstream)
    with staged.door:
        yield staged
    assert not staged.door.leftover
    assert staged.ended.empty()


def test_every_stage_is_asked_once_in_order(staged: Staged) -> None:
    assert staged.ask("canned").status == 200
    record = staged.ended.get(timeout=10)
    assert staged.asked == [*BEFORE, *AFTER]
    assert (record.route, record.status, record.attempts) == ("canned", 200, 1)


@pytest.mark.parametrize("refusing", BEFORE)
def test_a_stage_that_refuses_stops_those_behind_it_and_the_end_is_told_all_the_same(
    staged: Staged, upstream: Upstream, refusing: str
) -> None:
    staged.refusing = refusing
    answer = staged.ask("fast")
    assert (answer.status, json.loads(answer.body)["error"]["message"]) == (401, "not today")
    record = staged.ended.get(timeout=10)
    assert staged.asked == [*BEFORE[: BEFORE.index(refusing) + 1], *AFTER]
    assert (record.route, record.status, record.attempts) == ("fast", 401, 0)
    assert upstream.saw_nothing()


def test_a_bug_in_a_stage_is_an_answer_and_an_end(staged: Staged) -> None:
    staged.refusing, staged.error = "context", ZeroDivisionError()
    assert staged.ask("fast").status == 502
    assert staged.ended.get(timeout=10).status == 502
    assert "internal error: ZeroDivisionError" in staged.door.logged()


def test_a_model_that_leads_nowhere_is_told_to_the_last_stages_alone(staged: Staged) -> None:
    assert staged.ask("nobody").status == 404
    record = staged.ended.get(timeout=10)
    assert staged.asked == list(AFTER)
    assert (record.route, record.status) == ("", 404)


def test_an_upstream_that_is_not_there_is_told(staged: Staged) -> None:
    assert staged.ask("off").status == UpstreamUnavailable.status
    assert staged.ended.get(timeout=10).route == "off"
    assert staged.asked == [*BEFORE, *AFTER]


def test_a_client_that_goes_away_is_told_in_an_upstreams_turn_and_in_a_stages(
    staged: Staged, upstream: Upstream
) -> None:
    with staged.door.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        upstream.accept().request()
    assert staged.ended.get(timeout=10).status == 0
    staged.refusing, staged.waiting = "context", asyncio.Event()
    with staged.door.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        while staged.asked.count("context") < 2:
            staged.door.advance(0)
    assert staged.ended.get(timeout=10).status == 0
    assert staged.asked == 2 * [*BEFORE, *AFTER]


def test_a_truncated_stream_is_told(staged: Staged, upstream: Upstream) -> None:
    with staged.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        peer.close()
        client.answer()
    record = staged.ended.get(timeout=10)
    assert (record.status, record.reason) == (200, "stream_truncated")
    assert staged.asked == [*BEFORE, *AFTER]


def test_what_is_refused_by_its_head_reaches_no_stage(staged: Staged) -> None:
    assert staged.ask("fast", b"/v1/nothing").status == 404
    assert staged.asked == []


def test_stages_that_are_not_there_are_not_asked() -> None:
    assert (NO_STAGES.before, NO_STAGES.after) == ((), ())


def test_a_stage_may_put_another_body_in_the_place_of_the_clients(staged: Staged, upstream: Upstream) -> None:
    staged.body = b'{"model": "x", "n": 1}'
    with staged.door.connect() as client:
        client.send(post(b'{"model": "fast", "n": 2}'))
        peer = upstream.accept()
        assert json.loads(peer.request().body) == {"model": "real-model", "n": 1}
        peer.respond()
        assert client.answer().value(b"x-pointsman-policy") == b"trimmed"
    assert staged.ended.get(timeout=10).status == 200
