"""The bounds of policies and of what is searched, at the bound and beyond it."""

import json

import pytest

from pointsman.core.policy import Effect, Rule, RuleScope
from pointsman.routing.policy import MOST_BRACKETS, PASSED, Unsearchable
from pointsman.routing.policy_rules import LONGEST_NAME, MOST_NAMES, MOST_RULES, MOST_TOKENS, rule_problems
from pointsman.routing.request_text import MOST_STRINGS
from pointsman.routing.text_patterns import LONGEST_PATTERN, pattern_problem
from tests.support.policies import decide, rule

SECRET = rule("secret", pattern="secret")


def problems(*rules: Rule) -> list[str]:
    return [each.reason for each in rule_problems(rules, pattern_problem)]


@pytest.mark.parametrize(("piece", "others"), [(b"[],", 2), (b'{"":0},', 2), (b'"",', 1)])
def test_so_many_brackets_and_strings_are_searched_and_not_one_more(piece: bytes, others: int) -> None:
    def body(count: int) -> bytes:
        return b'{"a":[' + piece * (count - others) + b"0]}"

    assert decide(body(MOST_BRACKETS), SECRET) == PASSED
    with pytest.raises(Unsearchable, match="brackets or strings"):
        decide(body(MOST_BRACKETS + 1), SECRET)


def test_so_many_strings_are_looked_at_one_by_one_and_not_one_more() -> None:
    def body(count: int) -> bytes:
        return json.dumps({"a": "secret", "b": [""] * (count - 3)}).encode()

    assert decide(body(MOST_STRINGS), SECRET).blocked_by == "secret"
    with pytest.raises(Unsearchable, match="too many strings"):
        decide(body(MOST_STRINGS + 1), SECRET)


def test_a_policy_has_so_many_rules_and_not_one_more() -> None:
    rules = [rule(f"r{number}", pattern="a") for number in range(MOST_RULES + 1)]
    assert problems(*rules[:-1]) == []
    assert problems(*rules) == [f"a policy has more than {MOST_RULES} rules"]


def test_a_list_has_so_many_names_of_so_many_characters() -> None:
    def listing(count: int, characters: int) -> Rule:
        return rule(pattern="a", scope=RuleScope(routes=("r" * characters,) * count))

    assert problems(listing(MOST_NAMES, LONGEST_NAME)) == []
    assert problems(listing(MOST_NAMES + 1, 1)) == [f"it lists more than {MOST_NAMES} names"]
    assert problems(listing(1, LONGEST_NAME + 1)) == problems(listing(1, 0)) == ["it lists what is no name"]


@pytest.mark.parametrize(
    ("name", "is_id"), [("a", True), ("a" * 64, True), ("a" * 65, False), ("", False), ("a-", False), ("Ä", False)]
)
def test_an_id_has_up_to_64_characters(name: str, is_id: bool) -> None:
    assert (problems(rule(name, pattern="a")) == []) is is_id


def test_a_number_of_tokens_has_an_end() -> None:
    assert problems(rule(most_tokens=MOST_TOKENS)) == []
    assert problems(rule(most_tokens=MOST_TOKENS + 1)) == [f"it is not between 1 and {MOST_TOKENS}"]


def test_a_pattern_has_so_many_characters() -> None:
    assert problems(rule(pattern="a" * LONGEST_PATTERN)) == []
    assert problems(rule(effect=Effect.REDACT, pattern="a" * (LONGEST_PATTERN + 1))) != []
