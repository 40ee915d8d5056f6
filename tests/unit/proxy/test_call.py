"""A call: what is found in its body once, for all whom it asks."""

import time

import pytest

from pointsman.core.errors import MalformedRequest
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.proxy.call import Call
from pointsman.wire.request import RequestHead
from tests.support.door import candidate

PATH = "/v1/chat/completions"


def call(body: bytes) -> Call:
    asked = candidate("http://127.0.0.1:1/v1", route="fast", model="m")
    return Call(asked, "openai_chat_completions", RequestHead("POST", PATH, 1, []), PATH, body)


def searched(of: Call) -> float:
    """Seconds of this thread."""
    began = time.thread_time()
    of.place_of_model(DEFAULT_LIMITS.json_keys)
    return time.thread_time() - began


@pytest.mark.alone
def test_a_body_is_searched_for_its_model_once_however_many_are_asked() -> None:
    large = call(b'{"x":[' + b",".join([b"[]"] * 1_000_000) + b'],"model":"fast"}')
    first = searched(large)
    assert max(searched(large) for _ in range(5)) < first / 20


def test_the_place_is_that_of_the_value() -> None:
    assert call(b'{"model":"fast"}').place_of_model(10) == (9, 15)


def test_a_body_without_a_place_for_a_model_is_refused_each_time() -> None:
    bad = call(b"[1]")
    for _ in range(2):
        with pytest.raises(MalformedRequest):
            bad.place_of_model(10)
