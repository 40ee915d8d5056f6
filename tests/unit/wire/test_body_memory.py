"""A body that arrives in crumbs is held at its own size, not at that of as many objects."""

import tracemalloc

import pytest

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.wire.request import Request, RequestReader

SIZE = 200_000


@pytest.mark.parametrize("framing", [b"Content-Length: %d\r\n\r\n" % SIZE, b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_body_in_pieces_of_two_bytes_takes_little_more_than_its_size(framing: bytes) -> None:
    data = b"POST / HTTP/1.1\r\nHost: inference.local\r\n" + framing
    chunked = b"chunked" in framing
    reader = RequestReader(DEFAULT_LIMITS)
    reader.receive(data + (b"%x\r\n" % SIZE if chunked else b""))
    assert reader.next_event() is not None
    piece = bytes(range(65, 67))
    tracemalloc.start()
    try:
        for _ in range(SIZE // 2):
            reader.receive(bytes(bytearray(piece)))  # an object of its own, as a read makes it
            event = reader.next_event()
        if chunked:
            reader.receive(b"\r\n0\r\n\r\n")
            event = reader.next_event()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(event, Request)
    assert event.body == piece * (SIZE // 2)
    assert peak < 3 * SIZE
