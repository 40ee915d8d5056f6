"""What passes between a gateway's processes for a runner's sake, as bytes."""

import pytest

from pointsman.wire.runner_envelope import clock_of_too_late, pack_request, pack_too_late, unpack_request
from pointsman.wire.runner_frames import CANCEL, ModelRequest, ModelResponse, encode_frame


def test_a_request_is_read_with_its_deadline_to_the_millisecond() -> None:
    request = ModelRequest("r", CANCEL)
    deadline, frame = unpack_request(pack_request(request, 1234.5678))
    assert deadline == 1234.567
    assert bytes(frame) == encode_frame(request)


@pytest.mark.parametrize("payload", [b"", b"12345678"])
def test_a_payload_without_a_frame_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="too short"):
        unpack_request(payload)


def test_a_refusal_tells_the_clock_that_it_was_judged_by() -> None:
    assert clock_of_too_late(pack_too_late(1234.5678)) == 1234.567


@pytest.mark.parametrize("payload", [b"", b"\0", pack_too_late(1)[:-1], pack_too_late(1) + b"x", b"x" * 9])
def test_nothing_else_is_taken_for_a_refusal(payload: bytes) -> None:
    assert clock_of_too_late(payload) is None


def test_no_frame_that_a_runner_has_a_word_in_is_taken_for_a_refusal() -> None:
    for data in ("", "\0", "\0" * 9, '"'):
        assert clock_of_too_late(encode_frame(ModelResponse("r", data=data, error=data))) is None
