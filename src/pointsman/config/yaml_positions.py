"""YAML as a tree that knows its lines.

Owns the safe subset: plain data only, no tags that construct objects, bounded size, depth and alias expansion, no
duplicate keys. Values stay text together with what YAML takes them for, so that nothing is ever converted by surprise;
what they mean is the caller's business.
"""

import re
from dataclasses import dataclass, field

import yaml
from yaml.reader import ReaderError
from yaml.resolver import Resolver

from pointsman.config.problems import Problem
from pointsman.config.wording import shown

LARGEST_TEXT = 256 * 1024
"""Bytes, or characters of a text. PyYAML reads about 260 KB a second, so that a bad file is refused within a second."""
DEEPEST = 16
"""Nested collections; a route file needs 4."""
MOST_NODES = 20_000
"""Counted after alias expansion, which is what makes an alias bomb small on disk and vast in memory."""

_KINDS = {
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:bool": "true or false",
    "tag:yaml.org,2002:null": "nothing",
    "tag:yaml.org,2002:timestamp": "a date",
}
STRING, NUMBER, NOTHING = "text", "a number", "nothing"
_QUOTED = re.compile(r"'([^']*)'")
_PARSER_WORD = re.compile(r"<[a-z ]+>|.?")
_MERGE = "<<"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. The text is left out of its repr: it may be a key."""

    line: int
    text: str = field(repr=False)
    kind: str
    """What YAML takes it for: `text`, `a number`, `true or false`, `nothing`, `a date`."""
    size: int = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: tuple["Node", ...]
    size: int
    kind: str = "a list"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values, with the line of each key. Merge keys (`<<`) are already merged in."""

    line: int
    entries: dict[str, tuple[int, "Node"]]
    size: int
    kind: str = "a mapping"


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """A file's tree, or None where it is empty or no YAML; and everything that is wrong with it as YAML."""

    root: Node | None
    problems: tuple[Problem, ...] = ()


def read_document(text: str) -> Document:
    """Read one YAML document. Never raises for any text: what is wrong is in `problems`."""
    if len(text) > LARGEST_TEXT:
        return Document(None, (too_large(),))
    text = text.removeprefix("\ufeff")
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.take(event)
    except _Refused as refused:
        problem = refused.problem
    except ReaderError as error:
        line = _line_of(text, error.position)
        problem = Problem(line, "holds a control character", "save it as plain UTF-8 text")
    except yaml.MarkedYAMLError as error:
        problem = _syntax_problem(error)
    except (yaml.YAMLError, ValueError, OverflowError):  # a \U escape or a %YAML version beyond what chr and int take
        problem = Problem(builder.line, "is not valid YAML", "look at the escapes behind this line")
    else:
        return Document(builder.root, tuple(builder.problems))
    return Document(None, (*builder.problems, problem))


def too_large() -> Problem:
    """What is said of a file beyond `LARGEST_TEXT`."""
    return Problem(0, f"is larger than {LARGEST_TEXT // 1024} KiB", "a file for people is small; check the path")


def _line_of(text: str, position: int) -> int:
    return len(re.findall(r"\r\n|\r|\n", text[:position])) + 1


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    if "'\\t'" in (error.problem or ""):
        return Problem(line, "is indented with a tab", "indent with spaces")
    # The mark's own text quotes the file, and the message may quote an alias or a tag: neither is repeated.
    reason = _QUOTED.sub(lambda m: m[0] if _PARSER_WORD.fullmatch(m[1]) else "…", error.problem or "")
    return Problem(
        line, f"is not valid YAML: {reason}", "check indentation, quotes and the space behind each colon there"
    )


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


class _Open:
    """A collection whose end has not come yet."""

    __slots__ = ("anchor", "children", "is_mapping", "line", "size")

    def __init__(self, line: int, anchor: str | None, is_mapping: bool) -> None:
        self.line, self.anchor, self.is_mapping = line, anchor, is_mapping
        self.children: list[Node] = []
        self.size = 1


class _Builder:
    """Builds the tree from parser events, without recursion: depth is a bound, not a stack overflow."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self.line = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0
        self._nodes = 0
        self._resolver = Resolver()

    def take(self, event: yaml.Event) -> None:
        """Take the next event. Raises _Refused where going on makes no sense."""
        self.line = event.start_mark.line + 1 if event.start_mark is not None else self.line
        if isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._add(self._aliased(event.anchor), None)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._begin(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._finish()
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._refuse("holds more than one YAML document", "keep one, without a second ---")

    def _refuse(self, reason: str, next_step: str) -> None:
        raise _Refused(Problem(self.line, reason, next_step))

    def _note(self, line: int, reason: str, next_step: str) -> None:
        self.problems.append(Problem(line, reason, next_step))

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        tag = event.tag
        if tag is None or tag == "!":
            # A bare `!` says "text": quoted scalars resolve the same way.
            implicit = event.implicit if tag is None else (False, True)
            tag = str(self._resolver.resolve(yaml.ScalarNode, event.value, implicit))  # type: ignore[no-untyped-call]
        elif tag != "tag:yaml.org,2002:str" and tag not in _KINDS:
            self._note(self.line, "carries a YAML tag that is not accepted", "remove the word that begins with !")
        return Scalar(self.line, event.value, _KINDS.get(tag, STRING))

    def _aliased(self, anchor: str | None) -> Node:
        node = self._anchors.get(anchor or "")
        if node is None:
            where = "inside its own anchor" if anchor in self._anchors else "without an anchor"
            next_step = "quote a value that begins with *, or define its &anchor first"
            raise _Refused(Problem(self.line, f"is an alias {where}", next_step))
        return node

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        if len(self._open) == DEEPEST:
            self._refuse(f"nests deeper than {DEEPEST} levels", "4 are enough")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._note(self.line, "carries a YAML tag that is not accepted", "remove the word that begins with !")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(self.line, event.anchor, isinstance(event, yaml.MappingStartEvent)))

    def _finish(self) -> None:
        done = self._open.pop()
        if done.is_mapping:
            node: Node = Mapping(done.line, self._entries(done.children), done.size)
        else:
            node = Sequence(done.line, tuple(done.children), done.size)
        self._nodes -= done.size - 1  # its children were counted one by one; _add counts the whole
        self._add(node, done.anchor)

    def _add(self, node: Node, anchor: str | None) -> None:
        self._nodes += node.size
        if self._nodes > MOST_NODES:
            self._refuse(
                f"holds more than {MOST_NODES} values once its aliases are expanded", "write fewer or smaller entries"
            )
        if anchor is not None:
            self._anchors[anchor] = node
        if self._open:
            self._open[-1].children.append(node)
            self._open[-1].size += node.size
        else:
            self.root = node

    def _entries(self, children: list[Node]) -> dict[str, tuple[int, Node]]:
        entries: dict[str, tuple[int, Node]] = {}
        merged: list[Node] = []
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar):
                self._note(key.line, f"has {key.kind} where a key belongs", "keys are plain words")
            elif key.text == _MERGE:
                merged.extend(value.items if isinstance(value, Sequence) else (value,))
            elif key.text in entries:
                first = entries[key.text][0]
                self._note(key.line, f"gives{shown(key.text) or ' a key'} twice, first in line {first}", "keep one")
            else:
                entries[key.text] = key.line, value
        for each in merged:
            if isinstance(each, Mapping):
                for text, entry in each.entries.items():
                    entries.setdefault(text, entry)
            else:
                self._note(each.line, f"merges {each.kind} with <<", "merge a mapping, as in <<: *defaults")
        return entries
