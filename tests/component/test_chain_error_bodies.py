"""Errors whose meaning is in their bodies, on real sockets: no more is held than is searched, and no key is shown."""

import pytest

from pointsman.core.attempts import ErrorCategory, ErrorMapping
from pointsman.core.limits import DEFAULT_LIMITS
from tests.support.canary import KEY
from tests.support.chain_door import chain, serve

PIECE = b"x" * 16384
MANY = DEFAULT_LIMITS.error_body_bytes // len(PIECE) + 1


def begin(status: int) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n" % status


@pytest.mark.guarantee("A14")
def test_an_error_that_is_no_clients_answer_is_not_read_beyond_what_is_searched() -> None:
    with chain(error_mappings=(ErrorMapping(503, ErrorCategory.RATE_LIMIT, "quota_gone"),)) as door:
        door.ask()
        for _ in range(2):
            peer = door.asked(0)
            peer.send(begin(503))
            for _ in range(MANY):
                peer.chunk(PIECE)
            assert peer.wait_closed()  # it has not ended its answer
        serve(door, door.asked(1), stream=False)
        assert door.used() == [0, 1]


@pytest.mark.guarantee("A8", "A14")
def test_a_long_error_that_is_the_clients_answer_goes_to_the_client_as_it_comes() -> None:
    with chain(error_mappings=(ErrorMapping(400, ErrorCategory.RATE_LIMIT, "quota_gone"),)) as door:
        door.ask()
        peer = door.asked(0)
        peer.send(begin(400))
        for _ in range(MANY):
            peer.chunk(PIECE)
        assert door.client is not None
        door.client.read_until(PIECE)  # before its end has come
        assert door.used() == [0, 0]
        peer.chunk(b"the end")
        peer.end_chunks()
        door.client.read_until(b"the end\r\n0\r\n\r\n")
        assert door.told()[-1] == "infer_failed request_rejected 400 1"


@pytest.mark.guarantee("A8", "A14")
@pytest.mark.parametrize("length", [10, MANY * len(PIECE)])
@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_that_is_mapped_to_the_clients_answer_shows_no_key_however_long_it_is(
    status: int, length: int
) -> None:
    with chain(
        error_mappings=(
            ErrorMapping(status, ErrorCategory.REQUEST_REJECTED, "no"),
            ErrorMapping(status, ErrorCategory.REQUEST_REJECTED),
        )
    ) as door:
        door.ask()
        peer = door.asked(0)
        peer.send(begin(status).replace(b"text/plain", b"text/plain\r\nX-Echo: " + KEY.encode()))
        peer.chunk(KEY.encode() + b"x" * length)
        if length < len(PIECE):
            peer.end_chunks()
        answer = door.answer()
        assert answer.status == status
        assert KEY.encode() not in answer.body + b"".join(value for _, value in answer.fields)
        assert door.used() == [0, 0]


@pytest.mark.guarantee("A13")
def test_a_stream_that_says_nothing_within_the_requests_timeout_uses_no_place() -> None:
    with chain(made={"request_timeout_seconds": 0.3}) as door:
        door.ask(stream=True)
        peer = door.asked(0)
        peer.start_events()
        peer.chunk(b": wait\n\n")
        assert door.answer().status == 503
        assert peer.wait_closed()
        assert door.used() == [0, 0]
