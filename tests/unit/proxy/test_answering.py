"""What is noted of an answer when the client goes away with its last byte, before anybody has looked up."""

import asyncio

import pytest

from pointsman.core.event_kinds import INFER_COMPLETED, INFER_FAILED
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.protocols import InferenceProtocol
from pointsman.events.record import Record
from pointsman.proxy.answering import Answering
from pointsman.proxy.upstream.exchange import BodySink
from pointsman.wire.response import ResponseHead
from tests.support.door import candidate


class Client:
    """Takes what is written."""

    keep_alive = True

    def write(self, data: bytes) -> None: ...
    def attach(self, flow: object) -> None: ...


class Left:
    """An answer whose client goes away at its end, or before it."""

    def __init__(self, status: int, kind: bytes, body: bytes, *, last: bool) -> None:
        self.head = ResponseHead(status, b"X", [(b"Content-Type", kind)])
        self._body, self._last = body, last

    async def relay(self, sink: BodySink) -> str:
        sink.body(self._body, last=self._last)
        raise asyncio.CancelledError


JSON, EVENTS = b"application/json", b"text/event-stream"


@pytest.mark.guarantee("A10")
@pytest.mark.parametrize(
    ("status", "kind", "body", "last", "heard_out", "completed"),
    [
        (200, JSON, b"{}", True, True, True),
        (400, JSON, b"{}", True, True, False),
        (200, JSON, b"{", False, False, True),
        (200, EVENTS, b"data: 1\n\n", True, True, False),
        (200, EVENTS, b"data: [DONE]\n\n", False, True, True),
        (200, EVENTS, b"data: 1\n\n", False, False, True),
    ],
)
def test_who_has_the_whole_answer_did_not_leave_early(
    status: int, kind: bytes, body: bytes, last: bool, heard_out: bool, completed: bool
) -> None:
    record = Record("r-1", 0.0, "POST", "/v1/chat/completions", InferenceProtocol.CHAT_COMPLETIONS)
    answering, response = Answering(DEFAULT_LIMITS), Left(status, kind, body, last=last)

    async def answer() -> None:
        target = candidate("http://127.0.0.1:1/v1")
        await answering.answer(response, target, 1, Client(), record)  # type: ignore[arg-type]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(answer())
    assert record.heard_out is heard_out
    assert record.kind is (INFER_COMPLETED if completed else INFER_FAILED)
