"""What a request's body says of how long its answer may get, in any dialect. Not here: whether it is a good request."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from pointsman.core.limits import DEFAULT_LIMITS

_MOST = 1 << 40
"""Tokens, and answers: what is beyond it is said by nobody who means it."""
_LONGEST_NUMBER = 32
"""Characters of a number that is written as a text."""
_TOKENS = frozenset(("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens"))
"""Limits of the dialects, and llama.cpp's and SGLang's own."""
_ANSWERS = frozenset(("n", "best_of"))
_MOST_MEMBERS = DEFAULT_LIMITS.json_keys


class OutputBound(NamedTuple):
    """As the client wrote it. A tuple, since one is made per request."""

    tokens: int | None = None
    """Of one answer; None when it names no limit."""
    answers: int = 1
    is_stream: bool = False


UNBOUND = OutputBound()


class _Name:
    """Equals only itself, so that a dict keeps what is named twice: upstreams differ in which of the two counts."""

    __slots__ = ()


class _Names:
    """Decodes the top level of an object, and collects the names as they come."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._name)
        self._names: list[str] = []

    def _name(self, _: type, name: str) -> _Name:
        self._names.append(name)
        if len(self._names) > _MOST_MEMBERS:
            raise ValueError("too many members")
        return _Name()

    def read(self, body: bytes) -> tuple[list[str], Iterable[msgspec.Raw]]:
        """In the order of the text. Raises what msgspec does."""
        names: list[str] = []
        self._names = names
        return names, self._decoder.decode(body).values()


_NUMBERS = frozenset(bytes([each]) for each in b"-0123456789")
_MOST_ELEMENTS = 1_000
"""Of a list that is made to count them: each takes 0.2 microseconds, and 10 MiB hold five million."""
_OF_TOKENS = b"0123456789-+.eE,[] \t\r\n"
"""What lists of numbers are written with."""
_TEXT_ELEMENT = re.compile(rb'[ \t\r\n]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t\r\n]*+[,\]]', re.S)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_names = _Names()  # it is never entered twice at once


def read_output_bound(body: bytes) -> OutputBound:
    """Of several limits the largest; what is no number in range is none. A body that is no JSON object says nothing."""
    try:
        names, values = _names.read(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return UNBOUND
    return _bound(zip(names, values, strict=True), _value, _prompts_written)


def output_bound_of(request: Mapping[str, Any]) -> OutputBound:
    """The same of an object that was decoded, and names no member twice."""
    return _bound(request.items(), _as_it_is, prompts_in)


def _bound(
    members: Iterable[tuple[str, Any]], value_of: Callable[[Any], Any], prompts_of: Callable[[Any], int]
) -> OutputBound:
    tokens, answers, prompts, is_stream = 0, 1, 1, False
    for name, given in members:
        known = name.casefold()  # some upstreams (Go's) take members in any case
        if known in _TOKENS:
            tokens = max(tokens, _whole(value_of(given)))
        elif known == "stream":
            is_stream = is_stream or value_of(given) is True
        elif known in _ANSWERS:
            answers = max(answers, _whole(value_of(given)))
        elif known == "prompt":
            prompts = max(prompts, prompts_of(given))
    return OutputBound(tokens or None, min(answers * prompts, _MOST), is_stream)


def _as_it_is(value: Any) -> Any:
    return value


def _value(raw: msgspec.Raw) -> Any:
    """None for what cannot be read, a number beyond all range for example."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _prompts_written(raw: msgspec.Raw) -> int:
    """As `prompts_in`, of what is not decoded. Where very many things of several kinds stand in it, each counts."""
    if bytes(memoryview(raw)[:1]) != b"[":
        return 1
    text = bytes(raw)
    commas = text.count(b",")
    if commas < _MOST_ELEMENTS:
        try:
            return prompts_in(
                [0 if bytes(memoryview(each)[:1]) in _NUMBERS else each for each in _elements.decode(raw)]
            )
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return 1
    if not text.translate(None, _OF_TOKENS):
        return max(1, text.count(b"[") - 1)
    at = 1
    for number in range(_MOST_ELEMENTS):
        match = _TEXT_ELEMENT.match(text, at)
        if match is None:
            break
        at = match.end()
        if text[at - 1 : at] == b"]":
            return number + 1
    return commas + 1


def prompts_in(prompt: Any) -> int:
    """How many answers a `prompt` asks for: one for each text, or list of tokens, in a list of them."""
    if type(prompt) is not list:
        return 1
    return max(1, sum(1 for each in prompt if type(each) is not int))


def _whole(value: Any) -> int:
    """Servers take `4096.0` and `"4096"` for `4096`. 0 for what bounds nothing, as 0 itself at some of them."""
    if type(value) is str and len(value) <= _LONGEST_NUMBER:
        try:
            value = float(value)
        except ValueError:
            return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1:
        return 0
    return int(min(value, _MOST))
