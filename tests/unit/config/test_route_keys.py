"""API keys of routes: how they are given, and that they are not shown."""

import pytest

from pointsman.config.route_entry import KEYS, LONGEST_KEY
from pointsman.core.secret import Secret
from tests.unit.config.route_text import CANARY, one, outcome, problem, problems_of, route, text_of


def test_an_inline_key_is_trimmed() -> None:
    assert one(api_key=f'" {CANARY}\\n"').api_key == Secret(CANARY)


def test_load_from_file_api_key_env_resolves_from_environment() -> None:
    assert one(api_key=None, api_key_env="OPENAI_API_KEY").api_key == Secret(CANARY)
    assert one(api_key=None, api_key_env="PADDED_KEY").api_key == Secret(CANARY)


def test_resolved_route_debug_redacts_api_key() -> None:
    for candidate in (one(api_key=CANARY), one(api_key=None, api_key_env="OPENAI_API_KEY")):
        assert candidate.api_key == Secret(CANARY)
        assert CANARY not in repr(candidate)


@pytest.mark.parametrize("changes", [{"endpoint": "mock://anything"}, {"endpoint": None, "provider_type": "mock"}])
def test_a_mock_needs_no_key(changes: dict[str, str | None]) -> None:
    candidate = one(api_key=None, **changes)
    assert candidate.endpoint.scheme == "mock"
    assert candidate.api_key is None


def test_a_mock_may_have_a_key_and_any_provider_type() -> None:
    candidate = one(endpoint="mock://x", provider_type="anthropic", protocols=None)
    assert candidate.api_key == Secret("k1")
    assert candidate.protocols == ("anthropic_messages", "model_discovery")


@pytest.mark.parametrize("size", [1, LONGEST_KEY])
def test_a_key_of_any_length_up_to_the_limit_is_accepted(size: int) -> None:
    assert one(api_key="k" * size).api_key == Secret("k" * size)


@pytest.mark.parametrize(
    ("changes", "reason", "next_step"),
    [
        ({"api_key": None}, "a route has no key", "add api_key_env"),
        ({"api_key": "~"}, "a route has no key", "add api_key_env"),
        ({"api_key": '" "'}, "api_key is empty", "give it a value"),
        ({"api_key_env": "OPENAI_API_KEY"}, "api_key and api_key_env are both given", "keep one"),
        ({"api_key": "12345"}, "api_key is read as a number", 'api_key: "…"'),
        ({"api_key": "[a]"}, "api_key is a list", "single value"),
        ({"api_key": f"{CANARY} {CANARY}"}, "holds a space", "copy the key again"),
        ({"api_key": f'"{CANARY}\\r\\nx-evil: 1"'}, "line break", "copy the key again"),
        ({"api_key": f'"{CANARY}\\0"'}, "line break", "copy the key again"),
        ({"api_key": f"{CANARY}é"}, "outside ASCII", "copy the key again"),
        ({"api_key": f"{CANARY}\u200b"}, "outside ASCII", "copy the key again"),
        ({"api_key": "k" * (LONGEST_KEY + 1)}, f"longer than {LONGEST_KEY}", "check that it is the key"),
        ({"api_key": "${OPENAI_API_KEY}"}, "reference that nothing expands", "api_key_env"),
        ({"api_key": "$OPENAI_API_KEY"}, "reference that nothing expands", "api_key_env"),
        ({"api_key": '"{{ env.KEY }}"'}, "reference that nothing expands", "api_key_env"),
        ({"api_key": "$(cat key)"}, "reference that nothing expands", "api_key_env"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(
    changes: dict[str, str | None], reason: str, next_step: str
) -> None:
    found = problem(**changes)
    assert reason in found.reason
    assert next_step in found.next_step
    assert found.field in ("api_key", "api_key_env")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("MISSING_KEY", "environment variable MISSING_KEY named by api_key_env is not set"),
        ("lower_case", "the environment variable named by api_key_env is not set"),
        ("AKIAIOSFODNN7EXAMPLE", "the environment variable named by api_key_env is not set"),
        ("EMPTY_KEY", "environment variable EMPTY_KEY named by api_key_env is empty"),
        ("BLANK_KEY", "environment variable BLANK_KEY named by api_key_env is empty"),
        (CANARY, "api_key_env is not the name of an environment variable"),
        ("$OPENAI_API_KEY", "api_key_env is not the name of an environment variable"),
        ("4", "api_key_env is read as a number"),
        ("''", "api_key_env is empty"),
    ],
)
def test_a_variable_that_does_not_hold_a_key_is_refused(name: str, reason: str) -> None:
    found = problem(api_key=None, api_key_env=name)
    assert reason in found.reason
    assert "AKIA" not in text_of(found)


def test_config_missing_api_key_returns_error() -> None:
    assert "MISSING_KEY" in problems_of(route(api_key=None, api_key_env="MISSING_KEY"), {})[0].reason


@pytest.mark.parametrize("value", [f"{CANARY} x", f"{CANARY}\nx: y", f"{CANARY}\x00", f"{CANARY}\udcff", f"{CANARY}é"])
def test_a_variable_is_held_to_the_same_rules_as_an_inline_key(value: str) -> None:
    (found,) = problems_of(route(api_key=None, api_key_env="SOME_KEY"), {"SOME_KEY": value})
    assert "holds a space, a line break or a character outside ASCII" in found.reason


@pytest.mark.parametrize("key", [key for key in KEYS if key != "api_key"])
def test_a_key_pasted_into_the_wrong_place_is_not_shown(key: str) -> None:
    for value in (CANARY, f"[{CANARY}]", f"{{{CANARY}: x}}", f'"{CANARY}\\0"', f"https://{CANARY}@host"):
        _, told = outcome(route(**{"api_key": None, key: value}))
        assert CANARY not in told
