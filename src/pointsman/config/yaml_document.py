"""YAML with line numbers, and without its traps.

Only plain data; duplicate keys are problems; what aliases expand to is bounded, so that a file of ten lines cannot
become a billion nodes.
"""

from dataclasses import dataclass

import yaml

from pointsman.config.problems import Problem

_MOST_NODES = 10_000
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping and where it stands."""

    line: int
    items: dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence and where it stands."""

    line: int
    items: list["Value"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar and where it stands."""

    line: int
    value: object
    """As YAML types it: str, int, float, bool, None, or a date."""


Value = Mapping | Sequence | Scalar


class DocumentError(Exception):
    """The text is no usable document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def read_document(content: bytes) -> tuple[Value | None, list[Problem]]:
    """The document, or None when it is empty, and the problems met on the way. Raises DocumentError."""
    if len(content) > _MOST_BYTES:
        raise DocumentError(
            Problem(0, "is larger than 1 MiB", "a route file is a page or two; is this the right file?")
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DocumentError(Problem(line, "is not UTF-8 text", "save it as UTF-8")) from None
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, []
        reader = _Reader(loader)
        return reader.read(node), reader.problems
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "cannot be read"
        hint = "indent with spaces, not tabs" if "'\\t'" in reason else "mend the YAML there"
        raise DocumentError(Problem(mark.line + 1 if mark else 0, f"is not YAML: {reason}", hint)) from None
    except RecursionError:
        raise DocumentError(Problem(0, "is nested too deeply", "a route file is a list of plain mappings")) from None
    finally:
        loader.dispose()


class _Reader:
    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._nodes = 0
        self.problems: list[Problem] = []

    def read(self, node: yaml.Node) -> Value:
        self._nodes += 1
        line = node.start_mark.line + 1
        if self._nodes > _MOST_NODES:
            raise DocumentError(Problem(line, "expands to more than 10,000 values", "write it without aliases"))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, line)
        if isinstance(node, yaml.SequenceNode):
            return Sequence(line, [self.read(each) for each in node.value])
        if node.tag.startswith("!"):
            raise DocumentError(
                Problem(line, f"has the tag {node.tag[:40]}", "remove the tag; plain values are enough")
            )
        return Scalar(line, self._scalar(node, line))

    def _scalar(self, node: yaml.Node, line: int) -> object:
        try:
            return self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            # such as 2026-99-99, which looks like a date and is none
            raise DocumentError(Problem(line, "has a value that YAML cannot read", "put it into quotes")) from None

    def _mapping(self, node: yaml.MappingNode, line: int) -> Mapping:
        items: dict[str, Value] = {}
        for key, value in node.value:
            where = key.start_mark.line + 1
            name = self.read(key)
            if not isinstance(name, Scalar) or not isinstance(name.value, str):
                self.problems.append(Problem(where, "has a key that is not a word", "put the key into quotes"))
                continue
            if name.value in items:
                self.problems.append(Problem(where, f"has the key {name.value[:40]!r} twice", "keep one of them"))
            items[name.value] = self.read(value)
        return Mapping(line, items)
