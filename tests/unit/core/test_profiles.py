"""What is known of each provider type."""

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.profiles import known_provider_types, profile_for

OPENAI_LIKE = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "openai_embeddings",
    "model_discovery",
)


def test_there_is_a_profile_for_every_known_type_and_no_other() -> None:
    assert known_provider_types() == ("anthropic", "nvidia", "openai", "openai_compatible")
    assert all(profile_for(name) is not None for name in known_provider_types())


@pytest.mark.parametrize("name", ["OpenAI", "  openai\n", "OPENAI"])
def test_profile_for_known_types_ignores_case_and_space(name: str) -> None:
    assert profile_for(name) is profile_for("openai")


@pytest.mark.parametrize("name", [None, "", "  ", "lmstudio", "openai-compatible", "local_gguf", "mock"])
def test_profile_for_unknown_types_is_none(name: str | None) -> None:
    assert profile_for(name) is None


@pytest.mark.parametrize(
    ("name", "url", "protocols", "variable"),
    [
        ("openai", "https://api.openai.com/v1", OPENAI_LIKE, "OPENAI"),
        ("anthropic", "https://api.anthropic.com/v1", ("anthropic_messages", "model_discovery"), "ANTHROPIC"),
        ("nvidia", "https://integrate.api.nvidia.com/v1", OPENAI_LIKE, "NVIDIA"),
    ],
)
def test_a_profile_says_what_the_design_says(name: str, url: str, protocols: tuple[str, ...], variable: str) -> None:
    profile = profile_for(name)
    assert profile is not None
    assert profile.default_base_url == url
    assert tuple(map(str, profile.protocols)) == protocols
    assert profile.credential_key_names == (f"{variable}_API_KEY",)
    assert profile.base_url_config_keys == (f"{variable}_BASE_URL",)
    assert parse_endpoint(profile.default_base_url).scheme == "https"


def test_openai_compatible_profiles_include_embeddings() -> None:
    for name in ("openai", "nvidia", "openai_compatible"):
        profile = profile_for(name)
        assert profile is not None
        assert tuple(map(str, profile.protocols)) == OPENAI_LIKE


def test_a_compatible_server_is_spoken_to_as_openai_is_but_only_the_operator_knows_where() -> None:
    compatible, openai = profile_for("openai_compatible"), profile_for("openai")
    assert compatible is not None
    assert openai is not None
    assert compatible.default_base_url == ""
    assert compatible.base_url_config_keys == ("BASE_URL", "OPENAI_BASE_URL")
    assert compatible.credential_key_names == openai.credential_key_names
    assert compatible.passthrough_headers == openai.passthrough_headers
    assert compatible.auth_header == "authorization"


def test_auth_for_anthropic_uses_custom_header_and_a_version() -> None:
    profile = profile_for("anthropic")
    assert profile is not None
    assert profile.auth_header == "x-api-key"
    assert profile.default_headers == (("anthropic-version", "2023-06-01"),)
    assert profile.passthrough_headers == ("anthropic-version", "anthropic-beta")


@pytest.mark.parametrize(
    ("name", "passthrough"), [("openai", ("openai-organization", "x-model-id")), ("nvidia", ("x-model-id",))]
)
def test_auth_for_openai_and_nvidia_uses_bearer(name: str, passthrough: tuple[str, ...]) -> None:
    profile = profile_for(name)
    assert profile is not None
    assert profile.auth_header == "authorization"
    assert profile.default_headers == ()
    assert profile.passthrough_headers == passthrough


def test_no_profile_lets_a_credential_header_of_the_client_through() -> None:
    for name in known_provider_types():
        profile = profile_for(name)
        assert profile is not None
        names = {*profile.passthrough_headers, *(header for header, _ in profile.default_headers)}
        assert names.isdisjoint({"authorization", "x-api-key", "cookie", "proxy-authorization", "host"})
        assert all(each == each.lower() for each in names)


@pytest.mark.parametrize(("provider_type", "known"), [("Anthropic", True), ("", False), ("ollama", False)])
def test_a_candidate_finds_the_profile_of_its_type(provider_type: str, known: bool) -> None:
    candidate = Candidate("inference.local", parse_endpoint("http://host"), "m", ("openai_responses",), provider_type)
    assert (candidate.profile is not None) is known
