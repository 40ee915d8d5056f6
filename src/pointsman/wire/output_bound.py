"""What a request's body says of how long its answer may get, in any dialect. Not here: whether it is a good request."""

from dataclasses import dataclass
from typing import Any

import msgspec

_MOST = 1 << 40
"""Tokens, and answers: what is beyond it is said by nobody who means it."""


@dataclass(frozen=True, slots=True)
class OutputBound:
    """As the client wrote it."""

    tokens: int | None = None
    """Of one answer; None when it names no limit."""
    answers: int = 1
    is_stream: bool = False


UNBOUND = OutputBound()


class _Fields(msgspec.Struct):
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    best_of: Any = None
    stream: Any = None


_decoder = msgspec.json.Decoder(_Fields)


def read_output_bound(body: bytes) -> OutputBound:
    """Of several limits the largest; what is no number in range is none. A body that is no JSON object says nothing."""
    try:
        fields = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return UNBOUND
    named = [_whole(fields.max_tokens), _whole(fields.max_completion_tokens), _whole(fields.max_output_tokens)]
    limits = [each for each in named if each is not None]
    answers = max(_whole(fields.n) or 1, _whole(fields.best_of) or 1)
    return OutputBound(max(limits) if limits else None, answers, fields.stream is True)


def _whole(value: Any) -> int | None:
    """Servers take `4096.0` for `4096`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return int(min(value, _MOST))
