"""Properties of every walk through a chain, whatever its providers answer: bounds, counts, and what is told."""

import asyncio
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.attempts import Chain, Member
from pointsman.core.errors import MalformedRequest, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.model_errors import NoProviderAvailable
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.quota import Quota, QuotaKey
from pointsman.events.operations import Subject
from pointsman.events.operations_record import OperationJournal
from pointsman.events.record import Record
from pointsman.proxy.answering import Answering
from pointsman.proxy.call import Call
from pointsman.proxy.chain_walk import Chains, ChainWalk
from pointsman.proxy.member_keys import MemberKeys
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.proxy.upstream.exchange import READ_ERROR, BodySink
from pointsman.wire.headers import Fields
from pointsman.wire.request import Request, RequestHead
from pointsman.wire.response import ResponseHead
from tests.support.door import candidate

NOW = 1_796_050_800.0
ERROR = b'data: {"error":{"message":"no"}}\n\n'
EVENTS = b'data: {"n":1}\n\ndata: [DONE]\n\n'
FAILURES = (0, 302, 401, 404, 429, 500, 503)
OUTCOMES = (*FAILURES, 200, 400, 422, "events", "error event", "silence", "cut")


class Client:
    """Takes what is written."""

    keep_alive = True

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def attach(self, flow: object) -> None:
        pass

    def cut(self, *, visibly: bool) -> None:
        pass


class Answer:
    """An upstream's, whole from the start."""

    def __init__(self, outcome: int | str) -> None:
        fields: Fields = [(b"Content-Type", b"application/json" if isinstance(outcome, int) else b"text/event-stream")]
        self.head = ResponseHead(outcome if isinstance(outcome, int) else 200, b"X", fields)
        self._body = {"events": EVENTS, "cut": EVENTS[:14], "error event": ERROR, "silence": b""}.get(
            str(outcome), b"{}"
        )
        self._truncated = READ_ERROR if outcome == "cut" else ""

    async def relay(self, sink: BodySink) -> str:
        sink.body(self._body, last=not self._truncated)
        return self._truncated

    def abandon(self) -> None:
        pass

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Scripted:
    """Answers each provider's calls in turn."""

    def __init__(self, outcomes: Sequence[Sequence[int | str]]) -> None:
        self._outcomes = [list(each) for each in outcomes]
        self.asked: list[int] = []
        self.calls: list[Call] = []

    async def open(self, call: Call) -> Answer:
        number = int(call.candidate.model)
        self.asked.append(number)
        self.calls.append(call)
        outcome = self._outcomes[number].pop(0)
        if outcome == 0:
            raise UpstreamUnavailable("refused")
        return Answer(outcome)


@dataclass
class Walked:
    backend: Scripted
    record: Record
    written: bytes
    events: list[dict[str, Any]]
    used: list[int]
    error: NoProviderAvailable | MalformedRequest | None


def walk(outcomes: Sequence[Sequence[int | str]], fallback: bool, quotas: Sequence[Quota]) -> Walked:
    """One request; the last provider is the final fallback, if there is one."""

    async def run() -> Walked:
        members = [
            Member(f"p{n}", candidate("http://127.0.0.1:1/v1", route="fast", model=str(n)), quotas[n])
            for n in range(len(outcomes))
        ]
        last = members.pop() if fallback else None
        chain = Chain("default", "fast", tuple(members), "in_order", last)
        backend, ledger, client, lines = Scripted(outcomes), MemoryLedger(), Client(), io.StringIO()
        chains = Chains(
            {"http": backend},
            ledger,
            Answering(DEFAULT_LIMITS),
            MemberKeys(lambda text: None),
            now=lambda: NOW,
            rng=Random(1),
        )
        journal = OperationJournal(lines, wall_clock=lambda: NOW, clock=lambda: 0.0)
        record = Record("r-1", NOW, "POST", "/v1/chat/completions", InferenceProtocol.CHAT_COMPLETIONS)
        operation = record.operation = journal.started(Subject("r-1", "default", "fast"), last)
        request = Request(RequestHead("POST", record.path, 1, []), b'{"model":"fast"}')
        error = None
        try:
            await ChainWalk(chains, chain, client, record, operation).run(request, record.path)  # type: ignore[arg-type]
        except NoProviderAvailable as raised:
            error = raised
            record.fail(raised)
        record.finish_operation()
        journal.flush()
        events = [json.loads(line) for line in lines.getvalue().splitlines()]
        used = [ledger.counters(QuotaKey("default", f"p{n}"), Quota(), NOW).daily for n in range(len(outcomes))]
        return Walked(backend, record, client.written, events, used, error)

    return asyncio.run(run())


providers = st.lists(st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), min_size=1, max_size=6)


@pytest.mark.guarantee("A12")
@given(providers, st.booleans(), st.data())
def test_no_walk_asks_more_often_than_its_bound_nor_anybody_again_later(
    outcomes: list[tuple[int | str, int | str]], fallback: bool, data: st.DataObject
) -> None:
    quotas = [data.draw(st.sampled_from([Quota(), Quota(daily_requests=1)])) for _ in outcomes]
    walked = walk(outcomes, fallback, quotas)
    asked = walked.backend.asked
    assert len(asked) <= 2 * len(outcomes) + 1
    assert asked == sorted(asked)
    assert all(asked.count(number) <= 2 for number in asked)
    assert walked.record.attempts == len(asked)
    retried = [outcomes[number][0] for number in set(asked) if asked.count(number) == 2]
    assert all(isinstance(each, int) and each >= 500 for each in retried)


def test_all_attempts_share_one_call_so_that_a_large_body_is_searched_once() -> None:
    walked = walk([(500, 500), (429,), (200,)], fallback=False, quotas=[Quota()] * 3)
    assert walked.backend.asked == [0, 0, 1, 2]
    assert len(set(map(id, walked.backend.calls))) == 1


@pytest.mark.guarantee("A12")
@given(providers, st.booleans())
def test_every_walk_ends_in_one_answer_or_in_nobody_left(
    outcomes: list[tuple[int | str, int | str]], fallback: bool
) -> None:
    walked = walk(outcomes, fallback, [Quota()] * len(outcomes))
    assert (walked.error is None) == (walked.written.count(b"HTTP/1.1 ") == 1)
    if walked.error is not None:
        assert walked.written == b""
        assert set(walked.backend.asked) == set(range(len(outcomes)))
    else:
        answering = walked.backend.asked[-1]
        assert walked.record.candidate is not None
        assert walked.record.candidate.model == str(answering)
        assert walked.used == [int(n == answering and walked.record.status == 200) for n in range(len(outcomes))]


@pytest.mark.guarantee("A17")
@given(providers, st.booleans())
def test_what_is_told_adds_up(outcomes: list[tuple[int | str, int | str]], fallback: bool) -> None:
    walked = walk(outcomes, fallback, [Quota()] * len(outcomes))
    kinds = [each["event"] for each in walked.events]
    ends = [each for each in walked.events if each["event"] in ("infer_completed", "infer_failed", "infer_cancelled")]
    assert kinds[:2] == ["infer_started", "infer_ordering"]
    assert len(ends) == 1
    assert ends[0] is walked.events[-1]
    assert ends[0]["attempts"] == len(walked.backend.asked)
    failed = kinds.count("infer_fallback") + kinds.count("infer_retried")
    assert failed == len(walked.backend.asked) - (walked.error is None)
    falls = [
        (each["from_provider"], each["to_provider"]) for each in walked.events if each["event"] == "infer_fallback"
    ]
    assert falls == [(f"p{n}", f"p{n + 1}" if n + 1 < len(outcomes) else "") for n in range(len(falls))]
    if ends[0]["event"] == "infer_completed":
        first = ends[0]["provider"] == "p0" and not (fallback and len(outcomes) == 1)
        assert ends[0]["fallback"] is not first
