"""What is said of a provider record that inference will not be able to use, when it is made."""

import pytest

from pointsman.cli.record_warnings import record_warnings


@pytest.mark.parametrize(
    ("type_", "config"),
    [
        ("openai", {}),
        (" OpenAI ", {}),
        ("openai", {"OPENAI_BASE_URL": "https://models.example/v1"}),
        ("openai", {"OPENAI_BASE_URL": "mock://practice", "TEAM": "blue"}),
        ("openai", {"OPENAI_BASE_URL": "https://models.example/v1", "CONSOLE": "https://models.example/"}),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://models.example"}),
        ("openai_compatible", {"BASE_URL": "http://127.0.0.1:8080/v1/"}),
        ("openai_compatible", {"OPENAI_BASE_URL": "http://127.0.0.1:8080"}),
        ("local_gguf", {"MODEL_PATH": "/models/small.gguf"}),
    ],
)
def test_nothing_is_said_of_a_record_that_will_serve(type_: str, config: dict[str, str]) -> None:
    assert record_warnings("work", type_, config) == []


@pytest.mark.parametrize(
    ("type_", "config", "told"),
    [
        ("open-ai", {}, "type open-ai; did you mean openai?"),
        ("local_gguf", {}, "it names no model file; set it with 'pointsman provider update work --config MODEL_PATH=/"),
        ("local_gguf", {"MODEL_PATH": "small.gguf"}, "its MODEL_PATH is relative, to nobody knows what; set it with"),
        ("github", {}, "type github; the types it knows are anthropic, nvidia, openai, openai_compatible"),
        ("sk-1234", {}, "type given here; the types"),
        (
            "openai",
            {"OPENAI_BASEURL": "x"},
            "and requests go to https://api.openai.com/v1; did you mean OPENAI_BASE_URL?",
        ),
        (
            "openai",
            {"BASE_URL": "http://10.0.0.7/v1"},
            "read config BASE_URL, and requests go to https://api.openai.com",
        ),
        ("openai", {"SERVER": "http://10.0.0.7/v1"}, "did you mean OPENAI_BASE_URL?"),
        (
            "openai_compatible",
            {"base_url": "http://a/v1"},
            "inference does not read config base_url; did you mean BASE_URL?",
        ),
        ("openai_compatible", {}, "no base URL, and type openai_compatible has no default; set it with 'pointsman"),
        ("openai_compatible", {"BASE_URL": " "}, "'pointsman provider update work --config BASE_URL=URL'"),
        ("openai_compatible", {"BASE_URL": "127.0.0.1:8080/v1"}, "its BASE_URL is not a URL; set it with"),
        ("openai_compatible", {"BASE_URL": "gguf:///m.gguf"}, "its BASE_URL names a model file"),
        ("openai_compatible", {"BASE_URL": "http://a/v1/chat/completions/"}, "leave /chat/completions off"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "https://a/v1/messages"}, "leave /messages off"),
    ],
)
def test_what_keeps_a_record_from_serving_is_said_with_the_next_step(
    type_: str, config: dict[str, str], told: str
) -> None:
    assert told in "\n".join(record_warnings("work", type_, config))


def test_a_value_of_the_configuration_is_never_repeated() -> None:
    warnings = record_warnings("work", "openai", {"OPENAI_BASEURL": "http://sk-canary", "OPENAI_BASE_URL": "sk-canary"})
    assert len(warnings) == 2
    assert "canary" not in "".join(warnings)
