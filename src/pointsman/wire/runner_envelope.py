"""What a gateway's processes ask each other for a runner's sake: a frame, and until when it may be acted upon.

Owns the form of a bus request's payload. Not exposed to runners.
"""

import struct

from pointsman.wire.runner_frames import ModelRequest, encode_frame

_DEADLINE = struct.Struct(">Q")


def pack_request(request: ModelRequest, deadline: float) -> bytes:
    """`deadline`: seconds since the epoch, kept in milliseconds."""
    return _DEADLINE.pack(max(0, int(deadline * 1000))) + encode_frame(request)


def unpack_request(payload: bytes) -> tuple[float, memoryview]:
    """The deadline, in seconds since the epoch, and the frame's JSON. Raises ValueError for what is no such payload."""
    if len(payload) <= _DEADLINE.size:
        raise ValueError("a request on the bus is too short")
    return _DEADLINE.unpack_from(payload)[0] / 1000, memoryview(payload)[_DEADLINE.size :]
