"""What the beginning and the end of a response body tell: token counts, and whether a stream has said its last word."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_COUNT = re.compile(
    rb'"((?:prompt|input|completion|output)_tokens|cached_tokens|prompt_cache_hit_tokens|reasoning_tokens'
    rb'|cache_(?:read|creation)_input_tokens)"\s*:\s*([0-9]{1,15})(?![0-9.eE])'
)
_INPUT = (b"input_tokens", b"prompt_tokens")
_OUTPUT = (b"output_tokens", b"completion_tokens")
_CACHED = (b"cached_tokens", b"prompt_cache_hit_tokens")  # the second is DeepSeek's
_READ, _WRITTEN = b"cache_read_input_tokens", b"cache_creation_input_tokens"


class TokenUsage(NamedTuple):
    """What the model reports of one request; -1 where it says nothing."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Of the input, those that the provider had kept; 0 where it says nothing of them."""
    reasoning_tokens: int = 0
    """Of the output; 0 where it says nothing of them."""
    beside_input: int = 0
    """Tokens of the prompt that `input_tokens` leaves out: Anthropic's are those not of its cache."""

    @property
    def prompt_tokens(self) -> int:
        """All of the prompt; -1 where nothing is said of it."""
        return self.input_tokens if self.input_tokens < 0 else self.input_tokens + self.beside_input


_SILENT = TokenUsage(-1, -1)


def find_usage(beginning: bytes, end: bytes) -> TokenUsage | None:
    """The counts that a body of any dialect reports, or None.

    The last usage object counts. Where it lacks a count the first object has it: an Anthropic stream tells the
    input in its first event and the output in its last but one, and some servers put usage before long results.
    """
    last, stop = _SILENT, len(end)
    while last.input_tokens < 0 and last.output_tokens < 0 and (at := end.rfind(b'"usage"', 0, stop)) >= 0:
        last = _counts(end, at, stop)  # nothing in `"usage":null`, which other chunks may have
        stop = at
    if (last.input_tokens < 0 or last.output_tokens < 0) and (at := beginning.find(b'"usage"')) >= 0:
        last = _completed(last, _counts(beginning, at, len(beginning)))
    return last if last.input_tokens >= 0 or last.output_tokens >= 0 else None


def _completed(last: TokenUsage, early: TokenUsage) -> TokenUsage:
    """What belongs to a count comes with it."""
    prompt = early if last.input_tokens < 0 else last
    answer = early if last.output_tokens < 0 else last
    return TokenUsage(
        prompt.input_tokens,
        answer.output_tokens,
        prompt.cached_tokens,
        answer.reasoning_tokens,
        prompt.beside_input,
    )


def _counts(data: bytes, start: int, stop: int) -> TokenUsage:
    """The first count of each kind between: what is nested in the object comes later."""
    found: dict[bytes, int] = {}
    for kind, digits in _COUNT.findall(data, start, stop):
        if kind not in found:
            found[kind] = int(digits)
    read = found.get(_READ)
    return TokenUsage(
        _first(found, _INPUT, -1),
        _first(found, _OUTPUT, -1),
        _first(found, _CACHED, 0) if read is None else read,
        found.get(b"reasoning_tokens", 0),
        (read or 0) + found.get(_WRITTEN, 0),
    )


def _first(found: Mapping[bytes, int], kinds: tuple[bytes, bytes], default: int) -> int:
    one, other = kinds
    return found[one] if one in found else found.get(other, default)


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
