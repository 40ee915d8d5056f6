"""What an error may repeat, and what is taken for a slip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.gateway.rest.refusals import looks_like_a_credential, masked

LONG = "a1B2" * 6
"""24 characters."""


@pytest.mark.parametrize("joint", ["{}", "'{}'", "field.{}: bad", "{}.", "a/{}/b", "{}…", "({})", "key={}", "~{}-"])
def test_what_was_sent_and_is_long_is_masked_wherever_it_stands(joint: str) -> None:
    for sent in (LONG, LONG + "longer"):
        assert LONG not in masked(joint.format(LONG), ["", sent])
        assert "***" in masked(joint.format(LONG), ["", sent])


def test_names_of_usual_length_stay() -> None:
    for name in ("production-openai-west1", "anthropic-75b21965"):
        assert masked(f"provider {name!r} not found", [name]) == f"provider {name!r} not found"
    assert (
        masked("provider 'production-openai-west-1' not found", ["production-openai-west-1"])
        == "provider '***' not found"
    )


def test_short_keys_are_masked_by_their_look() -> None:
    assert masked("config.sk-0123456789abcdefgh0: wrong", ["sk-0123456789abcdefgh0"]) == "config.***: wrong"


def test_what_was_not_sent_stays() -> None:
    text = "see /api/v1/openapi.json and https://docs.example/a-long-path-of-ours"
    assert masked(text, ["", "a", LONG]) == text


@given(st.text("abcXYZ019_-", min_size=24, max_size=60), st.integers(0, 60))
def test_no_24_characters_of_what_was_sent_pass(sent: str, cut: int) -> None:
    told = sent[: max(24, cut)]
    shown = masked(f"unknown field {told!r}; see there", [sent])
    kept = sent.strip("_-")
    assert not [at for at in range(len(kept) - 23) if kept[at : at + 24] in shown]


@pytest.mark.parametrize(
    "text",
    [
        "sk-0123456789abcdef",
        "sk-ant-api03-abcdefghijkl",
        "nvapi-abcdefghijklmnop",
        "gsk_abcdefghijklmnop",
        "hf_abcdefghijklmnop",
        "AIzaSyAbcdefghijklmn",
        "pointsman-sandbox-abcdefghijklmnop",
        "0123456789abcdefABCD",
    ],
)
def test_keys_are_taken_for_keys(text: str) -> None:
    assert looks_like_a_credential(text)


@pytest.mark.parametrize(
    "text",
    [
        "openai",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "inference.local",
        "production-openai-eu-west-1",
        "Prod-OpenAI-EU-West-1-Backup",
        "skills",
        "sk-short",
        "hf",
        "0123456789abcdefABC",
        "a" * 253,
        "openai-75b21965",
        "75b21965-a7fd-4299-a335-ce1216c6f758",
    ],
)
def test_names_are_not_taken_for_keys(text: str) -> None:
    assert not looks_like_a_credential(text)
