"""A request on its way through the stages."""

import json

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.events.record import Record
from pointsman.proxy.stages import LARGEST_SHARED, Passage
from pointsman.wire.request import Request, RequestHead

TARGET = Candidate("fast", Endpoint("mock", "", 0, ""), "m", (P.CHAT_COMPLETIONS,))


def passage(body: bytes) -> Passage:
    head = RequestHead("POST", "/v1/chat/completions", 1, [])
    return Passage(Request(head, body), Record("id", 0.0, "POST", head.target, P.CHAT_COMPLETIONS), TARGET)


@pytest.mark.parametrize("more", [0, 1])
def test_a_small_body_is_read_once_for_all_stages_and_a_larger_one_by_each(more: int) -> None:
    opening, closing = b'{"model":"', b'"}'
    made = passage(opening + b"m" * (LARGEST_SHARED + more - len(opening) - len(closing)) + closing)
    assert (made.document is None) is bool(more)
    assert made.document is made.document


@pytest.mark.parametrize("body", [b"", b"text", b"[]", b'{"a":1,"a":2}', b'{"a":"\xff"}', b'{"a":1} 2'])
def test_what_is_no_object_with_one_reading_is_left_to_each_stage(body: bytes) -> None:
    assert passage(body).document is None


def test_a_body_that_a_stage_puts_in_its_place_is_read_anew() -> None:
    made = passage(b'{"a":1}')
    assert made.document is not None
    assert made.document.value == {"a": 1}
    made.body = json.dumps({"a": 2}).encode()
    assert made.document is not None
    assert made.document.value == {"a": 2}
