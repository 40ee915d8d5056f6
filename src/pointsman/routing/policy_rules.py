"""What a policy's rules may be: everything that can be said without its engine. Pure.

The same for a file, a command and the REST interface; whoever reads one of them adds the place.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pointsman.core.policy import Effect, Rule, Side
from pointsman.core.protocols import InferenceProtocol as P

MOST_RULES = 1_000
"""Of a policy: a thousand patterns on a body of 200 KiB take 2 ms."""
MOST_STEPS = 10_000
"""Open to many characters, of all patterns of a policy: each costs up to 25 ns for each byte of a hostile text."""
LARGEST_PROGRAM = 100_000
"""Instructions that the engine makes of all patterns of a policy: it has memory for several times as many."""
MOST_TEXT = 256 * 1024
"""Characters of all names and patterns of a policy: in the audit record's ASCII they are 3 MiB at the most, and an
answer of the control plane has 4."""
MOST_NAMES = 256
"""In one list of a rule."""
LONGEST_NAME = 256
MOST_TOKENS = 1_000_000_000
_ID = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
ID_RULE = "up to 64 small letters, digits, dots, dashes and underscores"
CONDITIONS = ("denied_tools", "allowed_tools", "denied_fields", "most_tokens", "pattern", "denies_route")
"""Of which a rule has one; the two lists of tools count as one."""
DIALECTS = tuple(each.value for each in P if each is not P.MODEL_DISCOVERY)


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """What is wrong with one rule."""

    rule: int
    """Its place in the policy, from 0."""
    field: str
    reason: str
    next_step: str


def rule_problems(
    rules: Sequence[Rule],
    pattern_problem: Callable[[str], str],
    pattern_cost: Callable[[str], tuple[int, int]] = lambda _: (0, 0),
) -> Iterator[RuleProblem]:
    """Everything that is wrong. `pattern_problem` says why a pattern cannot be used, or nothing.

    `pattern_cost` gives the open steps and the size of one that can be used.
    """
    if len(rules) > MOST_RULES:
        yield RuleProblem(MOST_RULES, "", f"a policy has more than {MOST_RULES} rules", "join patterns with |")
        return
    seen: set[str] = set()
    patterns: list[tuple[int, str]] = []
    text = 0
    for number, rule in enumerate(rules):
        is_usable = bool(rule.pattern)
        for field, reason, next_step in _problems_of(rule, pattern_problem):
            is_usable = is_usable and field != "pattern"
            yield RuleProblem(number, field, reason, next_step)
        before, text = text, text + sum(map(len, _texts_of(rule)))
        if before <= MOST_TEXT < text:
            reason = f"with it the policy's names and patterns have more than {MOST_TEXT} characters"
            yield RuleProblem(number, "", reason, "write * for many names, or leave a list out")
        if is_usable:
            patterns.append((number, rule.pattern))
        if rule.id in seen:
            yield RuleProblem(number, "id", "its id is another rule's too", "give each rule an id of its own")
        seen.add(rule.id)
    yield from _too_costly(patterns, pattern_cost)


def _too_costly(
    patterns: Iterable[tuple[int, str]], pattern_cost: Callable[[str], tuple[int, int]]
) -> Iterator[RuleProblem]:
    """The rule with which a policy's patterns are more than can be searched for in a bounded time."""
    steps = size = 0
    for number, pattern in patterns:
        own = pattern_cost(pattern)
        steps, size = steps + own[0], size + own[1]
        if steps > MOST_STEPS:
            reason = f"with its pattern the policy has more than {MOST_STEPS} steps that are open to many characters"
            yield RuleProblem(number, "pattern", reason, f"write lower counts: this one has {own[0]}")
            return
        if size > LARGEST_PROGRAM:
            reason = f"with its pattern the policy's are larger than {LARGEST_PROGRAM} instructions"
            yield RuleProblem(number, "pattern", reason, f"write shorter ones: this one has {own[1]}")
            return


def _texts_of(rule: Rule) -> Iterator[str]:
    scope = rule.scope
    yield from (rule.id, rule.pattern)
    yield from chain(
        scope.routes, scope.keys, scope.dialects, rule.denied_tools, rule.allowed_tools, rule.denied_fields
    )


def _problems_of(rule: Rule, pattern_problem: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    if not _ID.fullmatch(rule.id):
        yield "id", "its id is none" if rule.id else "it has no id", f"use {ID_RULE}"
    given = [each for each in CONDITIONS if getattr(rule, each)]
    if len(given) != 1 and given != ["denied_tools", "allowed_tools"]:
        said = f"has {' and '.join(given)}" if given else "says nothing of what it matches"
        yield (given or ["id"])[-1], f"it {said}", f"give one of {', '.join(CONDITIONS)}"
    if rule.effect is Effect.REDACT and not rule.pattern:
        yield "effect", "only a rule with a pattern can redact", "write effect: block, or flag"
    if rule.side is Side.RESPONSE and (rule.denied_fields or rule.most_tokens or rule.denies_route):
        yield "side", "it is about answers, and looks at what only requests have", "write side: request"
    if not 0 <= rule.most_tokens <= MOST_TOKENS:
        yield "most_tokens", f"it is not between 1 and {MOST_TOKENS}", "give the most that may be asked for"
    if rule.pattern and (problem := pattern_problem(rule.pattern)):
        yield "pattern", f"its pattern {problem}", "see docs/reference/policy.md"
    scope = rule.scope
    lists = (
        ("routes", scope.routes),
        ("keys", scope.keys),
        ("dialects", scope.dialects),
        ("denied_tools", rule.denied_tools),
        ("allowed_tools", rule.allowed_tools),
        ("denied_fields", rule.denied_fields),
    )
    for field, names in lists:
        if len(names) > MOST_NAMES:
            yield field, f"it lists more than {MOST_NAMES} names", "make two rules of it"
        if any(not name or len(name) > LONGEST_NAME or not name.isprintable() for name in names):
            yield field, "it lists what is no name", f"write names of 1 to {LONGEST_NAME} visible characters"
    for name in scope.dialects:
        if name not in DIALECTS:
            yield "dialects", "it lists what is no dialect", f"the dialects are {', '.join(DIALECTS)}"
