"""What llama.cpp says of an error, in the words of each dialect."""

import json

import pytest

from pointsman.wire.engine_error import engine_error_body

TOO_LONG = {
    "code": 400,
    "message": "it does not fit",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9,
    "n_ctx": 8,
}
GENERAL = "the local model cannot answer this request"


def body(error: object) -> bytes:
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize("protocol", ["openai_chat_completions", "openai_completions", "openai_responses"])
def test_a_prompt_that_does_not_fit_is_told_in_openais_words(protocol: str) -> None:
    error = {"message": "it does not fit", "type": "invalid_request_error", "param": None}
    told = json.loads(engine_error_body(protocol, 400, body(TOO_LONG), "r1"))
    assert told == {"error": {**error, "code": "context_length_exceeded"}}


def test_a_prompt_that_does_not_fit_is_told_in_anthropics_words() -> None:
    told = json.loads(engine_error_body("anthropic_messages", 400, body(TOO_LONG), "r1"))
    error = {"type": "invalid_request_error", "message": "it does not fit"}
    assert told == {"type": "error", "error": error, "request_id": "r1"}


def test_another_error_has_no_code_of_its_own() -> None:
    error = body({"code": 500, "message": "out of slots", "type": "server_error"})
    told = json.loads(engine_error_body("openai_chat_completions", 500, error, "r1"))
    assert told["error"] == {"message": "out of slots", "type": "server_error", "param": None, "code": None}


@pytest.mark.parametrize("garbled", [b"", b"oops", b"[]", b'"error"', body("no"), body({}), body(None), b"\xff", b"7"])
def test_what_is_no_error_object_is_told_in_general(garbled: bytes) -> None:
    told = json.loads(engine_error_body("openai_chat_completions", 500, garbled, "r1"))
    assert told["error"]["message"] == GENERAL
