"""What the end of a response body tells: the token counts, and that a stream has said its last word."""

import re
from typing import NamedTuple

_COUNT = re.compile(rb'"(prompt|input|completion|output)_tokens"\s*:\s*([0-9]{1,15})')
_INPUT = frozenset({b"prompt", b"input"})


class TokenUsage(NamedTuple):
    """What the model reports of one request; -1 where it says nothing."""

    input_tokens: int
    output_tokens: int


def find_usage(end: bytes) -> TokenUsage | None:
    """The counts of the last usage object in the end of a body of any dialect, or None."""
    at = end.rfind(b'"usage"')
    if at < 0:
        return None
    incoming = outgoing = -1
    for kind, digits in _COUNT.findall(end, at):
        if kind in _INPUT:
            incoming = int(digits)
        else:
            outgoing = int(digits)
    return TokenUsage(incoming, outgoing) if incoming >= 0 or outgoing >= 0 else None


_TERMINAL = re.compile(rb'(?:data: ?\[DONE\]|"type" ?: ?"(?:message_stop|response\.(?:completed|incomplete|failed))")')


def has_terminal_event(end: bytes) -> bool:
    """Whether an event stream has sent the event behind which its clients stop reading."""
    return _TERMINAL.search(end) is not None
