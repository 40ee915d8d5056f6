"""Canned answers for `mock://` routes: no network, one JSON body per dialect.

Always one buffered JSON object, never an event stream, as the published design has it.
"""

from typing import Any

import msgspec

from pointsman.core.candidate import Candidate
from pointsman.core.limits import Limits
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.proxy.call import Call
from pointsman.proxy.upstream.exchange import BodySink
from pointsman.wire.response import ResponseHead

_CREATED = 1_700_000_000
_TEXT = "This is a mock answer."


class MockBackend:
    """Answers at once."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def open(self, call: Call) -> "MockResponse":
        """The canned answer. The request body is held to the same rules as a real one's."""
        if call.head.method != "GET":
            call.place_of_model(self._limits.json_keys)
        return MockResponse(msgspec.json.encode(_answer(call.protocol, call.candidate)))


class MockResponse:
    """A response that is complete from the start."""

    def __init__(self, body: bytes) -> None:
        self.head = ResponseHead(200, b"OK", [(b"content-type", b"application/json")])
        self.head.relayed.append(b"x-openshell-mock: true")  # as a field it would be taken for an upstream's forgery
        self._body = body

    async def relay(self, sink: BodySink) -> str:
        """All of it."""
        sink.body(self._body, last=True)
        return ""

    def pause(self) -> None:
        """Nothing to slow down."""

    def resume(self) -> None:
        """Nothing to speed up."""

    def abandon(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to let go of."""


def _answer(protocol: str, candidate: Candidate) -> dict[str, Any]:
    model = candidate.model
    openai_usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    if protocol == P.CHAT_COMPLETIONS:
        message = {"role": "assistant", "content": _TEXT}
        return {
            "id": "mock-chatcmpl-001",
            "object": "chat.completion",
            "created": _CREATED,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": openai_usage,
        }
    if protocol == P.COMPLETIONS:
        return {
            "id": "mock-cmpl-001",
            "object": "text_completion",
            "created": _CREATED,
            "model": model,
            "choices": [{"index": 0, "text": _TEXT, "finish_reason": "stop", "logprobs": None}],
            "usage": openai_usage,
        }
    if protocol == P.MESSAGES:
        return {
            "id": "mock-msg-001",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": _TEXT}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 5},
        }
    if protocol == P.EMBEDDINGS:
        return {
            "object": "list",
            "model": model,
            "data": [{"object": "embedding", "index": 0, "embedding": [0.0, 0.0, 0.0]}],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
    return {"mock": True, "model": model, "message": _TEXT}
