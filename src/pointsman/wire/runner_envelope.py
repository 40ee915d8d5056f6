"""What a gateway's processes ask each other for a runner's sake: a frame, and until when it may be acted upon.

Owns the form of a bus request's payload, and of the one answer that is no frame. Not exposed to runners.
"""

import struct

from pointsman.wire.runner_frames import ModelRequest, encode_frame

_DEADLINE = struct.Struct(">Q")
_TOO_LATE = b"\0"
"""No frame begins so, and a runner's word is passed on in frames alone: it cannot say this."""


def pack_request(request: ModelRequest, deadline: float) -> bytes:
    """`deadline`: seconds since the epoch, kept in milliseconds."""
    return _DEADLINE.pack(max(0, int(deadline * 1000))) + encode_frame(request)


def unpack_request(payload: bytes) -> tuple[float, memoryview]:
    """The deadline, in seconds since the epoch, and the frame's JSON. Raises ValueError for what is no such payload."""
    if len(payload) <= _DEADLINE.size:
        raise ValueError("a request on the bus is too short")
    return _DEADLINE.unpack_from(payload)[0] / 1000, memoryview(payload)[_DEADLINE.size :]


def pack_too_late(clock: float) -> bytes:
    """The answer to a request whose deadline had passed when it came: nothing was done. `clock` is whose judged that.

    Clocks of two machines differ. Whoever asked knows whether it has waited for so long, and can ask again otherwise.
    """
    return _TOO_LATE + _DEADLINE.pack(max(0, int(clock * 1000)))


def clock_of_too_late(payload: bytes) -> float | None:
    """Seconds since the epoch where the request was judged; None for any other answer."""
    if len(payload) != len(_TOO_LATE) + _DEADLINE.size or not payload.startswith(_TOO_LATE):
        return None
    clock: int = _DEADLINE.unpack_from(payload, len(_TOO_LATE))[0]
    return clock / 1000
