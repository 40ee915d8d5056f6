"""What of a request's JSON is text, in the dialects of OpenAI and Anthropic, and what a model is told as one.

A text is every string but those that no model reads as text: roles, types, identifiers, signatures, base64. What is
unknown is text, names of members included, so that nothing hides in a field that some upstream may know. Answers have
the same places, and are read by the same rules.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from pointsman.core.errors import MalformedRequest
from pointsman.wire.json_strings import unescaped, utf8

MOST_STRINGS = 100_000
"""That are looked at one by one, in a body in which something was found: a tenth of a second."""

_STRUCTURE = frozenset(
    (
        *("messages", "input", "system", "content", "output", "message", "choices", "delta", "summary", "prediction"),
        *("tool_calls", "function", "function_call", "custom", "source", "image_url", "input_audio", "file", "audio"),
        *("cache_control", "stream_options", "thinking", "reasoning", "action", "item", "response", "content_block"),
    )
)
"""Members whose objects and lists are the dialects' own."""
_SCHEMAS = frozenset(
    (
        *("tools", "functions", "tool_choice", "response_format", "output_config", "mcp_servers", "container"),
        *("web_search_options", "context_management", "text_format", "schema", "parameters", "input_schema"),
    )
)
"""Members that describe: their own members' names say what may be said, and are no text."""
MARKS = frozenset(
    (
        *("role", "type", "id", "model", "object", "status", "finish_reason", "stop_reason", "call_id", "item_id"),
        *("tool_call_id", "tool_use_id", "previous_response_id", "file_id", "container_id", "service_tier", "format"),
        *("media_type", "detail", "effort", "reasoning_effort", "verbosity", "encoding_format", "truncation", "ttl"),
        *("signature", "encrypted_content", "b64_json", "tool_choice", "prompt_cache_key", "phase", "caller"),
    )
)
"""Members whose strings no model reads as text."""
_OTHERS = frozenset(
    (
        *("text", "name", "prompt", "suffix", "instructions", "stop", "stop_sequences", "user", "metadata", "stream"),
        *("temperature", "top_p", "top_k", "n", "best_of", "seed", "echo", "logprobs", "top_logprobs", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "presence_penalty", "frequency_penalty"),
        *("parallel_tool_calls", "store", "include", "background", "dimensions", "modalities", "is_error", "index"),
        *("url", "data", "file_data", "filename", "title", "context", "citations", "annotations", "refusal"),
        *("arguments", "include_usage", "budget_tokens", "enabled", "safety_identifier", "redacted_thinking", "usage"),
        *("min_p", "repetition_penalty", "options", "keep_alive", "strict", "description", "voice", "betas", "query"),
    )
)
_VOCABULARY = _STRUCTURE | _SCHEMAS | MARKS | _OTHERS
_PLAIN_PART = frozenset(("type", "text"))
_LONGEST_DATA_HEAD = 128
"""Characters of a `data:` URL before its data."""
_DEEPEST_PLACE = 32
"""Names and numbers in the place of a text; no dialect has as many."""
_TOKENS = ("prompt_token_ids", "input_ids", "prompt_embeds", "input_embeds")
"""Members in which vLLM and SGLang take a prompt that no text says."""
_TOLD_IN_TOKENS = frozenset((*_TOKENS, "prompt", "input"))
"""All members in which numbers of tokens may stand."""
_JOINED = frozenset(("content", "system", "output", "summary"))
"""Lists of parts that a model is told as one text."""


class Mode(IntEnum):
    """What an object is."""

    STRUCTURE = 0
    SCHEMA = 1
    FREE = 2
    """Anything: a tool's arguments, what is unknown."""


class Text:
    """A string that is text. Not a dataclass: there may be thousands."""

    __slots__ = ("group", "is_arguments", "is_fixed", "number", "place", "value")

    def __init__(self, number: int, value: str, place: tuple[str | int, ...], group: int) -> None:
        self.number = number
        """Which of all strings of the text it is, names of members counted."""
        self.value = value
        self.place = place
        self.group = group
        """Parts of one text have the same; 0 for what is alone."""
        self.is_fixed = False
        """Nothing in it may be replaced: the request would break."""
        self.is_arguments = False
        """JSON in a string."""


class TooManyStrings(Exception):
    """More than are looked at."""


def texts_of(value: Any, mode: Mode = Mode.STRUCTURE) -> list[Text]:
    """All texts in order. Raises TooManyStrings, or MalformedRequest for what is nested too deeply."""
    walk = _Walk()
    try:
        walk.value("", value, (), mode, 0)
    except RecursionError:
        raise MalformedRequest("request body is nested too deeply") from None
    return walk.texts


class _Walk:
    """Counts strings in the order of the text, and keeps those that are text."""

    def __init__(self) -> None:
        self.texts: list[Text] = []
        self._count = 0
        self._groups = 0

    def value(self, key: str, value: Any, place: tuple[str | int, ...], mode: Mode, group: int) -> None:
        if type(value) is str:
            self._add(value, place, group)
        elif type(value) is dict:
            self._object(value, place, mode, group)
        elif type(value) is list:
            if mode == Mode.STRUCTURE and key:  # a list in a list goes on with its parts
                group = self._new_group() if _known(key) in _JOINED else 0
            for number, each in enumerate(value):
                if type(each) is str and key == "required" and mode == Mode.SCHEMA:
                    self._skip()
                else:
                    self.value("", each, _within(place, number), mode, group)

    def _object(self, members: dict[str, Any], place: tuple[str | int, ...], mode: Mode, group: int) -> None:
        for key, value in members.items():
            is_known = key in _VOCABULARY
            inner = _within(place, key if is_known else "*")
            if mode == Mode.FREE or (mode == Mode.STRUCTURE and not is_known):
                self._add(key, inner, 0)
            else:
                self._skip()
            if type(value) is str:
                self._string(key, value, members, inner, mode, group)
            elif type(value) is dict or type(value) is list:
                self.value(key, value, inner, _mode_below(_known(key), value, mode), 0)

    def _string(
        self, key: str, value: str, members: dict[str, Any], place: tuple[str | int, ...], mode: Mode, group: int
    ) -> None:
        known = _known(key)
        if mode == Mode.FREE or known not in _VOCABULARY:
            self._add(value, place, 0)
        elif key == "type" or (mode == Mode.STRUCTURE and (key in MARKS or _is_base64(key, value, members, place))):
            self._skip()
        else:
            text = self._add(value, place, group if known == "text" else 0)
            text.is_fixed = key == "name" and "role" not in map(str.casefold, members)
            text.is_arguments = known == "arguments" and mode == Mode.STRUCTURE

    def _add(self, value: str, place: tuple[str | int, ...], group: int) -> Text:
        text = Text(self._count, value, place, group)
        self.texts.append(text)
        self._skip()
        return text

    def _skip(self) -> None:
        self._count += 1
        if self._count > MOST_STRINGS:
            raise TooManyStrings

    def _new_group(self) -> int:
        self._groups += 1
        return self._groups


def _within(place: tuple[str | int, ...], step: str | int) -> tuple[str | int, ...]:
    """A place is as long as it is deep, and each text keeps one: deeper ones are those of what holds them."""
    return (*place, step) if len(place) < _DEEPEST_PLACE else place


def _known(key: str) -> str:
    """The dialects' own spelling of a member; some upstreams (Go's) take members in any case."""
    return key if key in _VOCABULARY else key.casefold()


def _mode_below(key: str, value: Any, mode: Mode) -> Mode:
    if mode != Mode.STRUCTURE:
        return mode
    if key in _SCHEMAS or (key == "text" and type(value) is dict):
        return Mode.SCHEMA
    if key not in _STRUCTURE:
        return Mode.FREE
    # A tool's arguments at Anthropic's; elsewhere `input` is a list.
    return Mode.FREE if key == "input" and type(value) is dict else Mode.STRUCTURE


def _is_base64(key: str, value: str, members: dict[str, Any], place: tuple[str | int, ...]) -> bool:
    if key == "data":
        return members.get("type") in ("base64", "redacted_thinking") or place[-2:-1] == ("input_audio",)
    if key not in ("url", "image_url", "file_data"):
        return False
    head, comma, _ = value[:_LONGEST_DATA_HEAD].partition(",")
    return bool(comma) and head.startswith("data:") and head.endswith(";base64")


def is_in_tokens(request: Mapping[str, Any]) -> bool:
    """Whether a text is given by the numbers of its tokens, as for completions and embeddings it may be."""
    if _TOLD_IN_TOKENS.isdisjoint(request):  # so most are
        return False
    return any(request.get(name) is not None for name in _TOKENS) or any(
        type(each) is not str and type(each) is not dict
        for given in (request.get("prompt"), request.get("input"))
        if type(given) is list
        for each in given
    )


def hidden_texts(value: Any) -> list[bytes]:
    """What no string says by itself: parts of a text that were split, and strings within arguments.

    Raises MalformedRequest for what is nested too deeply.
    """
    found: list[bytes] = []
    try:
        _look_into("", value, found)
    except RecursionError:
        raise MalformedRequest("request body is nested too deeply") from None
    return found


def _look_into(key: str, value: Any, found: list[bytes]) -> None:
    if type(value) is list:
        if key in _JOINED:
            told = _parts_in(value) if list in map(type, value) else value
            parts = [part for part in map(_part, told) if part is not None]
            if len(parts) > 1:
                found.append(utf8("".join(parts)))
        for each in value:
            if type(each) is list or (type(each) is dict and not each.keys() <= _PLAIN_PART):
                _look_into("", each, found)
    elif type(value) is dict:
        for written, inner in value.items():
            kind = type(inner)
            if kind is str:
                if "\\" in inner and _known(written) == "arguments":
                    found.append(unescaped(utf8(inner)))
            elif kind is list or kind is dict:
                name = _known(written)
                if name in _STRUCTURE and not (name == "input" and kind is dict):
                    _look_into(name, inner, found)


def _part(value: Any) -> str | None:
    part = value
    if type(value) is dict:
        part = (
            value["text"] if "text" in value else next((value[key] for key in value if key.casefold() == "text"), None)
        )
    return part if type(part) is str else None


def _parts_in(parts: list[Any]) -> Iterator[Any]:
    within = [iter(parts)]
    while within:  # nested calls would hand on each part as often as it is nested
        for each in within[-1]:
            if type(each) is list:
                within.append(iter(each))
                break
            yield each
        else:
            within.pop()


def pointer(place: tuple[str | int, ...]) -> str:
    """A JSON pointer; members that the dialects do not know are `*`."""
    return "".join(f"/{each}" for each in place)


def parts_of_groups(texts: list[Text]) -> Iterator[list[Text]]:
    """The texts that a model is told as one, where there are several."""
    groups: dict[int, list[Text]] = {}
    for text in texts:
        if text.group:
            groups.setdefault(text.group, []).append(text)
    return (parts for parts in groups.values() if len(parts) > 1)
