"""Token counts of every dialect, and the ends of streams."""

import gzip
import json
import random

import pytest

from pointsman.proxy.meter import MOST_PACKED, Meter
from pointsman.wire.usage import TokenUsage

CHAT = {"object": "chat.completion", "choices": [{"message": {"content": 'say "usage": {"prompt_tokens": 9}'}}]}
DETAILS = {"cached_tokens": 7}


def events(*each: object) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in each)


def message_start(**usage: int) -> bytes:
    return b"event: message_start\n" + events({"type": "message_start", "message": {"content": [], "usage": usage}})


def message_delta(**usage: int) -> bytes:
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return b"event: message_delta\n" + events(delta) + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def openai(incoming: int, outgoing: int) -> dict[str, object]:
    details = {"prompt_tokens_details": DETAILS, "completion_tokens_details": {"reasoning_tokens": 5}}
    return {"prompt_tokens": incoming, "completion_tokens": outgoing, "total_tokens": incoming + outgoing, **details}


RESPONSES_USAGE = {
    "input_tokens": 36,
    "input_tokens_details": DETAILS,
    "output_tokens": 87,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 123,
}
DELTAS = [events({"type": "content_block_delta", "delta": {"text": "x" * 150}})] * 60
BODIES: dict[str, tuple[list[bytes], TokenUsage | None]] = {
    "chat": ([json.dumps({**CHAT, "usage": openai(25, 120), "fingerprint": "f"}).encode()], TokenUsage(25, 120, 7, 5)),
    "chat without usage": ([json.dumps(CHAT).encode()], None),
    "chat stream with a usage chunk": (
        [*DELTAS, events({"choices": [], "usage": openai(25, 120)}), b"data: [DONE]\n\n"],
        TokenUsage(25, 120, 7, 5),
    ),
    "chat stream with null usage behind it": (
        [events({"usage": openai(25, 120)}), events({"choices": [], "usage": None}), b"data: [DONE]\n\n"],
        TokenUsage(25, 120, 7, 5),
    ),
    "chat stream without usage": ([*DELTAS, b"data: [DONE]\n\n"], None),
    "completions": (
        [json.dumps({"choices": [{"text": "x" * 9000}], "usage": openai(3, 2000)}).encode()],
        TokenUsage(3, 2000, 7, 5),
    ),
    "usage before a long result": (
        [json.dumps({"usage": {"prompt_tokens": 8, "total_tokens": 8}, "data": [0.123456] * 3000}).encode()],
        TokenUsage(8, -1),
    ),
    "embeddings": (
        [json.dumps({"data": [0.123456] * 3000, "usage": {"prompt_tokens": 8, "total_tokens": 8}}).encode()],
        TokenUsage(8, -1),
    ),
    "responses": (
        [json.dumps({"output": [], "usage": RESPONSES_USAGE, "metadata": {}}).encode()],
        TokenUsage(36, 87, 7, 2),
    ),
    "responses stream": (
        [
            events({"type": "response.created", "response": {"usage": None}}),
            *DELTAS,
            events({"type": "response.completed", "response": {"out": "y" * 9000, "usage": RESPONSES_USAGE}}),
        ],
        TokenUsage(36, 87, 7, 2),
    ),
    "message": (
        [b'{"usage":{"input_tokens":10,"cache_read_input_tokens":900,"output_tokens":20,"service_tier":"standard"}}'],
        TokenUsage(10, 20, 900, 0, 900),
    ),
    "message stream with a prompt that is kept": (
        [
            message_start(input_tokens=9, cache_creation_input_tokens=50, cache_read_input_tokens=900, output_tokens=1),
            *DELTAS,
            message_delta(output_tokens=15),
        ],
        TokenUsage(9, 15, 900, 0, 950),
    ),
    "message stream that repeats what is kept": (
        [
            message_start(input_tokens=9, cache_read_input_tokens=900, output_tokens=1),
            *DELTAS,
            message_delta(input_tokens=10, cache_read_input_tokens=901, output_tokens=15),
        ],
        TokenUsage(10, 15, 901, 0, 901),
    ),
    "deepseek": (
        [b'{"usage":{"prompt_tokens":50,"prompt_cache_hit_tokens":40,"completion_tokens":20}}'],
        TokenUsage(50, 20, 40),
    ),
    "message with iterations": (
        [b'{"usage":{"input_tokens":10,"output_tokens":20,"iterations":[{"input_tokens":1,"output_tokens":2}]}}'],
        TokenUsage(10, 20),
    ),
    "message stream": (
        [message_start(input_tokens=25, output_tokens=1), *DELTAS, message_delta(output_tokens=15)],
        TokenUsage(25, 15),
    ),
    "message stream that repeats its input": (
        [message_start(input_tokens=25, output_tokens=1), *DELTAS, message_delta(input_tokens=30, output_tokens=15)],
        TokenUsage(30, 15),
    ),
    "message stream that was cut": ([message_start(input_tokens=25, output_tokens=1), *DELTAS], TokenUsage(25, 1)),
    "rubbish": ([b'"usage":{"input_tokens":1e3,"output_tokens":1.5}'], None),
    "a number beyond belief": ([b'"usage":{"input_tokens":1234567890123456}'], None),
    "gzip": ([b"\x1f\x8b\x08\x00" * 4000], None),
    "nothing": ([], None),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("cut", [1, 7, 100, 4095, 4096, 4097, 100_000], ids=str)
def test_the_counts_of_a_body_are_found_however_it_arrives(name: str, cut: int) -> None:
    pieces, expected = BODIES[name]
    body = b"".join(pieces)
    meter = Meter()
    for start in range(0, len(body), cut):
        meter.watch(body[start : start + cut])
    assert meter.usage() == expected


@pytest.mark.parametrize("name", BODIES)
def test_the_counts_of_a_body_are_found_when_it_arrives_by_the_event(name: str) -> None:
    pieces, expected = BODIES[name]
    meter = Meter()
    for piece in pieces:
        meter.watch(piece)
    assert meter.usage() == expected


def test_a_meter_holds_little_of_a_long_body() -> None:
    meter = Meter()
    for size in (1, 1023, 1024, 4095, 4096, 1_000_000, 4095, 4095):
        meter.watch(b"x" * size)
        assert len(meter._first) + len(meter._previous) + len(meter._last) < 13 * 1024


@pytest.mark.parametrize(
    ("end", "last_event", "finished"),
    [
        (b"data: [DONE]\n\n", True, True),
        (b"data:[DONE]\n\n", True, True),
        (message_delta(output_tokens=1), True, True),
        (events({"type": "response.completed", "response": {"out": "y" * 9000, "usage": RESPONSES_USAGE}}), True, True),
        (events({"type": "response.failed", "response": {}}), True, True),
        (events({"choices": [{"finish_reason": "stop"}]}), False, True),
        (events({"choices": [{"finish_reason": None}]}), False, False),
        (events({"choices": [{"delta": {"content": 'data: "[DONE]" "finish_reason": "stop"'}}]}), False, False),
        (b"", False, False),
    ],
)
def test_the_end_of_a_stream_is_recognised(end: bytes, last_event: bool, finished: bool) -> None:
    meter = Meter()
    meter.watch(end)
    assert (meter.last_event_passed(), meter.finished()) == (last_event, finished)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("cut", [1, 100, 100_000], ids=str)
def test_the_counts_of_a_gzip_body_are_found(name: str, cut: int) -> None:
    pieces, expected = BODIES[name]
    body = gzip.compress(b"".join(pieces))
    meter = Meter()
    for start in range(0, len(body), cut):
        meter.watch(body[start : start + cut])
    assert meter.usage() == expected


def packed(size: int) -> bytes:
    """A gzip body of `size` bytes that ends in a usage object."""
    noise = random.Random(1).randbytes(50_000).hex().encode()
    body = gzip.compress(noise + b'{"usage":{"input_tokens":1,"output_tokens":2}}')
    return body.ljust(size, b"\0")  # what is behind the end counts as well


@pytest.mark.parametrize(("size", "found"), [(MOST_PACKED - 1, True), (MOST_PACKED, True), (MOST_PACKED + 1, False)])
def test_64_kib_of_a_gzip_body_are_kept(size: int, found: bool) -> None:
    meter = Meter()
    meter.watch(packed(size))
    assert (meter.usage() is not None) == found


def test_a_gzip_bomb_is_not_unpacked() -> None:
    meter = Meter()
    meter.watch(gzip.compress(bytes(40_000_000) + b'{"usage":{"input_tokens":1,"output_tokens":2}}')[:MOST_PACKED])
    assert meter.usage() is None


def test_a_broken_gzip_body_tells_nothing() -> None:
    meter = Meter()
    meter.watch(b"\x1f\x8b not gzip at all")
    assert meter.usage() is None
