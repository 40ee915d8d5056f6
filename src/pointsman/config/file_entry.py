"""One mapping of a configuration file, read key by key, with the words that say what is wrong with it.

Owns text, numbers and names in general; which keys there are and what they mean is the caller's. Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from pointsman.config.problems import Problem
from pointsman.config.route_entry import Findings
from pointsman.config.wording import nearest, shown
from pointsman.config.yaml_positions import NOTHING, NUMBER, STRING, Mapping, Node, Scalar, Sequence
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.provider import NAME_RULE, check_name

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,11})")
Spelling = Callable[[str], str]
"""How the file spells one of our keys, for messages: as it is in YAML, `DailyRequestLimit` in an appsettings.json."""


def as_written(key: str) -> str:
    """The spelling of files that use our own keys."""
    return key


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one kind of mapping."""

    names: tuple[str, ...]
    habits: dict[str, str]
    """What other programs call them."""


class FileEntry:
    """A mapping with its line. Keys without a value count as absent."""

    def __init__(self, what: str, node: Mapping, findings: Findings, spelling: Spelling) -> None:
        self.what = what
        """How messages begin: `provider groq`."""
        self.line = node.line
        self.findings = findings
        self.spelling = spelling
        self._all = node.entries
        self._entries = {key: each for key, each in node.entries.items() if each[1].kind != NOTHING}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def line_of(self, key: str) -> int:
        """Where a key stands; where the mapping begins if it is absent."""
        return self._entries[key][0] if key in self._entries else self.line

    def problem(self, key: str, reason: str, next_step: str) -> None:
        """Note what has to be mended."""
        self.findings.problems.append(Problem(self.line_of(key), f"{self.what}: {reason}", next_step, key))

    def warn(self, key: str, reason: str, next_step: str) -> None:
        """Note what only deserves a word."""
        self.findings.warnings.append(Problem(self.line_of(key), f"{self.what}: {reason}", next_step, key))

    def check_keys(self, keys: Keys) -> None:
        """Note every key that is unknown, with the nearest."""
        for key, (line, _) in self._all.items():
            if key not in keys.names:
                near = nearest(key, keys.names, keys.habits)
                next_step = f"did you mean {near}?" if near else f"the keys are {', '.join(keys.names)}"
                self.findings.problems.append(Problem(line, f"{self.what}: unknown key{shown(key)}", next_step))

    def node(self, key: str) -> Node | None:
        """What stands behind a key."""
        return self._entries[key][1] if key in self._entries else None

    def text(self, key: str, longest: int) -> str:
        """A printable text without space around it; empty if it is absent or refused, which is noted."""
        node, word = self.node(key), self.spelling(key)
        if node is None:
            return ""
        if not isinstance(node, Scalar):
            self.problem(key, f"{word} is {node.kind}", "write a single value")
        elif node.kind != STRING:
            self.problem(key, f"{word} is read as {node.kind}", f'put it in quotes, as in {word}: "…"')
        elif not node.text.strip():
            self.problem(key, f"{word} is empty", "give it a value or remove the line")
        elif not node.text.strip().isprintable():
            self.problem(key, f"{word} holds a control or invisible character", "type it again by hand")
        elif len(node.text.strip()) > longest:
            self.problem(key, f"{word} is longer than {longest} characters", "shorten it")
        else:
            return node.text.strip()
        return ""

    def name(self, key: str) -> str:
        """A text that can name a record; empty if it is absent or refused."""
        text = self.text(key, 4096)
        try:
            if text:
                check_name(text)
        except InvalidRequest:  # its words are for a command line
            self.problem(key, f"{self.spelling(key)} cannot name a record", f"use at most 253 of {NAME_RULE}")
            return ""
        return text

    def whole(self, key: str, highest: int, lowest: int = 0) -> int:
        """A whole number within bounds; 0 if it is absent or refused."""
        node, word = self.node(key), self.spelling(key)
        if node is None:
            return 0
        if not isinstance(node, Scalar) or node.kind not in (NUMBER, STRING) or not _WHOLE.fullmatch(node.text.strip()):
            kind = f" but {node.kind}" if node.kind not in (NUMBER, STRING) else ""
            self.problem(key, f"{word} is not a plain whole number{kind}", f"write digits alone, as in {word}: 100")
        elif int(node.text) < 0:
            self.problem(key, f"{word} is negative", f"write {lowest} or more")
        elif int(node.text) < lowest:
            self.problem(key, f"{word} is smaller than {lowest}", "check it")
        elif int(node.text) > highest:
            self.problem(key, f"{word} is larger than {highest}", "check it")
        else:
            return int(node.text)
        return 0

    def mappings(self, key: str, what: str, most: int) -> list["FileEntry"]:
        """The mappings of a list; what is no mapping is noted. `what` is how messages about one begin."""
        node, word = self.node(key), self.spelling(key)
        if node is None:
            return []
        if not isinstance(node, Sequence):
            self.problem(key, f"{word} is {node.kind}, not a list", f"write {word}: [{{…}}]")
            return []
        if len(node.items) > most:
            self.problem(key, f"{word} has {len(node.items)} entries; at most {most}", "keep those that matter")
            return []
        entries = []
        for item in node.items:
            if isinstance(item, Mapping):
                entries.append(FileEntry(f"{self.what}: {what}", item, self.findings, self.spelling))
            else:
                reason = f"{self.what}: {word} holds {item.kind}, not a mapping"
                self.findings.problems.append(Problem(item.line, reason, "write {…}", key))
        return entries
