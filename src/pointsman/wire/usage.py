"""What the beginning and the end of a response body tell: token counts, and whether a stream has said its last word."""

import re
from typing import NamedTuple

_COUNT = re.compile(rb'"(prompt|input|completion|output)_tokens"\s*:\s*([0-9]{1,15})(?![0-9.eE])')
_INPUT = frozenset({b"prompt", b"input"})


class TokenUsage(NamedTuple):
    """What the model reports of one request; -1 where it says nothing."""

    input_tokens: int
    output_tokens: int


def find_usage(beginning: bytes, end: bytes) -> TokenUsage | None:
    """The counts that a body of any dialect reports, or None.

    The last usage object counts. Where it lacks a count the first object has it: an Anthropic stream tells the
    input in its first event and the output in its last but one, and some servers put usage before long results.
    """
    incoming = outgoing = -1
    stop = len(end)
    while incoming < 0 and outgoing < 0 and (at := end.rfind(b'"usage"', 0, stop)) >= 0:
        incoming, outgoing = _counts(end, at, stop)  # nothing in `"usage":null`, which other chunks may have
        stop = at
    if (incoming < 0 or outgoing < 0) and (at := beginning.find(b'"usage"')) >= 0:
        early = _counts(beginning, at, len(beginning))
        incoming = early[0] if incoming < 0 else incoming
        outgoing = early[1] if outgoing < 0 else outgoing
    return TokenUsage(incoming, outgoing) if incoming >= 0 or outgoing >= 0 else None


def _counts(data: bytes, start: int, stop: int) -> tuple[int, int]:
    """The first count of either kind between: what is nested in the object comes later."""
    incoming = outgoing = -1
    for kind, digits in _COUNT.findall(data, start, stop):
        if kind in _INPUT:
            if incoming < 0:
                incoming = int(digits)
        elif outgoing < 0:
            outgoing = int(digits)
    return incoming, outgoing


_TERMINAL = re.compile(
    rb"data: ?\[DONE\]"
    rb'|"type" ?: ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
    # The last event of a Responses stream repeats the whole response, so its type may be far from its end; its usage
    # is not, and no earlier event has one.
    rb'|"(?:in|out)put_tokens_details"'
)
_FINISH = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"')


def has_terminal_event(end: bytes) -> bool:
    """Whether an event stream has sent the event behind which its clients stop reading."""
    return _TERMINAL.search(end) is not None


def has_finish(end: bytes) -> bool:
    """Whether an event stream has said why it ends, or that it does."""
    return _TERMINAL.search(end) is not None or _FINISH.search(end) is not None
