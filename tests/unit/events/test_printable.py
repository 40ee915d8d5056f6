"""What is told of text from outside."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.events.printable import MOST_CHARACTERS, printable, quoted, told_authority, told_path


@pytest.mark.parametrize("length", [199, 200, 201])
def test_text_is_bounded_at_200_characters(length: int) -> None:
    text = printable("x" * length)
    assert len(text) == min(length, MOST_CHARACTERS)
    assert text.endswith("…") == (length > MOST_CHARACTERS)


@given(st.text(max_size=300))
def test_any_text_becomes_one_printable_bounded_line(text: str) -> None:
    told = printable(text)
    assert told.isprintable()
    assert len(told) <= MOST_CHARACTERS


@given(st.text(max_size=100).map(printable))
def test_any_value_of_a_human_line_can_be_read_back(text: str) -> None:
    value = quoted(text)
    if value[0] == '"':
        assert re.sub(r"\\(.)", r"\1", value[1:-1]) == text
        assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', value)
    else:
        assert value == text
        assert not re.search(r'[\s="]', text)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions?key=secret", "/v1/chat/completions"),
        ("/v1/chat/completions#token=secret", "/v1/chat/completions"),
        ("https://me:secret@inference.local/v1/x?y", "/v1/x"),
        ("https://inference.local", "/"),
        ("/v1/models/meta-llama/Llama-3.3-70B-Instruct", "/v1/models/meta-llama/Llama-3.3-70B-Instruct"),
        ("/v1/models/claude-opus-4-20250514", "/v1/models/claude-opus-4-20250514"),
        ("/v1/models/gpt-4o-mini-2024-07-18", "/v1/models/gpt-4o-mini-2024-07-18"),
        ("/v1/sk-proj-abc/x", "/v1/***/x"),
        ("/v1/Bearer%20abc/x", "/v1/***/x"),
        ("/bot123456:AAF0aQ3rT9xZbN5kLmPqW2yUvCdE/send", "/bot123456:***/send"),
        ("/v1/api_key=abc", "/v1/***"),
        ("/v1/AIzaSyA/x", "/v1/***/x"),
        ("/v1/0123456789abcdef0123456789abcdef", "/v1/***"),
        ("*", "*"),
    ],
)
def test_a_path_is_told_without_what_may_be_secret(target: str, told: str) -> None:
    assert told_path(target) == told


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("example.com:443", ("example.com", "443")),
        ("me:secret@example.com:443", ("example.com", "443")),
        ("a@b@example.com:443", ("example.com", "443")),
        ("http://example.com/a?b", ("example.com", "80")),
        ("https://me:secret@example.com:8443/a", ("example.com", "8443")),
        ("ftp://example.com", ("example.com", "")),
        ("[::1]:80", ("[::1]", "80")),
        ("http://[::1]", ("[::1]", "80")),
        ("example.com", ("example.com", "")),
        ("/v1/x", ("", "")),
        ("", ("", "")),
        ("a\x1bb:1", ("a\\x1bb", "1")),
    ],
)
def test_an_authority_is_told_without_user_info(target: str, told: tuple[str, str]) -> None:
    assert told_authority(target) == told


@given(st.text(max_size=400))
def test_any_target_can_be_told(target: str) -> None:
    host, port = told_authority(target)
    assert json.dumps([told_path(target), host, port])
    assert (told_path(target) + host + port).isprintable()
    assert len(host) <= 253
    assert len(port) <= 10
