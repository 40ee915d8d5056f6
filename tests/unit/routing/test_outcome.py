"""What an upstream's answer means for a chain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.attempts import ErrorCategory as E
from pointsman.core.attempts import ErrorMapping
from pointsman.routing.outcome import LONGEST_ERROR_BODY, classify, error_code, may_retry, needs_body
from tests.unit.routing.chains import member

PLAIN = member("groq")


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (199, E.SERVER_ERROR),
        (200, None),
        (204, None),
        (299, None),
        (300, E.SERVER_ERROR),
        (302, E.SERVER_ERROR),
        (304, E.SERVER_ERROR),
        (399, E.SERVER_ERROR),
        (400, E.REQUEST_REJECTED),
        (401, E.AUTH_ERROR),
        (402, E.AUTH_ERROR),
        (403, E.AUTH_ERROR),
        (404, E.MODEL_UNAVAILABLE),
        (405, E.REQUEST_REJECTED),
        (408, E.REQUEST_REJECTED),
        (409, E.REQUEST_REJECTED),
        (410, E.MODEL_UNAVAILABLE),
        (413, E.REQUEST_REJECTED),
        (422, E.REQUEST_REJECTED),
        (428, E.REQUEST_REJECTED),
        (429, E.RATE_LIMIT),
        (430, E.REQUEST_REJECTED),
        (499, E.REQUEST_REJECTED),
        (500, E.SERVER_ERROR),
        (503, E.SERVER_ERROR),
        (529, E.SERVER_ERROR),
        (599, E.SERVER_ERROR),
    ],
)
def test_every_status_has_a_meaning_without_any_mapping(status: int, category: E | None) -> None:
    assert classify(status, b"", PLAIN) is category
    assert not needs_body(status, PLAIN)


MAPPED = member(
    "groq",
    mappings=(
        ErrorMapping(400, E.MODEL_UNAVAILABLE, "model_not_found"),
        ErrorMapping(400, E.RATE_LIMIT, "Quota_Exceeded"),
        ErrorMapping(503, E.RATE_LIMIT),
        ErrorMapping(503, E.AUTH_ERROR, "suspended"),
        ErrorMapping(429, E.SERVER_ERROR, "engine_overloaded"),
        ErrorMapping(418, E.UNKNOWN),
        ErrorMapping(400, E.AUTH_ERROR, "quota_exceeded"),
    ),
)


@pytest.mark.parametrize(
    ("status", "code", "category"),
    [
        (400, "model_not_found", E.MODEL_UNAVAILABLE),
        (400, "MODEL_NOT_FOUND", E.MODEL_UNAVAILABLE),
        (400, "quota_exceeded", E.RATE_LIMIT),
        (400, "something_else", E.REQUEST_REJECTED),
        (422, "model_not_found", E.REQUEST_REJECTED),
        (503, "suspended", E.AUTH_ERROR),
        (503, "anything", E.RATE_LIMIT),
        (429, "engine_overloaded", E.SERVER_ERROR),
        (429, "rate_limit", E.RATE_LIMIT),
        (418, "teapot", E.UNKNOWN),
        (200, "quota_exceeded", None),
    ],
)
def test_a_mapping_with_a_code_wins_over_one_of_the_status_and_that_over_the_table(
    status: int, code: str, category: E | None
) -> None:
    assert classify(status, b'{"error":{"code":"%b"}}' % code.encode(), MAPPED) is category


def test_the_match_of_a_code_is_case_insensitive() -> None:
    assert classify(400, b'{"error":{"code":"qUOTA_eXCEEDED"}}', MAPPED) is E.RATE_LIMIT


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"[]", b"null", b'{"error":"quota_exceeded"}', b"\xff"])
def test_a_body_without_a_code_leaves_the_status_to_speak(body: bytes) -> None:
    assert classify(400, body, MAPPED) is E.REQUEST_REJECTED
    assert classify(503, body, MAPPED) is E.RATE_LIMIT


def test_a_body_is_needed_only_where_a_code_is_mapped() -> None:
    assert [needs_body(status, MAPPED) for status in (400, 503, 418, 500)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("error.code", b'{"error":{"code":"a"}}', "a"),
        ("error.code", b'{"error":{"code":429}}', "429"),
        ("error.code", b'{"error":{"code":null}}', ""),
        ("error.code", b'{"error":{"code":true}}', ""),
        ("error.code", b'{"error":{"code":1.5}}', ""),
        ("error.code", b'{"error":{"code":{}}}', ""),
        ("error.code", b'{"error.code":"a"}', ""),
        ("error.code", b' {"error":{"code":" a "}} ', "a"),
        ("code", b'{"code":"a"}', "a"),
        ("0.error.status", b'[{"error":{"status":"RESOURCE_EXHAUSTED"}}]', "RESOURCE_EXHAUSTED"),
        ("1.a", b'[{"a":"x"}]', ""),
        ("-1.a", b'[{"a":"x"}]', ""),
        ("9999999999999999999999.a", b'[{"a":"x"}]', ""),
        ("a.b.c", b'{"a":{"b":{"c":"deep"}}}', "deep"),
        ("a.b.c.d", b'{"a":{"b":{"c":"deep"}}}', ""),
        ("", b'{"":"empty"}', "empty"),
    ],
)
def test_a_dotted_path_finds_the_code(path: str, body: bytes, code: str) -> None:
    assert error_code(body, path) == code


@pytest.mark.parametrize(("beyond", "code"), [(-1, "a"), (0, "a"), (1, "")])
def test_a_body_over_the_limit_is_not_searched(beyond: int, code: str) -> None:
    body = b'{"code":"a"}'
    assert error_code(body + b" " * (LONGEST_ERROR_BODY + beyond - len(body)), "code") == code


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"a":' * 10_000, b"[" * 20_000 + b"]" * 20_000, b"9" * 60_000])
def test_a_hostile_body_is_no_code(body: bytes) -> None:
    assert error_code(body, "error.code") == ""


@given(st.binary(max_size=200), st.text(max_size=20), st.integers(100, 999))
def test_no_body_and_no_path_break_the_reading(body: bytes, path: str, status: int) -> None:
    error_code(body, path)
    odd = member("odd", mappings=(ErrorMapping(status, E.RATE_LIMIT, "x"),), path=path)
    assert (classify(status, body, odd) is None) == (200 <= status <= 299)


@pytest.mark.parametrize("category", list(E))
def test_only_a_servers_error_is_tried_again_once_and_at_once(category: E) -> None:
    allowed = category is E.SERVER_ERROR
    assert [may_retry(category, 500, attempt) for attempt in (1, 2, 3)] == [allowed, False, False]


@pytest.mark.parametrize(("status", "allowed"), [(0, False), (200, False), (302, False), (399, False), (400, True)])
def test_who_cannot_be_reached_redirects_or_breaks_off_is_not_asked_twice(status: int, allowed: bool) -> None:
    assert may_retry(E.SERVER_ERROR, status, 1) is allowed
