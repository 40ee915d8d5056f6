"""A policy's file: what it may say, and that everything wrong is told at once with its line."""

import pytest

from pointsman.config.policy_file import check_policy_text
from pointsman.core.policy import Effect, Rule, RuleScope, Side
from pointsman.routing.policy_rules import MOST_RULES
from pointsman.routing.text_patterns import pattern_problem


def problems(text: str) -> list[str]:
    return [each.describe("p.yaml") for each in check_policy_text(text, pattern_problem).problems]


def test_every_key_is_read() -> None:
    text = """
rules:
  - {id: no-shell, effect: block, denied_tools: [bash, "sh*"], allowed_tools: read, routes: fast, keys: ["sandbox:a"]}
  - {id: short, effect: flag, most_tokens: 4096, dialects: [openai_responses]}
  - {id: hide, side: response, effect: redact, pattern: 'a\\d+'}
  - {id: plain, side: request, effect: block, denied_fields: [logit_bias]}
  - {id: "7", effect: BLOCK, denies_route: true}
"""
    check = check_policy_text(text, pattern_problem)
    assert not check.problems
    assert check.rules == (
        Rule("no-shell", Side.REQUEST, Effect.BLOCK, RuleScope(("fast",), ("sandbox:a",)), ("bash", "sh*"), ("read",)),
        Rule("short", Side.REQUEST, Effect.FLAG, RuleScope(dialects=("openai_responses",)), most_tokens=4096),
        Rule("hide", Side.RESPONSE, Effect.REDACT, pattern="a\\d+"),
        Rule("plain", Side.REQUEST, Effect.BLOCK, denied_fields=("logit_bias",)),
        Rule("7", Side.REQUEST, Effect.BLOCK, denies_route=True),
    )


def test_a_policy_may_have_no_rules() -> None:
    assert check_policy_text("rules: []", pattern_problem) == check_policy_text("rules: []", pattern_problem)
    assert problems("rules: []") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "p.yaml: is empty; write rules: and a list below it"),
        ("- a", "p.yaml:1: is a list; write rules"),
        ("rule: []", "p.yaml:1: unknown key rule; the only key is rules"),
        ("rules: {}", "p.yaml:1: rules is a mapping; write a list"),
        ("rules:\n- a", "p.yaml:2: a rule is text; write keys"),
        ("rules:\n- {id: a, effect: block, patern: x}", "p.yaml:2: unknown key patern; did you mean pattern?"),
        (
            "rules:\n- {id: a, effect: block, max_tokens: 1}",
            "unknown key max_tokens; did you mean most_tokens?",
        ),
        ("rules:\n- id: a\n  effect: blok\n  pattern: x", "p.yaml:3: unknown effect blok; did you mean block?"),
        (
            "rules:\n- {id: a, pattern: x}",
            "p.yaml:2: a rule has no effect; add effect: with one of",
        ),
        ("rules:\n- id: a\n  effect: block\n  pattern: '('", "p.yaml:4: rule a: its pattern is not understood"),
        ("rules:\n- {id: a, effect: block}", "p.yaml:2: rule a: it says nothing of what it matches; give one of"),
        ("rules:\n- {id: a, effect: block, pattern: x, most_tokens: 1}", "it has most_tokens and pattern"),
        ("rules:\n- {id: A B, effect: block, pattern: x}", "p.yaml:2: its id is none; use up to 64"),
        ("rules:\n- {effect: block, pattern: x}", "p.yaml:2: it has no id"),
        ("rules:\n- {id: a, effect: redact, most_tokens: 1}", "rule a: only a rule with a pattern can redact"),
        ("rules:\n- {id: a, side: response, effect: block, most_tokens: 1}", "write side: request"),
        ("rules:\n- {id: a, effect: block, most_tokens: 0}", "most_tokens is no whole number above 0"),
        ("rules:\n- {id: a, effect: block, most_tokens: '1'}", "most_tokens is no whole number above 0"),
        ("rules:\n- {id: a, effect: block, denies_route: 1}", "denies_route is not true"),
        ("rules:\n- {id: a, effect: block, denied_tools: []}", "denied_tools is empty"),
        ("rules:\n- {id: a, effect: block, denied_tools: [[x]]}", "denied_tools holds a list"),
        ("rules:\n- {id: a, effect: block, pattern: x, dialects: [chat]}", "dialects: it lists what is no dialect"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_what_to_do(text: str, told: str) -> None:
    assert any(told.removeprefix("dialects: ") in each for each in problems(text)), problems(text)


def test_two_rules_have_no_id_in_common() -> None:
    found = problems("rules:\n- {id: a, effect: flag, pattern: x}\n- {id: a, effect: flag, pattern: y}")
    assert found == ["p.yaml:3: rule a: its id is another rule's too; give each rule an id of its own"]


def test_everything_wrong_is_told_at_once() -> None:
    assert len(problems("rules:\n- {id: a, effekt: x}\n- b\n- {id: c, effect: d, pattern: e}")) == 4


def test_a_policy_has_at_most_a_thousand_rules() -> None:
    def text(count: int) -> str:
        return "rules:\n" + "".join(f"- {{id: r{number}, effect: flag, pattern: a}}\n" for number in range(count))

    assert problems(text(MOST_RULES)) == []
    assert problems(text(MOST_RULES + 1)) == ["p.yaml:1002: a policy has more than 1000 rules; join patterns with |"]


def test_no_value_is_repeated() -> None:
    text = "rules:\n- {id: a, effect: block, pattern: '(sk-canary-0123', side: sk-canary-0123}"
    assert "canary" not in "".join(problems(text))
