"""What rules say of requests: fields, tools, tokens, routes; in every dialect and under every spelling."""

import json
from typing import Any

import pytest

from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller
from pointsman.core.policy import Effect, RuleScope
from pointsman.routing.policy import MOST_BYTES, MOST_HITS, PASSED, UNREADABLE, Unsearchable
from tests.support.policies import CHAT, MESSAGES, RESPONSES, compiled, decide, places, rule

NO_SHELL = rule("no-shell", denied_tools=("shell*", "bash"))
SHORT = rule("short", most_tokens=100)


@pytest.mark.parametrize(
    ("scope", "applies"),
    [
        (RuleScope(), True),
        (RuleScope(routes=("fast",)), True),
        (RuleScope(routes=("Fast", "slow")), False),
        (RuleScope(keys=("laptop",)), True),
        (RuleScope(keys=("sandbox:laptop",)), False),
        (RuleScope(dialects=(CHAT,)), True),
        (RuleScope(dialects=(MESSAGES,)), False),
        (RuleScope(("fast",), ("laptop",), (MESSAGES,)), False),
    ],
)
def test_a_rule_is_about_what_its_scope_says(scope: RuleScope, applies: bool) -> None:
    made = compiled(rule(scope=scope, denies_route=True), caller=Caller("default", "laptop", KEY))
    assert (made is not None) is applies


def test_a_sandbox_is_no_key_of_the_same_name() -> None:
    scoped = rule(scope=RuleScope(keys=("sandbox:agents",)), denies_route=True)
    assert compiled(scoped, caller=Caller("default", "agents", SANDBOX_TOKEN)) is not None
    assert compiled(scoped, caller=Caller("default", "agents", KEY)) is None


def test_a_denied_route_is_refused_whatever_the_body_holds() -> None:
    decision = decide(b"\xff no json", rule("closed", denies_route=True))
    assert (decision.blocked_by, places(decision)) == ("closed", [""])


def test_what_no_rule_matches_passes_unchanged() -> None:
    body = {"model": "fast", "max_tokens": 100, "tools": [{"type": "function", "function": {"name": "read"}}]}
    assert decide(body, NO_SHELL, SHORT, rule(pattern="secret"), rule(denied_fields=("logit_bias",))) == PASSED


TOOLS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"tools": [{"type": "function", "function": {"name": "shell"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "SHELL_exec"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "bash"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"function": {"name": "ok", "NAME": "bash"}}]}, "/tools/0"),
    (CHAT, {"Tools": [{"Function": {"Name": "bash"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"name": "read", "cuſtom": {"name": "bash"}}]}, "/tools/0"),
    (CHAT, {"toolſ": [{"function": {"name": "bash"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"function": {"name": "ｂａｓｈ"}}]}, "/tools/0"),
    (CHAT, {"tools": [{"function": {"name": "ba\u200bsh"}}]}, "/tools/0"),
    (CHAT, {"tools": {"function": {"name": "read"}}}, "/tools"),
    (CHAT, {"tools": [{"function": {}}]}, "/tools/0"),
    (CHAT, {"functions": [{"name": "read"}, {"name": "bash"}]}, "/functions/1"),
    (CHAT, {"messages": [{"tool_calls": [{"function": {"name": "bash"}}]}]}, "/messages/0/tool_calls/0"),
    (CHAT, {"messages": [{"function_call": {"name": "bash"}}]}, "/messages/0/function_call"),
    (CHAT, {"tool_choice": {"type": "function", "function": {"name": "bash"}}}, "/tool_choice"),
    (CHAT, {"Tool_Choice": {"function": {"name": "bash"}}}, "/tool_choice"),
    (CHAT, {"tool_choice": "bash"}, "/tool_choice"),
    (
        CHAT,
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"function": {"name": "bash"}}]}}},
        "/tool_choice/tools/0",
    ),
    (CHAT, {"function_call": {"name": "bash"}}, "/function_call"),
    (MESSAGES, {"tool_choice": {"type": "tool", "name": "bash"}}, "/tool_choice"),
    (RESPONSES, {"tool_choice": {"type": "shell"}}, "/tool_choice"),
    (RESPONSES, {"tool_choice": {"type": "allowed_tools", "tools": [{"name": "bash"}]}}, "/tool_choice/tools/0"),
    (RESPONSES, {"prompt": {"id": "pmpt_1"}}, "/prompt"),
    (RESPONSES, {"tools": [{"type": "function", "name": "shell"}]}, "/tools/0"),
    (RESPONSES, {"tools": [{"type": "shell"}]}, "/tools/0"),
    (RESPONSES, {"tools": [{"type": "namespace", "name": "x", "tools": [{"name": "bash"}]}]}, "/tools/0/tools/0"),
    (RESPONSES, {"input": [{"type": "function_call", "name": "bash"}]}, "/input/0"),
    (RESPONSES, {"input": [{"type": "shell_call"}]}, "/input/0"),
    (MESSAGES, {"tools": [{"name": "bash", "input_schema": {}}]}, "/tools/0"),
    (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "/tools/0"),
    (MESSAGES, {"messages": [{"content": [{"type": "tool_use", "name": "bash"}]}]}, "/messages/0/content/0"),
]


@pytest.mark.parametrize(("dialect", "body", "place"), TOOLS)
def test_a_denied_tool_is_found_wherever_it_is_offered_or_called(
    dialect: str, body: dict[str, Any], place: str
) -> None:
    decision = decide(body, NO_SHELL, dialect=dialect)
    assert (decision.blocked_by, places(decision)) == ("no-shell", [place])


def test_only_tools_that_are_allowed_pass_and_an_upstreams_own_need_their_type_too() -> None:
    allowed = rule("only", allowed_tools=("read", "web_*"))

    def passes(*tools: dict[str, Any]) -> bool:
        return decide({"tools": list(tools)}, allowed) == PASSED

    assert passes({"function": {"name": "read"}}, {"type": "web_search"})
    assert not passes({"function": {"name": "Read"}})
    assert not passes({"type": "code_interpreter", "name": "read"})
    assert passes()
    assert decide({"web_search_options": {}}, rule(allowed_tools=("read",))).blocked_by
    assert decide({"mcp_servers": [{"name": "files"}]}, allowed).blocked_by
    assert decide({"tools": None, "web_search_options": None}, allowed) == PASSED
    for choice in ("auto", "none", {"type": "any"}, {"type": "tool", "name": "read"}, None):
        assert decide({"tool_choice": choice}, allowed) == PASSED
    assert decide({"tool_choice": {"type": "mcp", "name": "read"}}, allowed).blocked_by


@pytest.mark.parametrize("denied", ["bash", "ｂａｓｈ", "BASH", "b\u00adash", "ＢＡＳ*", "*sh"])
@pytest.mark.parametrize("name", ["bash", "ｂａｓｈ", "Bash", "ba\u200bſh"])
def test_a_denied_tool_is_found_however_either_is_spelled(denied: str, name: str) -> None:
    assert decide({"tools": [{"name": name}]}, rule(denied_tools=(denied,))).blocked_by


@pytest.mark.parametrize(
    ("denied", "name"), [("e\u0301", "é"), ("é", "E\u0301"), ("straße", "STRASSE"), ("ǰ", "J\u030c")]
)
def test_letters_that_are_composed_or_folded_make_no_difference_to_a_tools_name(denied: str, name: str) -> None:
    assert decide({"tools": [{"name": name}]}, rule(denied_tools=(denied,))).blocked_by
    assert decide({"tools": [{"name": "＊"}]}, rule(denied_tools=("＊",))).blocked_by
    assert decide({"tools": [{"name": "x"}]}, rule(denied_tools=("＊",))) == PASSED


@pytest.mark.parametrize(
    ("dialect", "body", "place"),
    [
        (CHAT, {"max_tokens": 100}, None),
        (CHAT, {"max_tokens": 101}, "/max_tokens"),
        (CHAT, {"max_completion_tokens": 100}, None),
        (CHAT, {"max_completion_tokens": 101}, "/max_completion_tokens"),
        (CHAT, {"max_tokens": 1, "max_completion_tokens": 101}, "/max_completion_tokens"),
        (CHAT, {}, ""),
        (CHAT, {"max_tokens": None}, ""),
        (CHAT, {"max_output_tokens": 1}, ""),
        (CHAT, {"max_tokens": "1"}, "/max_tokens"),
        (CHAT, {"max_tokens": 1.5}, "/max_tokens"),
        (CHAT, {"max_tokens": 1e2}, "/max_tokens"),
        (CHAT, {"max_tokens": True}, "/max_tokens"),
        (CHAT, {"max_tokens": -1}, "/max_tokens"),
        (CHAT, {"max_tokens": 0}, "/max_tokens"),
        (CHAT, {"Max_Tokens": 101}, "/max_tokens"),
        (CHAT, {"max_tokens": 1, "n_predict": 101}, "/n_predict"),
        (CHAT, {"max_tokens": 50, "n": 2}, None),
        (CHAT, {"max_tokens": 51, "n": 2}, "/max_tokens"),
        (CHAT, {"max_tokens": 1, "n": "2"}, "/n"),
        ("openai_completions", {"max_tokens": 51, "best_of": 2}, "/max_tokens"),
        ("openai_completions", {"max_tokens": 50, "prompt": ["a", "b"]}, None),
        ("openai_completions", {"max_tokens": 51, "prompt": ["a", "b"]}, "/max_tokens"),
        ("openai_completions", {"max_tokens": 26, "prompt": [[1], [2]], "n": 2}, "/max_tokens"),
        ("openai_completions", {"max_tokens": 100, "prompt": [1, 2, 3]}, None),
        (RESPONSES, {"max_output_tokens": 100}, None),
        (RESPONSES, {"max_output_tokens": 101}, "/max_output_tokens"),
        (RESPONSES, {"max_tokens": 100}, ""),
        (MESSAGES, {"max_tokens": 101}, "/max_tokens"),
        ("openai_embeddings", {}, None),
    ],
)
def test_more_output_than_allowed_is_found_and_an_absent_bound_is_none(
    dialect: str, body: dict[str, Any], place: str | None
) -> None:
    decision = decide(body, SHORT, dialect=dialect)
    assert places(decision) == ([] if place is None else [place])


@pytest.mark.parametrize("body", ['{"logit_bias":{}}', '{"LOGIT_bias":{}}', '{"logit\\u005fbias":null}'])
def test_a_denied_field_is_found_in_any_spelling(body: str) -> None:
    decision = decide(body.encode(), rule("plain", denied_fields=("logit_bias",)))
    assert (decision.blocked_by, places(decision)) == ("plain", ["/logit_bias"])


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens":1,"max_tokens":1000}',
        b'{"max_tokens":1,"max\\u005ftokens":1000}',
        b'{"max_tokens":1,"Max_tokens":1000}',
        b'{"messages":[{"content":"secret","content":"x"}]}',
        b"[]",
        b"no json",
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":"' + b"x" * MOST_BYTES + b'"}',
        b'{"a":[' + b"[]," * 200_001 + b"0]}",
        b'{"a":[' + b'"",' * 200_001 + b"0]}",
    ],
)
def test_a_body_that_cannot_be_searched_is_refused_where_a_rule_would_refuse_or_redact(body: bytes) -> None:
    for conditions in ({"most_tokens": 100}, {"pattern": "x+y"}):
        with pytest.raises(Unsearchable):
            decide(body, rule(**conditions))
    with pytest.raises(Unsearchable):
        decide(body, rule(effect=Effect.REDACT, pattern="x+y"))
    flagged = decide(body, rule(effect=Effect.FLAG, pattern="x+y"))
    assert [(hit.rule, hit.would) for hit in flagged.hits] == [(UNREADABLE, Effect.FLAG)]
    dry = decide(body, rule(pattern="x+y"), is_enforced=False)
    assert (dry.blocked_by, dry.would_block) == ("", UNREADABLE)


def test_a_body_of_exactly_the_most_bytes_is_searched() -> None:
    start, end = b'{"a":"', b'"}'
    body = start + b"x" * (MOST_BYTES - len(start) - len(end)) + end
    assert decide(body, rule(pattern="y")) == PASSED
    with pytest.raises(Unsearchable):
        decide(body + b" ", rule(pattern="y"))


def test_a_dry_run_changes_nothing_and_tells_what_it_would_do() -> None:
    body = {"messages": [{"content": "secret"}]}
    rules = rule("hide", Effect.REDACT, pattern="secret"), rule("stop", pattern="secret")
    decision = decide(body, *rules, is_enforced=False)
    assert (decision.blocked_by, decision.body, decision.would_block) == ("", None, "stop")
    assert [hit.effect for hit in decision.hits] == [Effect.FLAG, Effect.FLAG]


def test_the_places_that_are_told_are_bounded_and_no_rule_is_left_out() -> None:
    body = {"messages": [{"content": "secret"}] * 100 + [{"content": "last"}]}
    flag = Effect.FLAG
    decision = decide(body, rule("a", flag, pattern="secret"), rule("b", flag, pattern="last"))
    assert len(decision.hits) == MOST_HITS + 1
    assert {hit.rule for hit in decision.hits} == {"a", "b"}


def test_a_place_tells_nothing_of_the_request() -> None:
    body = {"my secret": 1, "messages": [{"content": [{"type": "tool_use", "input": {"canary": ["secret"]}}]}]}
    told = json.dumps(places(decide(body, rule(effect=Effect.FLAG, pattern="secret|canary"))))
    assert json.loads(told) == ["/*", "/messages/0/content/0/input/*", "/messages/0/content/0/input/*/0"]
