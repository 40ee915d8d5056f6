"""Names of dialects."""

from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.protocols import InferenceProtocol, normalize_protocols


def test_the_dialects_are_spelt_as_route_files_and_bundles_spell_them() -> None:
    assert sorted(InferenceProtocol) == [
        "anthropic_messages",
        "model_discovery",
        "openai_chat_completions",
        "openai_completions",
        "openai_embeddings",
        "openai_responses",
    ]


def test_normalizes_and_deduplicates_in_order() -> None:
    given_names = [" OpenAI_Chat_Completions ", "anthropic_messages", "openai_chat_completions"]
    assert normalize_protocols(given_names) == ("openai_chat_completions", "anthropic_messages")


def test_skips_empty_and_whitespace() -> None:
    assert normalize_protocols(["", "  ", "\t\n", "model_discovery"]) == ("model_discovery",)


def test_empty_input_gives_nothing() -> None:
    assert normalize_protocols([]) == ()


def test_unknown_names_are_kept() -> None:
    assert normalize_protocols(["Aws_Bedrock_Invoke"]) == ("aws_bedrock_invoke",)


@given(st.lists(st.text(st.characters(codec="ascii"), max_size=8)))
def test_normalizing_twice_changes_nothing_and_leaves_no_double(names: list[str]) -> None:
    once = normalize_protocols(names)
    assert len(set(once)) == len(once)
    assert all(name and name == name.strip() for name in once)
    assert normalize_protocols(once) == once
