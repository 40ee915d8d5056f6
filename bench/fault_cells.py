"""The cells of the fault matrix, and what an exchange in each of them must come to. Pure values.

A nonce names its cell, so that the upstream knows from the request alone what to do, and stands in every part of the
answer, so that a byte of another exchange would be seen.
"""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("chat-stream", "chat-buffered", "models", "messages")
FAULTS = (
    "none",
    "refuse",
    "blackhole",
    "bad-certificate",
    "accept-mute",
    "head-mute",
    "slow-bytes",
    "rst-before-head",
    "rst-after-head",
    "rst-mid-body",
    "fin-mid-chunk",
    "short-length",
    "long-length",
    "garbage",
    "429",
    "500",
    "401",
    "302",
    "endless",
    "one-byte-slices",
)
CLIENTS = ("stays", "fin", "rst", "never-reads")
DOORS = {"refuse": "refused", "blackhole": "blackhole", "bad-certificate": "untrusted"}
"""Faults below HTTP need an upstream of their own, and so a door of their own."""
STATUSES = ("429", "500", "401", "302")
PATHS = {
    "chat-stream": "/v1/chat/completions",
    "chat-buffered": "/v1/chat/completions",
    "models": "/v1/models",
    "messages": "/v1/messages",
}
_SLOW_FAULTS = ("slow-bytes", "one-byte-slices")


@dataclass(frozen=True, slots=True)
class Cell:
    """One square of the matrix."""

    kind: str
    fault: str
    client: str

    @property
    def is_stream(self) -> bool:
        """Whether its answer is an event stream."""
        return self.kind in ("chat-stream", "messages")

    @property
    def door(self) -> str:
        """Which of the router's doors leads to its upstream."""
        return DOORS.get(self.fault, "main")

    def nonce(self, prefix: str) -> str:
        """One exchange's name; see `cell_of`."""
        return f"{prefix}.{KINDS.index(self.kind)}.{FAULTS.index(self.fault)}.{CLIENTS.index(self.client)}"


MATRIX = tuple(Cell(*names) for names in itertools.product(KINDS, FAULTS, CLIENTS))


def cell_of(nonce: str) -> Cell:
    """The cell that a nonce names."""
    kind, fault, client = (int(number) for number in nonce.split(".")[-3:])
    return Cell(KINDS[kind], FAULTS[fault], CLIENTS[client])


def block(nonce: str) -> bytes:
    """8 KiB of one event, or of JSON; what an endless body repeats."""
    return _event(cell_of(nonce), nonce, 0, 8192) if cell_of(nonce).is_stream else f'"{nonce}",'.encode() * 300


def body(nonce: str) -> bytes:
    """The whole answer, unless it has no end."""
    cell, rng = cell_of(nonce), random.Random(nonce)
    size = 30 if cell.fault in _SLOW_FAULTS else rng.choice((40, 400, 4_000, 40_000))
    if cell.is_stream and cell.fault not in STATUSES:
        count = 2 if cell.fault in _SLOW_FAULTS else rng.randrange(2, 12)
        return b"".join(_event(cell, nonce, number, size // count) for number in range(count))
    return json.dumps({"nonce": nonce, "pad": [nonce] * max(1, size // len(nonce))}).encode()


def _event(cell: Cell, nonce: str, number: int, size: int) -> bytes:
    name = "event: ping\n" if cell.kind == "messages" else ""
    return f'{name}data: {{"n":{number},"pad":"{" ".join([nonce] * max(1, size // len(nonce)))}"}}\n\n'.encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client that stayed saw."""

    status: int
    nonce: str
    fields: dict[str, str]
    body: bytes
    complete: bool


class WrongAnswer(AssertionError):
    """A client received what its exchange could not have led to."""


_REASONS = {"head-mute": "chunk idle timeout exceeded", "endless": "exceeded maximum streaming body size"}
_CUT = ("head-mute", "rst-after-head", "rst-mid-body", "fin-mid-chunk", "short-length", "endless")
_UNREACHED = ("refuse", "blackhole", "bad-certificate", "accept-mute")
_MAY_LOSE_HEAD = ("rst-after-head", "rst-mid-body")


def judge(nonce: str, answer: Answer) -> str:
    """The class of an answer. Raises WrongAnswer when its cell does not allow it."""
    cell = cell_of(nonce)
    own = _own_error(cell, answer)
    if own:
        return own
    status = int(cell.fault) if cell.fault in STATUSES else 200
    if (answer.status, answer.nonce) != (status, nonce):
        raise WrongAnswer(f"{nonce} {cell}: status {answer.status} of {answer.nonce!r}: {answer.body[:200]!r}")
    if cell.fault == "401":
        _require(answer.complete and answer.body == b'{"error":"unauthorized"}', nonce, answer)
        return "401"
    if cell.fault not in _CUT:
        _require(answer.complete and answer.body == body(nonce), nonce, answer)
        _require(cell.fault != "429" or answer.fields.get("retry-after") == "7", nonce, answer)
        return cell.fault if cell.fault in STATUSES else "whole"
    return _judge_cut(cell, nonce, answer)


def _own_error(cell: Cell, answer: Answer) -> str:
    """502 or 503 where the router has to say it by itself."""
    if cell.fault in _UNREACHED:
        wanted = (503, b'{"error":"inference service unavailable"}')
    elif cell.fault in ("rst-before-head", "garbage") or (cell.fault in _MAY_LOSE_HEAD and answer.status == 502):
        wanted = (502, b'{"error":"inference service error"}')
    else:
        return ""
    _require((answer.status, answer.body) == wanted and answer.complete and not answer.nonce, "", answer)
    return str(answer.status)


def _judge_cut(cell: Cell, nonce: str, answer: Answer) -> str:
    whole = block(nonce) * (1 + len(answer.body) // len(block(nonce))) if cell.fault == "endless" else body(nonce)
    if not cell.is_stream:
        _require(not answer.complete and whole.startswith(answer.body), nonce, answer)
        return "cut"
    mark = b"event: error\ndata: " if cell.kind == "messages" else b'data: {"error":'
    events, found, error = answer.body.rpartition(mark)
    reason = _REASONS.get(cell.fault, "upstream read error").encode()
    _require(answer.complete and bool(found) and reason in error and error.endswith(b"}\n\n"), nonce, answer)
    _require(whole.startswith(events) and (not events or events.endswith(b"\n\n")), nonce, answer)
    return "error event"


def _require(condition: bool, nonce: str, answer: Answer) -> None:
    if not condition:
        raise WrongAnswer(
            f"{nonce}: status {answer.status} of {answer.nonce!r}, complete={answer.complete},"
            f" {len(answer.body)} bytes: {answer.body[:100]!r} … {answer.body[-200:]!r}"
        )


def shuffled(rng: random.Random, times: int = 1) -> Sequence[Cell]:
    """Every cell as often, in random order."""
    cells = list(MATRIX) * times
    rng.shuffle(cells)
    return cells
