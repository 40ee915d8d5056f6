"""The bounds of policies and of what is searched, at the bound and beyond it."""

import json

import pytest

from pointsman.core.policy import Effect, Rule, RuleScope
from pointsman.routing.policy import MOST_BRACKETS, PASSED, Unsearchable
from pointsman.routing.policy_rules import (
    LARGEST_PROGRAM,
    LONGEST_NAME,
    MOST_NAMES,
    MOST_RULES,
    MOST_STEPS,
    MOST_TEXT,
    MOST_TOKENS,
    rule_problems,
)
from pointsman.routing.request_text import MOST_STRINGS
from pointsman.routing.text_patterns import (
    LONGEST_PATTERN,
    MOST_OPEN_STEPS,
    PatternSet,
    open_steps,
    pattern_cost,
    pattern_problem,
    program_size,
)
from tests.support.policies import decide, places, rule

SECRET = rule("secret", pattern="secret")


def problems(*rules: Rule) -> list[str]:
    return [each.reason for each in rule_problems(rules, pattern_problem, pattern_cost)]


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


@pytest.mark.parametrize(("lists", "steps"), [(29, 32), (30, 32), (31, 32), (900, 32), (28, 31)])
def test_a_place_has_so_many_steps_and_what_is_deeper_that_of_what_holds_it(lists: int, steps: int) -> None:
    """Of a hundred thousand texts in a thousand lists each place would else take 8 KiB."""
    body = b'{"messages":[{"content":' + b"[" * lists + b'"secret"' + b"]" * lists + b"}]}"
    [place] = places(decide(body, SECRET))
    assert place.count("/") == steps


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


def open_pattern(steps: int) -> str:
    """One step for each character that may be one of two; the engine counts to a thousand."""
    thousands, rest = divmod(steps, 1000)
    return "[ab]{1000}" * thousands + (f"[ab]{{{rest}}}" if rest else "")


@pytest.mark.guarantee("P10")
@pytest.mark.parametrize(("more", "is_refused"), [(-1, False), (0, False), (1, True)])
def test_a_pattern_has_so_many_open_steps_and_not_one_more(more: int, is_refused: bool) -> None:
    pattern = open_pattern(MOST_OPEN_STEPS + more)
    assert open_steps(pattern) == MOST_OPEN_STEPS + more
    found = problems(rule("wide", pattern=pattern))
    assert [f"has {MOST_OPEN_STEPS + 1} steps that are open" in each for each in found] == [True] * is_refused


@pytest.mark.guarantee("P10")
@pytest.mark.parametrize(("more", "is_refused"), [(-1, False), (0, False), (1, True)])
def test_a_policy_has_so_many_open_steps_and_not_one_more_and_the_rule_is_named(more: int, is_refused: bool) -> None:
    full = [rule(f"r{number}", pattern=open_pattern(1000)) for number in range(MOST_STEPS // 1000 - 1)]
    last = rule("last", pattern=open_pattern(1000 + more))
    found = list(rule_problems([*full, last, SECRET], pattern_problem, pattern_cost))
    assert [(each.rule, each.field, str(MOST_STEPS) in each.reason) for each in found] == (
        [(len(full), "pattern", True)] * is_refused
    )


@pytest.mark.parametrize(("more", "is_refused"), [(-1, False), (0, False), (1, True)])
def test_a_policy_is_so_large_and_no_larger_and_its_engine_has_memory_for_it(more: int, is_refused: bool) -> None:
    size = program_size("x" * 990)
    count = LARGEST_PROGRAM // size
    letters = str.maketrans("0123456789", "abcdefghij")
    patterns = [f"{number:03}".translate(letters) + "x" * 987 for number in range(count)]
    patterns.append("y" * (LARGEST_PROGRAM - count * size - (size - 990) + more))
    found = problems(*[rule(f"r{number}", pattern=each) for number, each in enumerate(patterns)])
    assert [str(LARGEST_PROGRAM) in each for each in found] == [True] * is_refused
    if not is_refused:
        assert PatternSet(patterns).is_one_search


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("secret", 0),
        ("x" * 1024, 0),
        (r"\Qa{3}\E\x{1F600}\.\{", 0),
        ("(?i)one|two", 1),
        ("[ab]", 1),
        ("[ab]{60}", 60),
        ("a{60}", 60),
        ("(?:ab?){60}", 179),
        (r"a.{60}b", 480),
        ("a" + "." * 60 + "b", 480),
        ("a?" * 100 + "b", 200),
        ("(a|b)" * 100, 100),
    ],
)
def test_what_repeats_is_optional_or_a_choice_is_an_open_step_and_a_letter_is_none(pattern: str, steps: int) -> None:
    assert open_steps(pattern) == steps


def test_patterns_that_multiply_the_engines_states_are_refused_when_they_are_set() -> None:
    rules = [rule(f"r{number}", pattern=f"a.{{{number}}}b") for number in range(1, 200)]
    assert len(problems(*rules)) == 1
    assert problems(*rules[:40]) == []


@pytest.mark.parametrize("more", [0, 1])
def test_names_and_patterns_together_have_a_bound(more: int) -> None:
    names = tuple("x" * 256 for _ in range(256))
    rules = [rule(f"r{number}", denied_tools=names) for number in range(3)]
    rest = MOST_TEXT - sum(len(each.id) + 256 * 256 for each in rules) - len("last")
    lists = [*("x" * 256 for _ in range(rest // 256)), "x" * (rest % 256 + more)]
    rules.append(rule("last", denied_tools=tuple(name for name in lists if name)))
    told = [each for each in rule_problems(rules, lambda _: "") if str(MOST_TEXT) in each.reason]
    assert [each.rule for each in told] == [3] * more
