"""A policy's file: YAML with one list, `rules`. Pure; all that is wrong is said at once, with its line.

Whether a pattern can be used is for the engine to say, which only a gateway has: `pattern_problem` is handed in.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.config.problems import Problem
from pointsman.config.wording import nearest, shown
from pointsman.config.yaml_positions import NUMBER, STRING, Mapping, Node, Scalar, Sequence, read_document
from pointsman.core.policy import Effect, Rule, RuleScope, Side
from pointsman.routing.policy_rules import CONDITIONS, rule_problems

KEYS = ("id", "side", "effect", "routes", "keys", "dialects", *CONDITIONS)
HABITS = {
    "name": "id",
    "action": "effect",
    "route": "routes",
    "models": "routes",
    "key": "keys",
    "dialect": "dialects",
    "protocols": "dialects",
    "deny_tools": "denied_tools",
    "tools": "denied_tools",
    "allow_tools": "allowed_tools",
    "deny_fields": "denied_fields",
    "fields": "denied_fields",
    "max_tokens": "most_tokens",
    "regex": "pattern",
    "deny": "denies_route",
    "deny_route": "denies_route",
}
"""What other programs call our keys."""
_LISTS = ("routes", "keys", "dialects", "denied_tools", "allowed_tools", "denied_fields")


@dataclass(frozen=True, slots=True)
class PolicyFileCheck:
    """What a file says."""

    rules: tuple[Rule, ...]
    """Only where there are no problems."""
    problems: tuple[Problem, ...] = ()


def check_policy_text(
    text: str,
    pattern_problem: Callable[[str], str],
    pattern_cost: Callable[[str], tuple[int, int]] = lambda _: (0, 0),
) -> PolicyFileCheck:
    """Read it. Never raises for any text."""
    document = read_document(text)
    problems = list(document.problems)
    if document.root is None:
        problems = problems or [Problem(0, "is empty", "write rules: and a list below it")]
        return PolicyFileCheck((), tuple(problems))
    reader = _Reader(problems)
    found = reader.rules(document.root)
    rules = [rule for rule, _ in found]
    if not problems:
        for each in rule_problems(rules, pattern_problem, pattern_cost):
            lines = found[each.rule][1] if each.rule < len(found) else {}
            line = lines.get(each.field, lines.get("", 0))
            problems.append(Problem(line, f"{_name(rules, each.rule)}{each.reason}", each.next_step, each.field))
    return PolicyFileCheck((), tuple(sorted(problems))) if problems else PolicyFileCheck(tuple(rules))


def _name(rules: list[Rule], number: int) -> str:
    word = shown(rules[number].id) if number < len(rules) else ""
    return f"rule{word}: " if word else ""


class _Reader:
    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def _problem(self, line: int, reason: str, next_step: str) -> None:
        self._problems.append(Problem(line, reason, next_step))

    def rules(self, root: Node) -> list[tuple[Rule, dict[str, int]]]:
        """Each with the lines of its keys; under no key, its own."""
        if not isinstance(root, Mapping):
            self._problem(root.line, f"is {root.kind}", "write rules: and a list below it")
            return []
        for key, (line, _) in root.entries.items():
            if key != "rules":
                self._problem(line, f"unknown key{shown(key)}", "the only key is rules")
        if "rules" not in root.entries:
            self._problem(root.line, "has no rules", "write rules: and a list below it; [] for none")
            return []
        line, node = root.entries["rules"]
        if not isinstance(node, Sequence):
            self._problem(line, f"rules is {node.kind}", "write a list; [] for none")
            return []
        found = [self._rule(item) for item in node.items]
        return [each for each in found if each is not None]

    def _rule(self, node: Node) -> tuple[Rule, dict[str, int]] | None:
        if not isinstance(node, Mapping):
            self._problem(node.line, f"a rule is {node.kind}", "write keys and values, as in - id: no-shell")
            return None
        for key, (line, _) in node.entries.items():
            if key not in KEYS:
                known = nearest(key, KEYS, HABITS)
                next_step = f"did you mean {known}?" if known else f"the keys are {', '.join(KEYS)}"
                self._problem(line, f"unknown key{shown(key)}", next_step)
        lines = {"": node.line, **{key: line for key, (line, _) in node.entries.items()}}
        lists = {key: self._names(node, key) for key in _LISTS}
        scope = RuleScope(lists["routes"], lists["keys"], lists["dialects"])
        rule = Rule(
            self._text(node, "id"),
            Side(self._word(node, "side", tuple(Side), Side.REQUEST)),
            Effect(self._word(node, "effect", tuple(Effect), Effect.FLAG)),
            scope,
            lists["denied_tools"],
            lists["allowed_tools"],
            lists["denied_fields"],
            self._number(node, "most_tokens"),
            self._text(node, "pattern"),
            self._flag(node, "denies_route"),
        )
        if "effect" not in node.entries:
            self._problem(node.line, "a rule has no effect", f"add effect: with one of {', '.join(Effect)}")
        return rule, lines

    def _text(self, node: Mapping, key: str) -> str:
        if key not in node.entries:
            return ""
        line, value = node.entries[key]
        if isinstance(value, Scalar) and value.kind in (STRING, NUMBER) and value.text:
            return value.text
        self._problem(line, f"{key} is {value.kind if not isinstance(value, Scalar) or value.text else 'empty'}",
                      "write a text, in quotes")  # fmt: skip
        return ""

    def _word(self, node: Mapping, key: str, words: tuple[str, ...], default: str) -> str:
        if key not in node.entries:
            return default
        text = self._text(node, key).lower()
        if text in words:
            return text
        if text:
            known = nearest(text, words)
            next_step = f"did you mean {known}?" if known else f"the words are {', '.join(words)}"
            self._problem(node.entries[key][0], f"unknown {key}{shown(text)}", next_step)
        return default

    def _names(self, node: Mapping, key: str) -> tuple[str, ...]:
        if key not in node.entries:
            return ()
        line, value = node.entries[key]
        items = value.items if isinstance(value, Sequence) else (value,)
        names = []
        for item in items:
            if isinstance(item, Scalar) and item.kind in (STRING, NUMBER) and item.text:
                names.append(item.text)
            else:
                self._problem(item.line, f"{key} holds {item.kind}", "write names, as in [fast, big]")
        if not items:
            self._problem(line, f"{key} is empty", "list at least one name, or remove it")
        return tuple(names)

    def _number(self, node: Mapping, key: str) -> int:
        if key not in node.entries:
            return 0
        line, value = node.entries[key]
        text = value.text if isinstance(value, Scalar) and value.kind == NUMBER else ""
        if text.isascii() and text.isdigit() and 0 < len(text) < 11 and int(text):
            return int(text)
        self._problem(line, f"{key} is no whole number above 0", f"write {key}: 4096")
        return 0

    def _flag(self, node: Mapping, key: str) -> bool:
        if key not in node.entries:
            return False
        line, value = node.entries[key]
        if isinstance(value, Scalar) and value.text.lower() == "true":
            return True
        self._problem(line, f"{key} is not true", f"write {key}: true, or remove it")
        return False
