"""The bounds of an upstream's response head, at the limit and one beyond, however the bytes are cut."""

import pytest

from pointsman.core.errors import UpstreamProtocol
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.wire.response import ResponseReader

INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"


def read(data: bytes, step: int) -> ResponseReader:
    reader = ResponseReader(DEFAULT_LIMITS)
    for at in range(0, len(data), step):
        reader.receive(data[at : at + step])
    return reader


def is_read(data: bytes, step: int) -> bool:
    try:
        reader = read(data, step)
    except UpstreamProtocol:
        return False
    assert reader.complete
    return True


@pytest.mark.limit("response_head_bytes")
@pytest.mark.parametrize("step", [1, 1000, 65_536, 1_000_000])
@pytest.mark.parametrize("body", [b"", b"b" * 300_000])
def test_a_response_head_may_have_64_kib_whatever_comes_with_it(step: int, body: bytes) -> None:
    if step == 1 and body:
        body = b"b" * 3000
    start, end = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-A: " % len(body), b"\r\n\r\n"
    room = 65_536 - len(start + end)
    assert is_read(start + b"a" * room + end + body, step)
    assert not is_read(start + b"a" * (room + 1) + end + body, step)


def test_a_head_that_never_ends_is_given_up_with_the_read_that_passes_64_kib() -> None:
    reader = ResponseReader(DEFAULT_LIMITS)
    reader.receive(b"HTTP/1.1 200 OK\r\nX: ")
    reader.receive(b"a" * (65_536 - 20))
    with pytest.raises(UpstreamProtocol, match="too large"):
        reader.receive(b"a")


@pytest.mark.limit("response_head_fields")
@pytest.mark.parametrize("count", [256, 257])
def test_a_response_head_may_have_256_fields(count: int) -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + b"X: 1\r\n" * (count - 1) + b"\r\n"
    assert is_read(data, 1000) is (count == 256)


@pytest.mark.limit("interim_responses")
@pytest.mark.parametrize("count", [100, 101])
@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_hundred_interim_responses_may_come_first(count: int, step: int) -> None:
    data = INTERIM * count + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    assert is_read(data, step) is (count == 100)
