"""Patterns in the texts of requests: where they are found, what spelling changes (nothing), what redaction leaves."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.policy import Effect
from pointsman.routing.policy import PASSED, Unsearchable
from pointsman.routing.redaction import MOST_SPANS, REDACTED
from tests.support.policies import CHAT, MESSAGES, RESPONSES, decide, places, rule
from tests.unit.wire.test_json_strings import written

SECRET = rule("secret", pattern="secret")
HIDE = rule("hide", Effect.REDACT, pattern="secret")
TEXTS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": [{"role": "user", "content": "a secret"}]}, "/messages/0/content"),
    (CHAT, {"messages": [{"content": [{"type": "text", "text": "secret"}]}]}, "/messages/0/content/0/text"),
    (CHAT, {"messages": [{"role": "tool", "content": "secret"}]}, "/messages/0/content"),
    (CHAT, {"messages": [{"role": "user", "name": "secret"}]}, "/messages/0/name"),
    (CHAT, {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "https://x/secret"}}]}]},
     "/messages/0/content/0/image_url/url"),
    (CHAT, {"messages": [{"tool_calls": [{"function": {"name": "f", "arguments": '{"a":"secret"}'}}]}]},
     "/messages/0/tool_calls/0/function/arguments"),
    (CHAT, {"tools": [{"function": {"name": "f", "description": "secret"}}]}, "/tools/0/function/description"),
    (CHAT, {"tools": [{"function": {"parameters": {"properties": {"a": {"type": "string", "format": "secret"}}}}}]},
     "/tools/0/function/parameters/*/*/format"),
    (CHAT, {"tools": [{"function": {"parameters": {"phase": "secret"}}}]}, "/tools/0/function/parameters/phase"),
    (CHAT, {"messages": [{"content": [{"file": {"file_data": "data:text/plain,secret;base64,AA"}}]}]},
     "/messages/0/content/0/file/file_data"),
    (CHAT, {"messages": [{"content": [{"image_url": {"url": "data:secret;base64"}}]}]},
     "/messages/0/content/0/image_url/url"),
    (CHAT, {"prompt": "secret"}, "/prompt"),
    (CHAT, {"prompt": ["x", "secret"]}, "/prompt/1"),
    (CHAT, {"stop": ["secret"]}, "/stop/0"),
    (CHAT, {"metadata": {"a": "secret"}}, "/metadata/*"),
    (CHAT, {"messages": [{"content": [{"type": "text", "data": "secret", "format": "x"}]}]},
     "/messages/0/content/0/data"),
    (CHAT, {"unheard_of": {"role": "secret"}}, "/*/role"),
    (CHAT, {"Messages": [{"Content": "secret"}]}, "/*/0/*"),
    (RESPONSES, {"input": "secret"}, "/input"),
    (RESPONSES, {"instructions": "secret"}, "/instructions"),
    (RESPONSES, {"input": [{"type": "function_call_output", "output": "secret"}]}, "/input/0/output"),
    (RESPONSES, {"input": [{"type": "function_call", "arguments": "secret"}]}, "/input/0/arguments"),
    (MESSAGES, {"system": [{"type": "text", "text": "secret"}]}, "/system/0/text"),
    (MESSAGES, {"messages": [{"content": [{"type": "tool_use", "input": {"secret": 1}}]}]},
     "/messages/0/content/0/input/*"),
    (MESSAGES, {"messages": [{"content": [{"type": "tool_result", "content": [{"text": "secret"}]}]}]},
     "/messages/0/content/0/content/0/text"),
    (MESSAGES, {"messages": [{"content": [{"source": {"type": "text", "data": "secret"}}]}]},
     "/messages/0/content/0/source/data"),
    ("openai_embeddings", {"input": ["x", "a secret"]}, "/input/1"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body", "place"), TEXTS)
def test_a_pattern_is_found_in_all_text_and_redacted_there(dialect: str, body: dict[str, Any], place: str) -> None:
    assert places(decide(body, SECRET, dialect=dialect)) == [place]
    hidden = decide(body, HIDE, dialect=dialect).body
    assert hidden == json.dumps(body).replace("secret", "[redacted]").encode()


@pytest.mark.parametrize(
    "body",
    [
        {"model": "secret"},
        {"messages": [{"role": "secret", "id": "secret", "type": "secret"}]},
        {"messages": [{"content": [{"source": {"type": "base64", "data": "secret"}}]}]},
        {"messages": [{"content": [{"input_audio": {"data": "secret", "format": "wav"}}]}]},
        {"messages": [{"content": [{"image_url": {"url": "data:image/png;base64,secret"}}]}]},
        {"messages": [{"content": [{"type": "thinking", "signature": "secret"}]}]},
        {
            "tools": [
                {"function": {"parameters": {"properties": {"secret": {"type": "string"}}, "required": ["secret"]}}}
            ]
        },
    ],
)
def test_what_no_model_reads_as_text_is_not_searched(body: dict[str, Any]) -> None:
    assert decide(body, SECRET) == PASSED


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [1, 2]},
        {"prompt": ["a", [1]]},
        {"input": [[1, 2]]},
        {"Input": [1]},
        {"prompt_token_ids": [1]},
        {"Input_Ids": [1]},
        {"prompt_embeds": "AAAA"},
        {"input_embeds": [[0.5]]},
    ],
)
def test_text_that_is_given_as_tokens_does_not_pass_unsearched(body: dict[str, Any]) -> None:
    for each in (SECRET, HIDE):
        with pytest.raises(Unsearchable, match="tokens"):
            decide(body, each, dialect="openai_embeddings")
    assert decide(body, rule(denied_tools=("x",))) == PASSED


def test_the_name_of_a_tool_is_found_but_never_redacted() -> None:
    for body in (
        {"messages": [{"tool_calls": [{"function": {"name": "secret"}}]}]},
        {"tools": [{"function": {"name": "secret"}}]},
        {"tool_choice": {"name": "secret"}},
    ):
        assert decide(body, SECRET).blocked_by
        assert decide(body, HIDE) == PASSED


def test_a_text_in_parts_is_searched_as_one_and_redacted_in_each() -> None:
    body = {"messages": [{"content": [{"text": "a sec"}, {"text": "r"}, {"image_url": {}}, {"text": "et b"}]}]}
    assert places(decide(body, SECRET)) == [f"/messages/0/content/{number}/text" for number in (0, 1, 3)]
    hidden = decide(body, HIDE).body
    assert hidden is not None
    assert [part.get("text") for part in json.loads(hidden)["messages"][0]["content"]] == [
        "a [redacted]", "[redacted]", None, "[redacted] b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        {"Content": [{"type": "text", "text": "sec"}, {"type": "text", "text": "ret"}]},
        {"content": [{"type": "text", "Text": "sec"}, {"type": "text", "text": "ret"}]},
        {"content": [["sec", ["r"]], "et"]},
        {"content": [{"text": "sec\0"}, {"text": "\u200bret"}]},
        {"tool_calls": [{"function": {"Arguments": '{"a":"s\\u0065cret"}'}}]},
        {"Tool_Calls": [{"function": {"arguments": '{"a":"s\\u0065cret"}'}}]},
        {"content": "se\x01cret"},
        {"content": "se\x7fcret"},
        {"content": "se\bcret"},
    ],
)
def test_neither_case_nor_nesting_nor_what_nobody_sees_hides_a_text(message: dict[str, Any]) -> None:
    assert decide({"messages": [message]}, SECRET).blocked_by
    hidden = decide({"messages": [message]}, HIDE).body
    assert hidden is not None
    assert decide(hidden, SECRET) == PASSED


def test_texts_of_different_messages_are_no_one_text() -> None:
    assert decide({"messages": [{"content": "sec"}, {"content": "ret"}]}, SECRET) == PASSED


def test_escapes_within_a_tools_arguments_are_undone_and_its_json_stays_valid() -> None:
    body = {"messages": [{"tool_calls": [{"function": {"arguments": '{"a\\n":"x \\u0073ecr\\u0065t y"}'}}]}]}
    assert decide(body, SECRET).blocked_by
    hidden = decide(body, HIDE).body
    assert hidden is not None
    arguments = json.loads(hidden)["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"a\n": "x [redacted] y"}


def test_a_text_that_matches_only_as_it_looks_is_redacted_whole() -> None:
    body = {"messages": [{"content": "my ｓｅｃｒｅｔ"}, {"content": "se\u200bcret"}, {"content": "\u00e9"}]}
    assert len(decide(body, SECRET).hits) == 2
    hidden = decide(body, HIDE).body
    assert hidden is not None
    assert [each["content"] for each in json.loads(hidden)["messages"]] == ["[redacted]", "[redacted]", "\u00e9"]


def test_of_very_many_matches_the_rest_is_redacted_by_the_whole_text() -> None:
    exactly = decide({"messages": [{"content": "secret " * MOST_SPANS}]}, HIDE).body
    beyond = decide({"messages": [{"content": "secret " * (MOST_SPANS + 1)}]}, HIDE).body
    assert exactly is not None
    assert exactly.count(REDACTED) == MOST_SPANS
    assert json.loads(beyond or b"") == {"messages": [{"content": "[redacted]"}]}


def test_redaction_waits_for_no_rule_that_blocks() -> None:
    decision = decide({"messages": [{"content": "secret"}]}, HIDE, SECRET)
    assert (decision.blocked_by, decision.body) == ("secret", None)


LETTERS = st.text('secrtSECRT \n"\\é😀\u0301', max_size=14) | st.sampled_from(
    ["secret", "a secret, Secret\n", "sec", "ret"]
)
PARTS = st.lists(LETTERS.map(lambda text: {"type": "text", "text": text}), max_size=3)
MESSAGE = st.fixed_dictionaries({"role": st.just("user"), "content": LETTERS | PARTS})
METADATA = st.dictionaries(st.sampled_from(["a", "sec", "my secret"]), LETTERS, max_size=2)
BODY = st.fixed_dictionaries(
    {"model": st.just("fast"), "messages": st.lists(MESSAGE, max_size=3), "metadata": METADATA}
)


@pytest.mark.guarantee("P2")
@given(BODY, st.randoms(use_true_random=False))
def test_no_spelling_of_a_body_makes_a_difference(body: dict[str, Any], luck: random.Random) -> None:
    spelling = written(body, luck).encode()
    assert decide(spelling, SECRET) == decide(body, SECRET)


def _holds(text: str) -> bool:
    return "secret" in text.lower()


@given(BODY)
def test_a_body_is_refused_exactly_when_a_text_of_it_matches(body: dict[str, Any]) -> None:
    contents = [message["content"] for message in body["messages"]]
    texts = [each if isinstance(each, str) else "".join(part["text"] for part in each) for each in contents]
    texts += [text for pair in body["metadata"].items() for text in pair]
    assert bool(decide(body, SECRET).blocked_by) == any(map(_holds, texts))


@pytest.mark.guarantee("P3")
@given(BODY, st.randoms(use_true_random=False))
def test_redaction_leaves_valid_json_without_a_match_and_all_else_as_it_was(
    body: dict[str, Any], luck: random.Random
) -> None:
    spelling = written(body, luck).encode()
    decision = decide(spelling, HIDE)
    if decision.body is None:
        assert decision == PASSED
        return
    assert json.loads(decision.body).keys() == body.keys()
    assert decide(decision.body, SECRET) == PASSED
    at = 0
    for piece in decision.body.split(REDACTED):  # what is left stands in the body, in the same order
        at = spelling.index(piece, at) + len(piece)


@given(LETTERS, st.randoms(use_true_random=False))
def test_what_a_redacted_text_says_is_the_redacted_text(text: str, luck: random.Random) -> None:
    spelling = written({"messages": [{"content": text}]}, luck).encode()
    decision = decide(spelling, HIDE)
    said = json.loads(decision.body or spelling)["messages"][0]["content"]
    assert said == re.sub("(?:secret)+", "[redacted]", text, flags=re.IGNORECASE)
