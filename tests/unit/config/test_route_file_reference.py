"""The reference page says what the code does."""

import re
from pathlib import Path

import pytest

from pointsman.config.route_entry import (
    KEYS,
    LONGEST_KEY,
    LONGEST_MODEL,
    LONGEST_NAME,
    LONGEST_TIMEOUT,
    LONGEST_TYPE,
    NOT_SERVED,
)
from pointsman.config.yaml_positions import DEEPEST, LARGEST_TEXT, MOST_NODES
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.profiles import known_provider_types, profile_for
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.secret import Secret
from tests.unit.config.route_text import parse

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "route-file.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
ENVIRON = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}


def row(first: str) -> str:
    return next(line for line in PAGE.splitlines() if line.startswith(f"| {first}"))


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_a_good_file(text: str) -> None:
    assert parse(text, ENVIRON)


def test_the_complete_example_means_what_its_comments_say() -> None:
    chat, embeddings, messages, system = parse(EXAMPLES[1], ENVIRON)
    assert chat.protocols == ("openai_chat_completions", "openai_completions", "openai_responses", "model_discovery")
    assert (embeddings.protocols, embeddings.api_key) == (("openai_embeddings",), Secret("a"))
    assert (messages.provider_type, messages.api_key) == ("anthropic", Secret("b"))
    assert system.route == "sandbox-system"


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_described(key: str) -> None:
    table = PAGE.partition("## Keys of a route")[2].partition("### ")[0]
    assert f"`{key}`" in table


@pytest.mark.parametrize("name", [*InferenceProtocol, *NOT_SERVED])
def test_every_protocol_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE.partition("### `protocols`")[2].partition("### ")[0]


@pytest.mark.parametrize("name", known_provider_types())
def test_every_profile_is_described(name: str) -> None:
    profile = profile_for(name)
    assert profile is not None
    described = row(f"`{name}` ")
    for header in (*profile.passthrough_headers, *(header for header, _ in profile.default_headers)):
        assert header in described
    assert (profile.auth_header if profile.auth_header != "authorization" else "Bearer") in described
    if profile.default_base_url:
        text = "routes: [{endpoint: 'http://host', model: m, api_key: none, provider_type: %s}]"
        (candidate,) = parse(text % name, {})
        assert "openai_embeddings" not in candidate.protocols
        assert "as `openai`" in described or all(f"`{each}`" in described for each in candidate.protocols)
    else:
        assert "none: list them" in described


@pytest.mark.parametrize(
    "number",
    [
        f"at most {LONGEST_NAME} printable",
        f"1 to {LONGEST_MODEL} printable",
        f"1 to {LONGEST_KEY} visible",
        f"at most {LONGEST_TYPE} ASCII",
        f"0 to {LONGEST_TIMEOUT},",
        f"at most {LARGEST_TEXT // 1024} KiB",
        f"{MOST_NODES:,} values",
        f"{DEEPEST} levels",
        f"{DEFAULT_LIMITS.response_header_seconds:.0f} s for headers",
        f"{DEFAULT_LIMITS.buffered_seconds:.0f} s for a call",
    ],
)
def test_every_bound_is_the_codes(number: str) -> None:
    assert number in " ".join(PAGE.split())
