"""Finding the token counts in the end of a response body."""

import re
from dataclasses import dataclass

import msgspec

_USAGE = re.compile(rb'"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})')


class _Fields(msgspec.Struct):
    prompt_tokens: int = -1
    completion_tokens: int = -1
    input_tokens: int = -1
    output_tokens: int = -1


_decoder = msgspec.json.Decoder(_Fields)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What the model reports of one request; -1 where it says nothing."""

    input_tokens: int
    output_tokens: int


def find_usage(end: bytes) -> TokenUsage | None:
    """The last usage object in the end of a body of any dialect, or None."""
    at = len(end)
    while (at := end.rfind(b'"usage"', 0, at)) >= 0:
        match = _USAGE.match(end, at)
        usage = _read(match[1]) if match else None
        if usage is not None:
            return usage
    return None


def _read(text: bytes) -> TokenUsage | None:
    try:
        fields = _decoder.decode(text)
    except msgspec.DecodeError:
        return None
    usage = TokenUsage(
        max(fields.prompt_tokens, fields.input_tokens), max(fields.completion_tokens, fields.output_tokens)
    )
    return usage if max(usage.input_tokens, usage.output_tokens) >= 0 else None
