"""Every cell of the fault matrix once (`make soak MINUTES=30` runs it for longer): whatever an upstream and a client do
to an exchange, it ends as its cell says, in time, with no byte of another, and leaves nothing behind."""

import asyncio

import pytest
import uvloop
from bench.fault_cells import MATRIX, Answer, Cell, WrongAnswer, block, body, cell_of, judge
from bench.fault_soak import run


@pytest.mark.timeout(180)
def test_every_cell_of_the_fault_matrix_ends_as_it_must() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(run(seed=1, clients=32, round_seconds=None, rounds=1)) == []


def test_a_nonce_names_its_cell_and_stands_in_every_part_of_its_answer() -> None:
    assert len(set(MATRIX)) == len(MATRIX) == 4 * 20 * 4
    for cell in MATRIX:
        nonce = cell.nonce("1.2")
        assert cell_of(nonce) == cell
        assert nonce.encode() in body(nonce)
        assert all(nonce.encode() in event for event in body(nonce).split(b"\n\n") if event)
        assert nonce.encode() in block(nonce)


def answer(cell: Cell, data: bytes, *, nonce: str = "", complete: bool = True, status: int = 200) -> Answer:
    return Answer(status, nonce or cell.nonce("1"), {}, data, complete)


STREAM, JSON = Cell("chat-stream", "none", "stays"), Cell("chat-buffered", "none", "stays")
CUT = Cell("chat-stream", "fin-mid-chunk", "stays")
ERROR = b'data: {"error":{"message":"response truncated: upstream read error"}}\n\n'
WRONG = {
    "another exchange's head": (JSON, answer(JSON, body(JSON.nonce("1")), nonce=JSON.nonce("2"))),
    "another exchange's body": (JSON, answer(JSON, body(JSON.nonce("2")))),
    "a byte too many": (JSON, answer(JSON, body(JSON.nonce("1")) + b" ")),
    "a cut that was not due": (STREAM, answer(STREAM, body(STREAM.nonce("1")), complete=False)),
    "a status that was not due": (STREAM, answer(STREAM, body(STREAM.nonce("1")), status=502)),
    "a cut stream without an error event": (CUT, answer(CUT, body(CUT.nonce("1")))),
    "a cut stream with half an event": (CUT, answer(CUT, body(CUT.nonce("1"))[:-3] + ERROR)),
    "a cut stream with another's event": (CUT, answer(CUT, body(CUT.nonce("2")) + ERROR)),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_judge_sees(case: str) -> None:
    cell, wrong = WRONG[case]
    with pytest.raises(WrongAnswer):
        judge(cell.nonce("1"), wrong)


def test_the_judge_passes_what_is_right() -> None:
    assert judge(STREAM.nonce("1"), answer(STREAM, body(STREAM.nonce("1")))) == "whole"
    events = body(CUT.nonce("1"))
    assert judge(CUT.nonce("1"), answer(CUT, events[: events.index(b"\n\n") + 2] + ERROR)) == "error event"
