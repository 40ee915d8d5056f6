"""Pattern, plan and rewrite as pure functions; on sockets they are tested with the door."""

from dataclasses import replace

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.errors import NoCompatibleRoute, NotConfigured, NotInference
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.routing.pattern import is_door, match_pattern
from pointsman.routing.plan import select_candidate
from pointsman.routing.rewrite import BasePath, RequestTemplate, base_path
from pointsman.wire.request import FieldValues


def candidate(*protocols: str, model: str = "m") -> Candidate:
    return Candidate("inference.local", parse_endpoint("http://127.0.0.1:1/v1"), model, protocols)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/chat/completions", P.CHAT_COMPLETIONS),
        ("POST", "/v1/completions", P.COMPLETIONS),
        ("POST", "/v1/responses", P.RESPONSES),
        ("POST", "/v1/messages", P.MESSAGES),
        ("GET", "/v1/models", P.MODEL_DISCOVERY),
        ("GET", "/v1/models/gpt-4.1", P.MODEL_DISCOVERY),
        ("GET", "/v1/models/a/b", P.MODEL_DISCOVERY),
    ],
)
def test_the_published_patterns_match(method: str, path: str, expected: P) -> None:
    assert match_pattern(method, path, lambda _: False) is expected


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens"])
def test_further_patterns_match_only_where_a_route_lists_the_dialect(path: str) -> None:
    with pytest.raises(NotInference):
        match_pattern("POST", path, ["openai_chat_completions"].__contains__)
    assert match_pattern("POST", path, ["openai_embeddings", "anthropic_messages"].__contains__)


@pytest.mark.guarantee("T1")
@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [("inference.local", "443", True), ("INFERENCE.LOCAL.", "443", True), ("inference.local", "0443", False)],
)
def test_the_door_has_one_name_and_one_port(host: str, port: str, expected: bool) -> None:
    assert is_door(host, port) is expected


def test_the_first_candidate_that_fits_is_selected() -> None:
    first, second, third = candidate("a"), candidate("b", model="2"), candidate("b", model="3")
    assert select_candidate((first, second, third), "b") is second
    with pytest.raises(NoCompatibleRoute):
        select_candidate((first,), "b")
    with pytest.raises(NotConfigured):
        select_candidate((), "b")


@pytest.mark.guarantee("U8")
@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("/v1", "/v1/models", "/v1/models"),
        ("/v1", "/v1", "/v1"),
        ("/v1", "/v1beta", "/v1/v1beta"),
        ("", "/v1/models", "/v1/models"),
        ("/api", "/v1/models", "/api/v1/models"),
        ("/openai/v1", "/v1/models", "/openai/v1/models"),
        ("/v1/openai", "/v1/models", "/v1/openai/v1/models"),
        ("/xv1", "/v1/models", "/xv1/v1/models"),
    ],
)
def test_paths_are_joined_with_one_v1(base: str, path: str, expected: str) -> None:
    assert BasePath(base, is_whole=False).join(path) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host/v1", "/v1/chat/completions"),
        ("https://host", "/v1/chat/completions"),
        ("https://host/api", "/api/v1/chat/completions"),
        ("https://host/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("https://host/v1/openai", "/v1/openai/chat/completions"),
        ("https://host/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("https://host/v4x", "/v4x/v1/chat/completions"),
    ],
)
def test_an_openai_compatible_base_that_names_a_version_is_whole(url: str, expected: str) -> None:
    named = replace(candidate(), provider_type="openai_compatible", endpoint=parse_endpoint(url))
    assert base_path(named).join("/v1/chat/completions") == expected
    whole = replace(named, base_is_whole=True)
    assert base_path(whole).join("/v1/chat/completions") == parse_endpoint(url).path + "/chat/completions"


def test_a_large_body_follows_its_head_in_pieces_of_its_own() -> None:
    template = RequestTemplate(candidate(), "", "host")
    small = template.encode("POST", "/v1/x", FieldValues(), (b"a" * 32 * 1024,))
    large = template.encode("POST", "/v1/x", FieldValues(), (b"a" * 32 * 1024, b"b"))
    assert len(small) == 1
    assert [bytes(piece) for piece in large[1:]] == [b"a" * 32 * 1024, b"b"]
    assert b"content-length: 32769\r\n\r\n" in bytes(large[0])


def test_what_was_derived_for_one_template_is_not_used_by_another() -> None:
    values = FieldValues([(b"openai-organization", b"org")])
    openai = Candidate("r", parse_endpoint("http://127.0.0.1:1/v1"), "m", (), "openai")
    assert b"openai-organization" in bytes(RequestTemplate(openai, "", "host").encode("POST", "/v1/x", values, ())[0])
    assert b"openai-organization" not in bytes(
        RequestTemplate(candidate(), "", "host").encode("POST", "/v1/x", values, ())[0]
    )


def test_another_clients_head_is_never_reused() -> None:
    template = RequestTemplate(candidate(), "", "host")
    assert b"accept: a" in bytes(template.encode("POST", "/v1/x", FieldValues([(b"accept", b"a")]), ())[0])
    assert b"accept: b" in bytes(template.encode("POST", "/v1/x", FieldValues([(b"accept", b"b")]), ())[0])
