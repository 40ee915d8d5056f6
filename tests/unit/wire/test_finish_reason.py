"""Why a model stopped, of every dialect, however the body came; and what a provider calls a request."""

import gzip
import json
from typing import Any

import pytest

from pointsman.core.protocols import InferenceProtocol as P
from pointsman.proxy.meter import Meter
from pointsman.wire.upstream_request_id import LONGEST_ID, find_upstream_request_id
from tests.support import dialects
from tests.support.dialects import Event, Say, ToolCall

LONG = Say("word " * 4000)
USE = ToolCall("look", {"finish_reason": "no", "stop_reason": "no", "status": "no", "path": "a" * 2000})


def written(events: list[Event]) -> bytes:
    lines = [
        f"event: {name}\ndata: {json.dumps(body)}\n\n" if name else f"data: {json.dumps(body)}\n\n"
        for name, body in events
    ]
    return "".join(lines).encode()


def read(body: bytes, protocol: str, size: int, *, is_stream: bool = False) -> str:
    meter = Meter(of_responses=is_stream and protocol == P.RESPONSES)
    for at in range(0, len(body), size):
        meter.watch(body[at : at + size])
    return meter.finish_reason(protocol)


def incomplete(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def ended_early() -> list[Event]:
    *most, (_, last) = dialects.responses_events(LONG)
    body = {**last, "type": "response.incomplete", "response": incomplete(last["response"])}
    return [*most, ("response.incomplete", body)]


LEGACY = {"choices": [{"text": "x" * 9000, "finish_reason": "length"}], "usage": {"completion_tokens": 9}}
LLAMA = {"choices": [{"finish_reason": "length", "message": {"content": "x" * 9000}}], "usage": {"prompt_tokens": 9}}
WHOLE: list[tuple[str, dict[str, Any], str]] = [
    (P.CHAT_COMPLETIONS, dialects.chat_answer(LONG), "stop"),
    (P.CHAT_COMPLETIONS, dialects.chat_answer(USE), "tool_calls"),
    (P.CHAT_COMPLETIONS, LLAMA, "length"),
    (P.COMPLETIONS, LEGACY, "length"),
    (P.MESSAGES, dialects.messages_answer(LONG), "end_turn"),
    (P.MESSAGES, dialects.messages_answer(USE), "tool_use"),
    (P.RESPONSES, dialects.responses_answer(LONG), "completed"),
    (P.RESPONSES, incomplete(dialects.responses_answer(LONG)), "max_output_tokens"),
    (P.RESPONSES, {**dialects.responses_answer(USE), "status": "failed"}, "failed"),
    (P.EMBEDDINGS, {"data": [{"finish_reason": "stop"}]}, ""),
    (P.CHAT_COMPLETIONS, {"error": {"message": '"finish_reason":"stop"'}}, ""),
    (P.CHAT_COMPLETIONS, {"choices": [{"finish_reason": "some text of an answer"}]}, ""),
]
STREAMED: list[tuple[str, list[Event], str]] = [
    (P.CHAT_COMPLETIONS, list(dialects.chat_events(LONG)), "stop"),
    (P.CHAT_COMPLETIONS, list(dialects.chat_events(USE)), "tool_calls"),
    (P.MESSAGES, list(dialects.messages_events(LONG)), "end_turn"),
    (P.MESSAGES, list(dialects.messages_events(USE)), "tool_use"),
    (P.RESPONSES, list(dialects.responses_events(Say("a few words"))), "completed"),
    (P.RESPONSES, list(dialects.responses_events(ToolCall("look"))), "completed"),
]


@pytest.mark.parametrize("size", [1500, 5000, 100_000])
@pytest.mark.parametrize(("protocol", "answer", "reason"), WHOLE)
def test_a_whole_answer_says_why_it_ends(protocol: str, answer: dict[str, Any], reason: str, size: int) -> None:
    body = json.dumps(answer).encode()
    assert read(body, protocol, size) == reason
    assert read(json.dumps(answer, indent=2).encode(), protocol, size) == reason


@pytest.mark.parametrize(("protocol", "answer", "reason"), WHOLE)
def test_so_does_a_packed_one(protocol: str, answer: dict[str, Any], reason: str) -> None:
    assert read(gzip.compress(json.dumps(answer).encode()), protocol, 500) == reason


@pytest.mark.parametrize("size", [100, 1500, 5000, 100_000])
@pytest.mark.parametrize(("protocol", "events", "reason"), STREAMED)
def test_a_stream_says_why_it_ends_however_it_is_cut(
    protocol: str, events: list[Event], reason: str, size: int
) -> None:
    assert read(written(events) + b"data: [DONE]\n\n", protocol, size, is_stream=True) == reason


@pytest.mark.parametrize("size", [4096, 16_384, 100_000])
@pytest.mark.parametrize(
    ("events", "reason"), [(ended_early(), "max_output_tokens"), (list(dialects.responses_events(LONG)), "completed")]
)
def test_a_last_event_that_repeats_a_long_answer_says_it_where_it_comes_in_large_pieces(
    events: list[Event], reason: str, size: int
) -> None:
    assert read(written(events), P.RESPONSES, size, is_stream=True) == reason


@pytest.mark.parametrize(("protocol", "events", "_"), STREAMED)
def test_a_stream_that_was_cut_before_has_said_nothing(protocol: str, events: list[Event], _: str) -> None:
    assert read(written(events[:-3]), protocol, 1000, is_stream=True) == ""


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ([(b"Content-Type", b"x"), (b"X-Request-Id", b"req_1")], "req_1"),
        ([(b"request-id", b"two"), (b"x-request-id", b"one")], "one"),
        ([(b"cf-ray", b"ray"), (b"apim-request-id", b"azure")], "azure"),
        ([(b"cf-ray", b"ray")], ""),
        ([(b"request-id", b"a" * LONGEST_ID)], "a" * LONGEST_ID),
        ([(b"request-id", b"a" * (LONGEST_ID + 1))], "a" * LONGEST_ID),
        ([(b"request-id", b"\xff")], ""),
        ([], ""),
    ],
)
def test_of_an_answers_fields_the_best_known_is_the_providers_id(fields: list[tuple[bytes, bytes]], known: str) -> None:
    assert find_upstream_request_id(fields) == known
