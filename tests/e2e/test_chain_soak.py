"""A short form of `make chain-soak`: whatever providers and clients do, answers stay apart and all counts agree."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from bench.chain_callers import End, judged
from bench.chain_soak import Counted, complaints, soak
from bench.chain_upstreams import PROVIDERS, Asked, event, whole
from bench.fault_cells import Answer, WrongAnswer

STREAM, BUFFERED = Asked("r0.1.2", True, 4, ""), Asked("r0.1.2", False, 4, "")
FIELDS = {
    "x-pointsman-request-id": "id-1",
    "x-pointsman-route": "weighted",
    "x-pointsman-attempts": "3",
    "x-pointsman-model": "model-p1",
}
EVENTS = [event("r0.1.2", "p1", number) for number in range(4)]
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"response truncated: upstream read error"}}\n\n'


@pytest.mark.timeout(180)
def test_two_hundred_requests_at_once_through_failing_chains_keep_apart_and_every_count_agrees(tmp_path: Path) -> None:
    wrong, line = asyncio.run(soak(tmp_path, seed=7, clients=200, rounds=1, requests=2))
    assert wrong == [], line


def answer(body: bytes, *, complete: bool = True, status: int = 200) -> Answer:
    return Answer(status, "", FIELDS, body, complete)


def test_what_is_whole_cut_or_refused_is_told_apart() -> None:
    assert judged(STREAM, "weighted", answer(b"".join([*EVENTS, DONE]))) == End("r0.1.2", "id-1", "whole", "p1")
    assert judged(STREAM, "weighted", answer(EVENTS[0] + ERROR)).kind == "cut"
    body = whole("r0.1.2", "p1", 4)
    assert judged(BUFFERED, "weighted", answer(body)).kind == "whole"
    assert judged(BUFFERED, "weighted", answer(body[:9], complete=False)).kind == "cut"
    refusal = json.dumps({"error": {"code": "no_provider_available"}}).encode()
    assert judged(STREAM, "weighted", answer(refusal, status=503)).kind == "refused"


@pytest.mark.parametrize(
    "body",
    [
        b"".join([*EVENTS[:2], *EVENTS[3:], DONE]),
        b"".join([EVENTS[1], EVENTS[0], *EVENTS[2:], DONE]),
        b"".join([*EVENTS[:3], event("r0.1.3", "p1", 3), DONE]),
        b"".join([*EVENTS[:3], event("r0.1.2", "p2", 3), DONE]),
        b"".join([*EVENTS, *EVENTS, DONE]),
        EVENTS[0],
        EVENTS[0] + EVENTS[1][:9] + ERROR,
        event("r0.1.3", "p1", 0) + ERROR,
    ],
    ids=[
        "lost",
        "out of order",
        "another's",
        "another provider's",
        "twice",
        "cut and not told",
        "half",
        "another's cut",
    ],
)
def test_a_stream_that_is_not_the_requests_own_in_order_is_wrong(body: bytes) -> None:
    with pytest.raises(WrongAnswer):
        judged(STREAM, "weighted", answer(body))


@pytest.mark.parametrize("body", [whole("r0.1.3", "p1", 4), whole("r0.1.2", "p1", 3)])
def test_a_buffered_answer_that_is_another_is_wrong(body: bytes) -> None:
    with pytest.raises(WrongAnswer):
        judged(BUFFERED, "weighted", answer(body))


def test_counts_that_do_not_agree_are_told() -> None:
    seen = [End("a", "id-1", "whole", "p1"), End("b", "id-2", "cut", "p0")]
    events = {"id-1": "infer_completed", "id-2": "infer_failed"}
    succeeded = Counter({"p0": 1, "p1": 1})
    good = Counted(
        live={name: succeeded[name] for name in PROVIDERS},
        rows=Counter(succeeded),
        started=2,
        ends=Counter(dict.fromkeys(events, 1)),
        events=events,
    )
    assert complaints(good, succeeded, seen) == []
    for bad in (
        replace(good, live={**good.live, "p2": 1}),
        replace(good, rows=Counter({"p0": 1, "p1": 2})),
        replace(good, rows=Counter({"p0": 1})),
        replace(good, started=3),
        replace(good, ends=Counter({"id-1": 2, "id-2": 1})),
        replace(good, events={"id-1": "infer_failed", "id-2": "infer_completed"}),
    ):
        assert complaints(bad, succeeded, seen)
