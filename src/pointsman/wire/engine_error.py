"""What the local engine says of an error, as a client of each dialect reads it.

llama.cpp has one form for all: `{"error": {"code": 400, "message", "type", …}}`, which is not Anthropic's, and OpenAI's
only in part.
"""

from typing import Any

import msgspec

from pointsman.core.protocols import InferenceProtocol
from pointsman.wire.anthropic_error import anthropic_error_body
from pointsman.wire.openai_error import openai_error_body

_CODES = {"exceed_context_size_error": "context_length_exceeded"}
"""OpenAI's own word, at which agents shorten their conversation."""


def engine_error_body(protocol: str, status: int, body: bytes, request_id: str) -> bytes:
    """The dialect's error object with the engine's message, whatever the body is."""
    message, kind = _told(body)
    if protocol == InferenceProtocol.MESSAGES:
        return anthropic_error_body(status, message, request_id)
    return openai_error_body(status, message, _CODES.get(kind))


def _told(body: bytes) -> tuple[str, str]:
    """The message and its type."""
    try:
        error: Any = msgspec.json.decode(body)["error"]
        return str(error["message"]), str(error.get("type"))
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return "the local model cannot answer this request", ""
