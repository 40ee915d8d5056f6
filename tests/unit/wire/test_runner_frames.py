"""Frames of the runner protocol: what is read is what was meant, and everything else is a FrameError."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.wire.runner_frames import (
    CANCEL,
    NEXT,
    START,
    FrameError,
    FrameTooLarge,
    Heartbeat,
    Hello,
    ModelRequest,
    ModelResponse,
    encode_frame,
    read_from_gateway,
    read_from_runner,
)

_BODY = b'{"model": "m",  "n":1.50,"x":"\\u00e9"}'


def _response(**fields: Any) -> bytes:
    return json.dumps({"type": "model_response", "request_id": "r", **fields}).encode()


def _request(**fields: Any) -> bytes:
    return json.dumps({"type": "model_request", "request_id": "r", **fields}).encode()


@pytest.mark.parametrize(
    "frame",
    [
        Hello("runner-1", 1),
        Heartbeat(),
        ModelResponse("r"),
        ModelResponse("r", 200, "data: {}", False),
        ModelResponse("r", 503, "", True, "runner_upstream_error"),
    ],
)
def test_a_runners_frame_is_read_as_it_was_written(frame: Hello | Heartbeat | ModelResponse) -> None:
    assert read_from_runner(encode_frame(frame)) == frame
    assert read_from_runner(encode_frame(frame).decode()) == frame


def test_a_body_crosses_byte_for_byte() -> None:
    frame = ModelRequest("r", START, "id", "http://localhost:1/v1", msgspec.Raw(_BODY))
    assert bytes(read_from_gateway(encode_frame(frame)).body) == _BODY


@pytest.mark.parametrize("operation", [NEXT, CANCEL])
def test_what_is_no_start_names_no_model_and_has_no_body(operation: str) -> None:
    frame = ModelRequest("r", operation)
    assert json.loads(encode_frame(frame)) == {"type": "model_request", "request_id": "r", "operation": operation}
    assert read_from_gateway(encode_frame(frame)).operation == operation
    others: list[dict[str, object]] = [{"body": {}}, {"model_id": "m"}, {"base_url": "u"}]
    for more in others:
        with pytest.raises(FrameError):
            read_from_gateway(_request(operation=operation, **more))


@pytest.mark.parametrize("body", [None, [], "{}", 1, True])
def test_a_starts_body_is_an_object(body: object) -> None:
    with pytest.raises(FrameError, match="object"):
        read_from_gateway(_request(operation=START, model_id="m", base_url="u", body=body))


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "200"},
        {"status": 200.5},
        {"status": True},
        {"status": None},
        {"status": 199},
        {"status": 600},
        {"data": None},
        {"data": 1},
        {"data": ["x"]},
        {"done": 1},
        {"done": "true"},
        {"error": 1},
        {"error": None},
        {"error": "e" * 129},
        {"request_id": ""},
        {"request_id": 1},
        {"request_id": "r\n"},
        {"request_id": "r" * 129},
        {"type": "model_request"},
        {"type": "other"},
        {"type": 1},
    ],
)
def test_types_and_bounds_of_an_answer_are_strict(fields: dict[str, object]) -> None:
    with pytest.raises(FrameError):
        read_from_runner(_response(**fields))


@pytest.mark.parametrize("fields", [{"status": 200}, {"status": 599}, {"error": "e" * 128}, {"request_id": "r" * 128}])
def test_bounds_of_an_answer_are_within(fields: dict[str, object]) -> None:
    read_from_runner(_response(**fields))


@pytest.mark.parametrize("operation", ["", "START", "stop", None, 1])
def test_there_are_three_operations(operation: object) -> None:
    with pytest.raises(FrameError):
        read_from_gateway(_request(operation=operation))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 9000, b'{"type":"hello"}', "\ud800"])
def test_what_is_no_frame_is_refused_and_not_repeated(data: bytes | str) -> None:
    for read in (read_from_runner, read_from_gateway):
        with pytest.raises(FrameError, match="not JSON of the agreed form"):
            read(data)


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.limit("runner.frame_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_a_runners_frame(more: int, passes: bool) -> None:
    empty = len(_response(data=""))
    frame = _response(data="x" * (DEFAULT_RUNNER_LIMITS.frame_bytes - empty + more))
    if passes:
        read_from_runner(frame)
    else:
        with pytest.raises(FrameTooLarge, match="longer than 73728 bytes"):
            read_from_runner(frame)


@pytest.mark.parametrize(
    "junk", [b"x", b'"', b"[", b'{"type":"heartbeat","x":"', b'{"type":"model_response","data":1,"x":"']
)
@pytest.mark.limit("runner.frame_bytes")
def test_what_is_no_frame_has_the_bound_of_one(junk: bytes) -> None:
    most = DEFAULT_RUNNER_LIMITS.frame_bytes
    with pytest.raises(FrameError, match="not JSON"):
        read_from_runner(junk.ljust(most, b" "))
    with pytest.raises(FrameTooLarge):
        read_from_runner(junk.ljust(most + 1, b" "))


_SPELLINGS = {"x": "\\u0078", '"': '\\"', "\\": "\\u005C", "\x01": "\\u0001", "é": "\\u00e9", "😀": "\\ud83d\\ude00"}


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.parametrize("character", _SPELLINGS)
@pytest.mark.limit("runner.frame_bytes")
def test_how_data_is_spelled_costs_a_frame_nothing_and_all_else_counts_as_it_was_sent(
    character: str, more: int, passes: bool
) -> None:
    count = DEFAULT_RUNNER_LIMITS.data_bytes // len(character.encode())
    frame = _response(data="@").replace(b"@", _SPELLINGS[character].encode() * count)
    around = DEFAULT_RUNNER_LIMITS.frame_bytes - DEFAULT_RUNNER_LIMITS.data_bytes - len(_response(data=""))
    padded = frame + b" " * (around + more)
    if passes:
        read = read_from_runner(padded)
        assert isinstance(read, ModelResponse)
        assert read.data == character * count
    else:
        with pytest.raises(FrameTooLarge, match=r"longer than (73728|401408) bytes"):
            read_from_runner(padded)


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.limit("runner.escaped_frame_bytes")
def test_the_bound_of_a_frame_as_it_was_sent(more: int, passes: bool) -> None:
    room = DEFAULT_RUNNER_LIMITS.escaped_frame_bytes - len(_response(data=""))
    frame = _response(data="@").replace(b"@", b"\\u0001" * (room // 6) + b"x" * (room % 6 + more))
    if passes:
        read_from_runner(frame)
    else:
        with pytest.raises(FrameTooLarge, match="longer than 401408 bytes"):
            read_from_runner(frame)


@pytest.mark.limit("runner.escaped_frame_bytes")
def test_the_longest_line_in_the_longest_envelope_fits_into_a_frame_as_we_write_it() -> None:
    data = "\x01" * DEFAULT_RUNNER_LIMITS.data_bytes
    frame = ModelResponse("\U0001f600" * 128, 599, data, done=True, error="\x01" * 128)
    assert read_from_runner(encode_frame(frame)) == frame


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.limit("runner.start_frame_bytes")
def test_the_bound_of_a_gateways_frame(more: int, passes: bool) -> None:
    limits = DEFAULT_RUNNER_LIMITS
    body = b'{"m":"' + b"x" * (limits.request_bytes - 8) + b'"}'
    frame = encode_frame(ModelRequest("r" * 128, START, "m" * 256, "u" * 256, msgspec.Raw(body)))
    padded = frame.ljust(limits.start_frame_bytes + more)
    if passes:
        assert bytes(read_from_gateway(padded).body) == body
    else:
        with pytest.raises(FrameTooLarge, match="longer than 1056768 bytes"):
            read_from_gateway(padded)


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.limit("runner.request_bytes")
@pytest.mark.guarantee("S7")
def test_the_bound_of_a_body(more: int, passes: bool) -> None:
    limits = RunnerLimits(request_bytes=100)
    body = b'{"m":"' + b"x" * (100 - 8 + more) + b'"}'
    frame = encode_frame(ModelRequest("r", START, "m", "u", msgspec.Raw(body)))
    if passes:
        assert len(read_from_gateway(frame, limits).body) == 100 + more
    else:
        with pytest.raises(FrameError, match="longer than 100 bytes"):
            read_from_gateway(frame, limits)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_a_frame_or_a_frame_error(data: bytes | str) -> None:
    for read in (read_from_runner, read_from_gateway):
        with contextlib.suppress(FrameError):
            read(data)


@given(st.text(max_size=300), st.integers(200, 599), st.booleans())
def test_any_text_crosses_as_data(data: str, status: int, done: bool) -> None:
    try:
        data.encode()
    except UnicodeEncodeError:
        return
    frame = ModelResponse("r", status, data, done)
    assert read_from_runner(encode_frame(frame)) == frame
