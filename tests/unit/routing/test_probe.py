"""What is sent to verify a route, what answers mean, and what the operator is told."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.profiles import known_provider_types, profile_for
from pointsman.core.secret import Secret
from pointsman.routing.probe import (
    Answer,
    Failure,
    FailureKind,
    failure_text,
    judge,
    next_probe,
    probed_url,
    probes_for,
    verdict,
)
from pointsman.routing.resolve import resolve
from tests.support.canary import KEY, PIECE, Finder
from tests.unit.routing.provider_records import record, stored

K = FailureKind
PATH = "/v1/chat/completions"
CHAT, MESSAGES = "openai_chat_completions", "anthropic_messages"


OTHER_KEY = "0123-4567"
"""Shares nothing with any word, which the canary, being random, might."""


def judged(status: int, body: bytes = b"", key: str = OTHER_KEY, **changes: str) -> Failure:
    failure = judge(Answer(status, body, **changes), PATH, Secret(key))
    assert failure is not None
    return failure


def error(**fields: Any) -> bytes:
    return json.dumps({"error": fields}).encode()


# What is sent


def sent(protocols: Sequence[str]) -> list[tuple[str, str, Any]]:
    return [(probe.protocol, probe.path, json.loads(probe.body)) for probe in probes_for(protocols)]


def test_verify_openai_chat_uses_max_completion_tokens_then_max_tokens() -> None:
    message = {"messages": [{"role": "user", "content": "ping"}]}
    assert sent([CHAT]) == [
        (CHAT, PATH, {**message, "max_completion_tokens": 32}),
        (CHAT, PATH, {**message, "max_tokens": 32}),
    ]


def test_the_other_dialects_have_a_probe_each_in_the_published_order() -> None:
    message = {"messages": [{"role": "user", "content": "ping"}]}
    mixed = ["model_discovery", "openai_embeddings", "openai_completions", "openai_responses", MESSAGES, "unheard_of"]
    assert sent(mixed) == [
        (MESSAGES, "/v1/messages", {**message, "max_tokens": 32}),
        ("openai_responses", "/v1/responses", {"input": "ping", "max_output_tokens": 32}),
        ("openai_completions", "/v1/completions", {"prompt": "ping", "max_tokens": 32}),
        ("openai_embeddings", "/v1/embeddings", {"input": "ping"}),
    ]


@pytest.mark.parametrize("kind", known_provider_types())
def test_every_provider_type_has_a_probe(kind: str) -> None:
    profile = profile_for(kind)
    assert profile is not None
    assert probes_for(profile.protocols)


@pytest.mark.parametrize("protocols", [(), ("model_discovery",), ("aws_bedrock_invoke",)])
def test_what_has_no_dialect_of_ours_has_no_probe(protocols: tuple[str, ...]) -> None:
    assert probes_for(protocols) == ()


# What comes next


def walk(protocols: Sequence[str], kinds: Sequence[FailureKind]) -> tuple[list[str], Failure]:
    """The paths that are called while the upstream fails in these ways, and what is reported."""
    probes, failures, paths = probes_for(protocols), list[Failure](), list[str]()
    while (probe := next_probe(probes, failures)) is not None:
        failures.append(Failure(kinds[len(failures)], f"failure {len(failures)}", probe.path))
        paths.append(probe.path)
    return paths, verdict(failures)


def test_verify_all_probes_request_shape_returns_first() -> None:
    paths, reported = walk([CHAT, "openai_responses", "openai_embeddings"], [K.REQUEST_SHAPE] * 9)
    assert paths == [PATH, PATH, "/v1/responses", "/v1/embeddings"]
    assert reported.cause == "failure 0"


@pytest.mark.parametrize("kind", [kind for kind in K if kind is not K.REQUEST_SHAPE])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_any_other_failure_ends_it_and_is_the_one_reported(kind: FailureKind, before: int) -> None:
    paths, reported = walk([CHAT, MESSAGES, "openai_responses"], [*[K.REQUEST_SHAPE] * before, kind])
    assert len(paths) == before + 1
    assert (reported.kind, reported.cause) == (kind, f"failure {before}")


def test_verify_non_chat_completions_no_fallback() -> None:
    paths, _ = walk([MESSAGES], [K.REQUEST_SHAPE] * 2)
    assert paths == ["/v1/messages"]


@given(
    st.lists(st.sampled_from([CHAT, MESSAGES, "openai_responses", "openai_completions", "openai_embeddings"])),
    st.lists(st.sampled_from(list(K)), min_size=6, max_size=6),
)
def test_every_walk_ends_and_tries_no_probe_twice(protocols: list[str], kinds: list[FailureKind]) -> None:
    probes, failures, tried = probes_for(protocols), list[Failure](), list[object]()
    while (probe := next_probe(probes, failures)) is not None:
        tried.append(probe)
        failures.append(Failure(kinds[len(failures)], "", probe.path))
    assert tried == list(probes[: len(tried)])
    shapes = len(list(itertools.takewhile(lambda kind: kind is K.REQUEST_SHAPE, kinds)))
    assert len(tried) == min(len(probes), shapes + 1)


# What an answer means


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_is_a_success_whatever_its_body(status: int) -> None:
    assert judge(Answer(status, b'{"error":{"code":"invalid_api_key"}}'), PATH, Secret(KEY)) is None


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((401, 403), K.CREDENTIALS),
        ((400, 404, 405, 422), K.REQUEST_SHAPE),
        ((429,), K.RATE_LIMITED),
        ((500, 502, 503, 504, 529, 599), K.UPSTREAM_HEALTH),
        ((402, 406, 408, 409, 410, 413, 415, 418, 421, 499), K.UNEXPECTED),
        ((300, 301, 302, 303, 304, 307, 308, 399), K.UNEXPECTED),
    ],
)
def test_statuses_are_classified(statuses: tuple[int, ...], kind: FailureKind) -> None:
    for status in statuses:
        failure = judged(status)
        assert (failure.kind, failure.redirect, failure.path) == (kind, 300 <= status < 400, PATH)
        assert f"HTTP {status}" in failure.cause


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"X"}}',
        b'{"error":{"type":"authentication_error","message":"x"}}',
        b'{"error":{"code":"invalid_api_key"}}',
        b"Unauthorized",
        b'{"detail":"Missing bearer credentials"}',
        b'{"message":"invalid access token"}',
        b'{"error":"You do not have Permission"}',
    ],
)
def test_verify_auth_error_as_400_is_terminal(status: int, body: bytes) -> None:
    assert judged(status, body).kind is K.CREDENTIALS


def test_a_method_that_is_not_allowed_is_never_about_credentials() -> None:
    assert judged(405, b"Unauthorized").kind is K.REQUEST_SHAPE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"error":{"message":"Unsupported parameter: \'max_tokens\'","code":"unsupported_parameter"}}',
        b'{"error":{"message":"The model `x` does not exist or you do not have access to it."}}',
        b'{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"msg":"not permitted"}]}',
        b'{"error":"Unexpected token < in JSON"}',
        b"<html><a href=/authentication>Log in with your API key</a></html>",
        b"\xef\xbb\xbf\n<!doctype html>api key",
    ],
)
def test_other_refusals_are_about_the_request(body: bytes) -> None:
    assert judged(400, body).kind is K.REQUEST_SHAPE


# What is told of an answer


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize(
    ("body", "word"),
    [
        (error(code="model_not_found", type="invalid_request_error"), "model_not_found"),
        (error(code=None, type="invalid_request_error"), "invalid_request_error"),
        (error(code=404, type="not_found_error"), "not_found_error"),
        (error(code="Has Spaces", type="overloaded_error"), "overloaded_error"),
        (error(code="a" * 64), "a" * 64),
        (error(code="a" * 65), ""),
        (error(code="UPPER"), ""),
        (error(code="line\nbreak"), ""),
        (error(code="a\n"), ""),
        (error(code=""), ""),
        (error(message="model_not_found"), ""),
        (b'{"error":"model_not_found"}', ""),
        (b'{"error":["code"]}', ""),
        (b'["error"]', ""),
        (b'{"error":null}', ""),
        (b'{"error":{"code":"cut_o', ""),
        (b"[" * 60_000, ""),
        (b'{"error":{"code":"\xff"}}', ""),
    ],
)
def test_one_short_word_of_the_upstream_is_told(body: bytes, word: str) -> None:
    assert judged(404, body).cause == ("HTTP 404 " + word).strip()


@pytest.mark.parametrize("piece", [slice(None), slice(12), slice(-4, None), slice(-3, None), slice(8, 16), slice(3)])
def test_a_word_with_a_piece_of_the_key_is_not_told(piece: slice) -> None:
    for word in (KEY[piece], KEY[piece].lower(), KEY[piece].upper(), KEY.lower()[piece]):
        assert judged(401, error(code=word, type=word.lower()), KEY).cause == "HTTP 401"


@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("size", [3, 4, 8])
def test_a_word_around_four_characters_of_the_key_is_not_told(size: int) -> None:
    word = f"_{KEY[-size:].lower()}_"
    assert judged(401, error(code=word), KEY).cause == ("HTTP 401" if size > 3 else f"HTTP 401 {word}")


def test_without_a_key_or_with_a_trivial_one_every_word_is_told() -> None:
    for key in (None, Secret(""), Secret("no")):
        failure = judge(Answer(401, error(code="not_authorised")), PATH, key)
        assert failure is not None
        assert failure.cause == "HTTP 401 not_authorised"


@pytest.mark.guarantee("G7")
@given(
    st.integers(300, 599),
    st.lists(st.one_of(st.integers(0, 40).map(lambda at: KEY[at : at + PIECE]), st.sampled_from('_.-aZ"{}\n')))
    .map("".join)
    .map(str.encode),
    st.sampled_from(["code", "type", "message"]),
)
def test_no_answer_makes_the_text_show_a_piece_of_the_key(status: int, echoed: bytes, field: str) -> None:
    resolved = resolve(stored(), record())
    text = echoed.decode()
    for body in (echoed, error(**{field: text}), error(**{field: text.lower()})):
        failure = judge(Answer(status, body, f"https://{text}/{text}?{text}"), PATH, resolved.api_key)
        assert failure is not None
        told = failure_text("prod", resolved.candidate(), failure)
        assert not Finder({"key": KEY}).find(told.encode())
        assert "\n" not in told


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://login.example.com/oauth/very-private?next=/v1", " to https://login.example.com"),
        ("http://127.0.0.1:9/v1/", " to http://127.0.0.1:9"),
        ("HTTPS://Host/#part", " to https://host"),
        ("", ""),
        ("/v1/elsewhere", ""),
        ("//host/path", ""),
        ("https://user:secret@host/", ""),
        ("javascript://alert", ""),
        ("mock://label", ""),
        ("https://ho st/", ""),
        (f"https://{OTHER_KEY}.example.com/", ""),
    ],
)
def test_a_redirect_is_named_with_where_it_leads_but_no_more(location: str, told: str) -> None:
    failure = judged(307, location=location)
    assert failure.redirect
    assert failure.cause == f"HTTP 307, a redirect{told}, which is never followed"


# The line


NEXT_STEPS = {
    K.CREDENTIALS: "set a valid key with 'pointsman provider update prod --credential OPENAI_API_KEY'",
    K.REQUEST_SHAPE: "check the model's name",
    K.RATE_LIMITED: "try again later",
    K.UPSTREAM_HEALTH: "try again when the upstream is well",
    K.CONNECTIVITY: "check the base URL, and that the gateway can reach it",
    K.UNEXPECTED: "check the base URL, and the account",
}


@pytest.mark.parametrize("kind", K)
def test_the_line_names_provider_model_place_cause_next_step_and_the_way_round(kind: FailureKind) -> None:
    candidate = resolve(stored(), record(config={"OPENAI_BASE_URL": "HTTP://Host.example:8080/api/v1/"})).candidate()
    line = failure_text("prod", candidate, Failure(kind, "the cause", PATH))
    assert line.startswith("cannot verify model gpt-x of provider prod at http://host.example:8080/api/v1: ")
    assert f"{kind.value} (POST {PATH}: the cause); " in line
    assert NEXT_STEPS[kind] in line
    assert line.endswith(" or store the route unverified with --no-verify")


def test_a_failure_without_an_answer_names_no_request() -> None:
    line = failure_text("prod", resolve(stored(), record()).candidate(), Failure(K.CONNECTIVITY, "refused"))
    assert "the upstream cannot be reached (refused); " in line


def test_a_redirect_has_a_next_step_of_its_own() -> None:
    candidate = resolve(stored(), record("anthropic")).candidate()
    line = failure_text("prod", candidate, judged(301, location="https://b.example/"))
    assert "set the base URL to where it leads with 'pointsman provider update prod --config ANTHROPIC_BASE_URL" in line


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"),
        ("https://host:443/openai/v1/", "https://host/openai/v1/chat/completions"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1/chat/completions"),
        ("mock://canned", "mock://canned/v1/chat/completions"),
    ],
)
def test_the_probed_url_is_the_one_that_requests_go_to(base: str, url: str) -> None:
    assert probed_url(Candidate("r", parse_endpoint(base), "m", ()), PATH) == url


def test_an_answer_of_any_bytes_is_judged() -> None:
    for body in (bytes(range(256)), b"\x00" * 1000, b'{"error":{"code":{}}}', b'{"error":{"type":[]}}'):
        assert judged(400, body).cause == "HTTP 400"
