"""Answers that a rule refuses or holds: what they cost, what is told of them, and that nobody waits for a search."""

import random
import time

import pytest

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.policy import Effect
from pointsman.gateway.stages.usage import row_of
from tests.support.answers import DONE, answer_rule, chat_events
from tests.support.policed_door import PolicedDoor
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream

BLOCK = answer_rule("no-word", pattern="secret")
TOKENS = Budget("default", "all", BudgetScope.ACCOUNT, "", BudgetUnit.TOKENS, 100_000, BudgetWindow.TOTAL, id="all")
USED = b'"usage":{"prompt_tokens":3,"completion_tokens":4}'


def asked(policed: PolicedDoor, upstream: Upstream, route: bytes, answer: bytes) -> Answer:
    with policed.door.connect() as client:
        client.send(post(b'{"model":"%b"}' % route))
        peer = upstream.accept()
        peer.request()
        peer.respond(answer, b"Content-Type: application/json\r\nConnection: close\r\n")
        return client.answer()


@pytest.mark.guarantee("B2")
@pytest.mark.parametrize("route", [b"fast", b"chained"])
@pytest.mark.parametrize("is_reported", [True, False])
def test_an_answer_that_is_refused_was_paid_for_and_counts(
    policed: PolicedDoor, upstream: Upstream, route: bytes, is_reported: bool
) -> None:
    policed.set(BLOCK)
    policed.budgets = {"default": [TOKENS]}
    answer = b'{"choices":[{"message":{"content":"secret"}}],%b}' % (USED if is_reported else b'"x":1')
    assert asked(policed, upstream, route, answer).status == 403
    policed.door.ended()
    row = row_of(policed.records[-1])
    sent = len(b'{"model":"%b"}' % route)
    expected = (3, 4, "reported") if is_reported else (-(-sent // 4), -(-len(answer) // 4), "estimated")
    assert (row.prompt_tokens, row.completion_tokens, row.usage_source) == expected
    assert sum(policed.spent.used.values()) == sum(expected[:2])


def test_what_is_held_of_a_stream_that_is_refused_was_paid_for(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(BLOCK)
    policed.budgets = {"default": [TOKENS]}
    with policed.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"".join(chat_events(["secret"])[1:]))
        assert client.answer().status == 403
    told = [each["event"] for each in policed.door.ended()]
    assert "stream_started" not in told
    assert told[-2:] == ["policy_hit", "infer_failed"]
    row = row_of(policed.records[-1])
    assert row.completion_tokens
    assert sum(policed.spent.used.values()) == row.prompt_tokens + row.completion_tokens  # type: ignore[operator]


def test_a_stream_is_told_to_have_started_when_its_first_event_passes(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(answer_rule(effect=Effect.REDACT, pattern="secret"))
    events = chat_events(["abc", "def"])
    with policed.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b": waiting")
        assert "stream_started" not in [each["event"] for each in policed.door.operations()]
        peer.chunk(b"\n\n" + b"".join(events))
        peer.end_chunks()
        assert client.answer().body.endswith(DONE)
    told = [each["event"] for each in policed.door.ended()]
    assert told.count("stream_started") == 1
    assert told[-2:] == ["stream_completed", "infer_completed"]


async def _spent() -> tuple[float, float]:
    """CPU seconds of the loop's thread, and of all."""
    return time.thread_time(), time.process_time()


def share_of_the_loop(policed: PolicedDoor, before: tuple[float, float]) -> float:
    """Since then: next to all of the work where the loop searches, in one go."""
    own, everybody = policed.door.call(_spent())
    return (own - before[0]) / (everybody - before[1])


@pytest.mark.alone
@pytest.mark.guarantee("P9")
@pytest.mark.parametrize("effect", [Effect.BLOCK, Effect.FLAG])
def test_nobody_waits_for_the_search_of_a_large_answer(
    policed: PolicedDoor, upstream: Upstream, effect: Effect
) -> None:
    policed.set(answer_rule(effect=effect, pattern="a[ab]{100}c"))
    text = "".join(random.Random(1).choices("ab", k=300_000)).encode()
    before = policed.door.call(_spent())
    answer = b'{"choices":[{"message":{"content":"%b"}}],%b}' % (text, USED)
    got = asked(policed, upstream, b"fast", answer)
    share = share_of_the_loop(policed, before)
    assert (got.status, got.body) == (200, answer)
    assert share < 0.5


@pytest.mark.alone
@pytest.mark.guarantee("P9")
@pytest.mark.parametrize("size", [90, 300_000])
def test_nobody_waits_for_the_search_of_what_one_read_brings_of_a_stream(
    policed: PolicedDoor, upstream: Upstream, size: int
) -> None:
    """In many events or in one."""
    policed.set(answer_rule(pattern="a[ab]{50}c|q"))
    text = "".join(random.Random(1).choices("ab", k=300_000))
    events = b"".join(chat_events([text[at : at + size] for at in range(0, len(text), size)]))
    before = policed.door.call(_spent())
    with policed.door.connect() as client:
        client.send(post(b'{"model":"fast","stream":true}'))
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(events)
        peer.end_chunks()
        answer = client.answer()
    share = share_of_the_loop(policed, before)
    assert (answer.status, answer.body) == (200, events)
    assert share < 0.5


def test_what_is_held_of_answers_is_counted_until_they_end(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(BLOCK)
    with policed.door.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        peer = upstream.accept()
        peer.request()
        body = b'{"a":"' + b"x" * 100_000 + b'"}'
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        peer.send(body[:-1])
        while policed.door.call(_held(policed)) < len(body) - 1:
            pass
        peer.send(body[-1:])
        assert client.answer().body == body
        policed.door.ended()
        while policed.door.call(_held(policed)):
            pass


async def _held(policed: PolicedDoor) -> int:
    return policed.door.listener.held_body_bytes
