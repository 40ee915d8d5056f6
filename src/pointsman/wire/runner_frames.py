"""Frames between a gateway and a runner, version 1: bytes in, values out, strictly.

Owns the form of single frames. Which frame may come when is `runner_line`'s and `runner_calls`'.
"""

from typing import TypeVar

import msgspec

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits

VERSION = 1
SUBPROTOCOL = "pointsman-runner-served"
"""The websocket's, with which a gateway's first frame is Served; without it there is no such frame."""
START, NEXT, CANCEL = "start", "next", "cancel"
_LONGEST_ID = 128
_LONGEST_TEXT = 256
"""Characters of a model's id or name, and of an address."""
_LONGEST_ERROR = 128
_LEAST_STATUS, _MOST_STATUS = 200, 599
_NOT_JSON = "a frame is not JSON of the agreed form"


class FrameError(Exception):
    """A frame that is not what it must be. The text says what of it, and repeats nothing of it."""


class FrameTooLarge(FrameError):
    """A frame that is longer than it may be."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A runner's first frame."""

    runner_id: str
    model_proxy_version: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """A runner lives."""


class ModelResponse(msgspec.Struct, frozen=True, tag="model_response"):
    """One frame of an answer: it uses up the credit that `start` or `next` gave."""

    request_id: str
    status: int = 200
    data: str = ""
    """One line of an event stream without its end, or a whole completion."""
    done: bool = False
    """Whether the answer has ended with it. Never on a frame that carries an event's content (DESIGN D16)."""
    error: str = ""
    """One short word; ends the answer."""

    @property
    def ends(self) -> bool:
        """Whether nothing follows."""
        return self.done or bool(self.error)


class ModelRequest(msgspec.Struct, frozen=True, tag="model_request", omit_defaults=True):
    """What a gateway asks of a runner."""

    request_id: str
    operation: str
    model_id: str = ""
    base_url: str = ""
    body: msgspec.Raw = msgspec.Raw()
    """The request's JSON object, byte for byte; of a `start` alone."""


class Served(msgspec.Struct, frozen=True, tag="served"):
    """A gateway passes on what is asked of the runner, from now on."""


class _Spelled(msgspec.Struct):
    """A frame's data as it was sent."""

    data: msgspec.Raw = msgspec.Raw(b'""')


_Frame = TypeVar("_Frame")
FromRunner = Hello | Heartbeat | ModelResponse
_SPELLED = msgspec.json.Decoder(_Spelled)
_FROM_RUNNER: msgspec.json.Decoder[FromRunner] = msgspec.json.Decoder(FromRunner, strict=True)
_FROM_GATEWAY = msgspec.json.Decoder(ModelRequest, strict=True)
_FIRST_FROM_GATEWAY: msgspec.json.Decoder[ModelRequest | Served] = msgspec.json.Decoder(
    ModelRequest | Served,
    strict=True,
)
"""Of either, so that a frame must have its type."""
_ENCODER = msgspec.json.Encoder()


def encode_frame(frame: FromRunner | ModelRequest | Served) -> bytes:
    """One frame, without an end."""
    return _ENCODER.encode(frame)


def read_from_runner(data: bytes | str, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> FromRunner:
    """A frame that a runner sent. Raises FrameError.

    A response whose data is too long is a frame all the same: it is the request's failure, not the connection's.
    How data is spelled in JSON costs it nothing: a line may consist of quotes, or be sent as `\\u0061` throughout.
    """
    received = _received(data, limits.escaped_frame_bytes)
    try:
        frame = _decoded(_FROM_RUNNER, received)
    except FrameError:
        _check_size(len(received), limits.frame_bytes)
        raise
    if len(received) > limits.frame_bytes:
        _check_size(len(received) - _escapes(frame, received), limits.frame_bytes)
    if isinstance(frame, ModelResponse):
        _check_response(frame)
    elif isinstance(frame, Hello):
        _check_text("runner_id", frame.runner_id, _LONGEST_ID)
    return frame


def read_from_gateway(data: bytes | str, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> ModelRequest:
    """A frame that a gateway sent. Raises FrameError."""
    frame = _decoded(_FROM_GATEWAY, _received(data, limits.start_frame_bytes))
    _check_text("request_id", frame.request_id, _LONGEST_ID)
    if frame.operation not in (START, NEXT, CANCEL):
        raise FrameError("operation is none of start, next and cancel")
    is_start = frame.operation == START
    if is_start:
        _check_text("model_id", frame.model_id, _LONGEST_TEXT)
        _check_text("base_url", frame.base_url, _LONGEST_TEXT)
    if is_start != bytes(frame.body).startswith(b"{"):
        raise FrameError("a start has a body, which is an object; nothing else has one")
    if not is_start and (frame.model_id or frame.base_url):
        raise FrameError("only a start names a model")
    if len(frame.body) > limits.request_bytes:
        raise FrameError(f"the body is longer than {limits.request_bytes} bytes")
    return frame


def read_served(data: bytes | str, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> Served:
    """A gateway's first frame where the two have agreed on SUBPROTOCOL. Raises FrameError."""
    frame = _decoded(_FIRST_FROM_GATEWAY, _received(data, limits.start_frame_bytes))
    if not isinstance(frame, Served):
        raise FrameError("a request came before the word that the runner is served")
    return frame


def _received(data: bytes | str, most: int) -> bytes:
    try:
        received = data.encode() if isinstance(data, str) else data
    except UnicodeError:
        raise FrameError(_NOT_JSON) from None
    _check_size(len(received), most)
    return received


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise FrameTooLarge(f"a frame is longer than {most} bytes")


def _escapes(frame: FromRunner, received: bytes) -> int:
    """By how many bytes a frame's data is longer as it was sent than it is."""
    if not isinstance(frame, ModelResponse):
        return 0
    return len(_decoded(_SPELLED, received).data) - len(b'""') - len(frame.data.encode())


def _decoded(decoder: msgspec.json.Decoder[_Frame], received: bytes) -> _Frame:
    try:
        return decoder.decode(received)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # What the library says repeats names of fields, which a hostile peer chooses.
        raise FrameError(_NOT_JSON) from None


def _check_response(frame: ModelResponse) -> None:
    _check_text("request_id", frame.request_id, _LONGEST_ID)
    if not _LEAST_STATUS <= frame.status <= _MOST_STATUS:
        raise FrameError(f"status is not between {_LEAST_STATUS} and {_MOST_STATUS}")
    if len(frame.error) > _LONGEST_ERROR:
        raise FrameError(f"error is longer than {_LONGEST_ERROR} characters")


def _check_text(name: str, text: str, most: int) -> None:
    if not 0 < len(text) <= most or not text.isprintable():
        raise FrameError(f"{name} is not a line of 1 to {most} characters")
