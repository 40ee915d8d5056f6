"""What of an event of an answer's stream is text, which texts of several events are one, and where that one ends. Pure.

Dialects of OpenAI and Anthropic. A text is every string but those that no reader takes for one; parts of one text have
the same key. What an event tells whole (a finished item, an error) is alone.
"""

from collections.abc import Iterator
from typing import Any

from pointsman.routing.request_text import MARKS

Key = tuple[str | int, ...]

_INDICES = ("index", "output_index", "content_index", "summary_index")
_NO_TEXT = MARKS | {"system_fingerprint", "obfuscation", "native_finish_reason", "provider"}
_ARGUMENTS = frozenset(("arguments", "partial_json", "input"))
"""Their strings are JSON; clients read them when they have all."""
_LAST_TYPES = frozenset(
    ("message_stop", "response.completed", "response.incomplete", "response.failed", "response.cancelled")
)
_JOINED = ("choices", "delta", "content_block")
_DELTA, _DONE = ".delta", ".done"


class AnswerText:
    """A string that is text. Not a dataclass: there is one in nearly every event."""

    __slots__ = ("is_arguments", "is_fixed", "key", "number", "place", "value")

    def __init__(self, number: int, value: str, key: Key | None, place: str) -> None:
        self.number = number
        """Which of all strings of the event's JSON it is, names of members counted."""
        self.value = value
        self.key = key
        """Of the text that it is a part of; None for what is alone."""
        self.place = place
        """A JSON pointer; members that are not the dialect's own are `*`."""
        self.is_arguments = False
        self.is_fixed = False
        """The name of a tool: nothing of it is replaced."""


class Ends:
    """Which texts end with an event."""

    __slots__ = ("all", "index", "kind")

    def __init__(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        kind = kind if type(kind) is str else ""
        self.all = kind in _LAST_TYPES
        self.index: Key | None = None
        """Texts whose keys begin so."""
        if kind == "content_block_stop":
            self.index = ("", *_indices(event))
        elif kind.endswith(_DONE):
            self.index = (kind.removesuffix(_DONE), *_indices(event))

    def end(self, key: Key) -> bool:
        """Whether the text of that key has ended."""
        return self.all or (self.index is not None and key[: len(self.index)] == self.index)


def answer_texts(event: dict[str, Any]) -> list[AnswerText]:
    """All texts of an event, in order. Raises RecursionError for what is nested too deeply."""
    walk = _Walk(event)
    walk.object(event, (), "", is_free=False)
    return walk.texts


def _indices(event: dict[str, Any]) -> Iterator[int]:
    for name in _INDICES:
        value = event.get(name)
        if type(value) is int:
            yield value


class _Walk:
    """Counts strings in the order of the JSON text, and keeps those that are text."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.texts: list[AnswerText] = []
        self._count = 0
        kind = event.get("type")
        kind = kind if type(kind) is str else ""
        # `response.output_text.delta` has its text at the top; Anthropic's events and chunks of chat are told by index.
        self._root: Key = (kind.removesuffix(_DELTA) if kind.startswith("response.") else "", *_indices(event))

    def object(self, members: dict[str, Any], path: Key, place: str, *, is_free: bool) -> None:
        for name, value in members.items():
            if is_free:
                self._add(name, None, f"{place}/*")
            else:
                self._count += 1
            inner = f"{place}/{'*' if is_free else _shown(name)}"
            key = (*path, name.casefold())  # some clients (Go's) take members in any case
            if type(value) is str:
                self._string(name, value, key, inner, members, is_free=is_free)
            elif type(value) is dict:
                self.object(value, key, inner, is_free=is_free or name == "input")
            elif type(value) is list:
                self._list(value, key, inner, is_free=is_free or name == "input")

    def _list(self, values: list[Any], path: Key, place: str, *, is_free: bool) -> None:
        for number, value in enumerate(values):
            inner = f"{place}/{number}"
            if type(value) is str:
                self._add(value, self._joined((*path, number)), inner)
            elif type(value) is dict:
                index = value.get("index")
                key = (*path, index if type(index) is int else number)
                self.object(value, key, inner, is_free=is_free)
            elif type(value) is list:
                self._list(value, (*path, number), inner, is_free=is_free)

    def _string(self, name: str, value: str, path: Key, place: str, members: dict[str, Any], *, is_free: bool) -> None:
        if is_free:
            self._add(value, None, place)
        elif name in _NO_TEXT or (name == "data" and ("transcript" in members or "id" in members)):
            self._count += 1
        else:
            text = self._add(value, self._joined(path), place)
            text.is_fixed = name == "name"
            text.is_arguments = name in _ARGUMENTS or (name == "delta" and "arguments" in str(members.get("type")))

    def _joined(self, path: Key) -> Key | None:
        if not path or path[0] not in _JOINED:
            return None
        if path[0] == "choices":
            return path
        # A block begins with the text that its deltas go on with.
        return (*self._root, *path[1:])

    def _add(self, value: str, key: Key | None, place: str) -> AnswerText:
        text = AnswerText(self._count, value, key, place)
        self.texts.append(text)
        self._count += 1
        return text


def _shown(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() and len(name) <= 32 else "*"


def repeats_text(value: Any) -> bool:
    """Whether an answer tells its text once more, token by token (`logprobs`), where nothing can be replaced."""
    if type(value) is dict:
        return any(
            (bool(inner) and (type(inner) is not dict or any(inner.values())))
            if name == "logprobs"
            else type(inner) in (dict, list) and repeats_text(inner)
            for name, inner in value.items()
        )
    return type(value) is list and any(repeats_text(inner) for inner in value)
