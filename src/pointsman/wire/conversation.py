"""A request's body as a conversation: where its messages, their calls and results, and its tools stand.

In the dialects of chat completions, messages and responses. Owns what of them is understood; nothing here changes a
body. What is not understood is an error with a word of its own: whoever asks leaves the body as it is.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import msgspec

from pointsman.core.errors import MalformedRequest
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.json_model import Place, elements, members

MOST_BYTES = 4 * 1024 * 1024
"""Of a body that is read (ours): a million tokens. One pass over it holds the interpreter for up to 5 ms."""
MOST_COMMAS = 300_000
"""In a body that is read, wherever they stand: a pass over a million short values takes as long as one over 4 MiB."""
MOST_PARTS = 20_000
"""Messages, calls, blocks and tools of one body, together (ours): each becomes an object."""
_LONGEST_CHOICE = 16 * 1024
_NOWHERE: Place = (0, 0)
_ABSENT = msgspec.Raw(b"")
_SYSTEM = ("system", "developer")
_T = TypeVar("_T")


class NotUnderstood(Exception):
    """A body that is left as it is."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word
        """Why: `not_json`, `repeated_key`, `too_large`, `too_many_parts`, `unpaired`, `stored_history` or
        `unknown_item`."""


class Result(NamedTuple):
    """What a tool said."""

    call_id: str
    content: memoryview
    """As it is written."""
    block: int
    """Which of its message's blocks it is; -1 where the message itself is the result."""


class Entry(NamedTuple):
    """One message, or one item of a responses request."""

    role: str
    """`system`, `developer`, `user`, `assistant`, or `result` for what holds results."""
    place: Place
    is_plain: bool
    """Whether it is a message without calls and results."""
    calls: Sequence[tuple[str, str]] = ()
    """Ids and names."""
    results: Sequence[Result] = ()
    is_reasoning: bool = False

    @property
    def is_system(self) -> bool:
        """Whether it is a system prompt, or part of one."""
        return self.role in _SYSTEM


class Tool(NamedTuple):
    """A tool that the model may call."""

    name: str
    """Empty for what the upstream runs itself."""
    place: Place
    is_marked: bool
    """Whether a prompt cache is to end with it."""


class Conversation(NamedTuple):
    """All of it, in the order of the text. Calls come before their results, and every result has its call."""

    entries: Sequence[Entry]
    tools: Sequence[Tool]
    chosen: frozenset[str]
    """Every text in `tool_choice`."""


_left: ContextVar[list[int]] = ContextVar("_left")
"""How many parts may still be decoded of the body that is read: a thread's and a task's are their own."""


class _Part(msgspec.Struct):
    def __post_init__(self) -> None:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise ValueError


class _Named(msgspec.Struct):
    name: str = ""


class _ChatCall(_Part):
    id: str = ""
    function: _Named | None = None
    custom: _Named | None = None


class _ChatMessage(_Part):
    role: str
    tool_calls: list[_ChatCall] | None = None
    tool_call_id: str | None = None
    function_call: msgspec.Raw = _ABSENT
    content: msgspec.Raw = _ABSENT


class _Block(_Part):
    type: str
    id: str = ""
    name: str = ""
    tool_use_id: str = ""
    content: msgspec.Raw = _ABSENT


class _Message(_Part):
    role: str
    content: str | list[_Block]


class _Item(_Part):
    type: str = "message"
    role: str = ""
    call_id: str = ""
    name: str = ""
    output: msgspec.Raw = _ABSENT


class _ToolPart(_Part):
    type: str | None = None
    name: str = ""
    function: _Named | None = None
    custom: _Named | None = None
    cache_control: msgspec.Raw = _ABSENT


_chat = msgspec.json.Decoder(list[_ChatMessage])
_messages = msgspec.json.Decoder(list[_Message])
_items = msgspec.json.Decoder(list[_Item])
_tools = msgspec.json.Decoder(list[_ToolPart])
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ALONE = ("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
"""What a model said or did by itself: no result of a client's follows."""


def result_member(protocol: str) -> str:
    """The key behind which a result's content stands."""
    return "output" if protocol == P.RESPONSES else "content"


def read_conversation(body: bytes, protocol: str) -> Conversation:
    """On any thread. Raises NotUnderstood."""
    if len(body) > MOST_BYTES:
        raise NotUnderstood("too_large")
    if len(body) > MOST_COMMAS and body.count(b",") > MOST_COMMAS:
        raise NotUnderstood("too_many_parts")
    try:
        named = members(body, DEFAULT_LIMITS.json_keys)
    except MalformedRequest:
        raise NotUnderstood("not_json") from None
    found = dict(named)
    if len(found) < len(named):  # of two, some servers read the first
        raise NotUnderstood("repeated_key")
    key = "input" if protocol == P.RESPONSES else "messages"
    if any(_has(body, found, each) for each in ("previous_response_id", "conversation", "prompt")):
        raise NotUnderstood("stored_history")
    _left.set([MOST_PARTS])
    place = found.get(key, _NOWHERE)
    if protocol == P.RESPONSES and body[place[0] : place[0] + 1] == b'"':
        entries: list[Entry] = []
    elif protocol == P.CHAT_COMPLETIONS:
        entries = list(map(_chat_entry, _decoded(_chat, body, place), elements(body, place)))
    elif protocol == P.MESSAGES:
        entries = list(map(_message_entry, _decoded(_messages, body, place), elements(body, place)))
    else:
        entries = list(map(_item_entry, _decoded(_items, body, place), elements(body, place)))
    _check_pairs(entries)
    tools = _read_tools(body, found["tools"], protocol) if _has(body, found, "tools") else []
    chosen = _texts_of(body, found.get("tool_choice", _NOWHERE)) if tools else frozenset()
    return Conversation(entries, tools, chosen)


def _has(body: bytes, found: dict[str, Place], key: str) -> bool:
    return key in found and body[slice(*found[key])] != b"null"


def _decoded(decoder: msgspec.json.Decoder[list[_T]], body: bytes, place: Place) -> list[_T]:
    try:
        return decoder.decode(memoryview(body)[slice(*place)])
    except (msgspec.DecodeError, RecursionError):
        raise NotUnderstood("too_many_parts" if _left.get()[0] < 0 else "unknown_item") from None


def _chat_entry(message: _ChatMessage, place: Place) -> Entry:
    if message.role == "tool":
        result = Result(message.tool_call_id or "", memoryview(message.content), -1)
        return Entry("result", place, is_plain=False, results=(result,))
    if message.role not in (*_SYSTEM, "user", "assistant") or memoryview(message.function_call).nbytes:
        raise NotUnderstood("unknown_item")
    calls = [(each.id, (each.function or each.custom or _Named()).name) for each in message.tool_calls or ()]
    return Entry(message.role, place, is_plain=not calls, calls=calls)


def _message_entry(message: _Message, place: Place) -> Entry:
    if message.role not in ("user", "assistant", "system"):
        raise NotUnderstood("unknown_item")
    if isinstance(message.content, str):
        return Entry(message.role, place, is_plain=True)
    calls = [(each.id, each.name) for each in message.content if each.type == "tool_use"]
    results = [
        Result(each.tool_use_id, memoryview(each.content), number)
        for number, each in enumerate(message.content)
        if each.type == "tool_result"
    ]
    if (calls and message.role != "assistant") or (results and message.role != "user"):
        raise NotUnderstood("unknown_item")
    return Entry("result" if results else message.role, place, not calls and not results, calls, results)


def _item_entry(item: _Item, place: Place) -> Entry:
    if item.type == "message" and item.role in (*_SYSTEM, "user", "assistant"):
        return Entry(item.role, place, is_plain=True)
    if item.type in _CALLS:
        return Entry("assistant", place, is_plain=False, calls=((item.call_id, item.name),))
    if item.type in _OUTPUTS:
        result = Result(item.call_id, memoryview(item.output), -1)
        return Entry("result", place, is_plain=False, results=(result,))
    if item.type in _ALONE:
        return Entry("assistant", place, is_plain=False, is_reasoning=item.type == "reasoning")
    raise NotUnderstood("unknown_item")


def _check_pairs(entries: Iterable[Entry]) -> None:
    pending: Counter[str] = Counter()
    for entry in entries:
        for result in entry.results:
            if not pending[result.call_id]:
                raise NotUnderstood("unpaired")
            pending[result.call_id] -= 1
        pending.update(call_id for call_id, _ in entry.calls)


def _read_tools(body: bytes, place: Place, protocol: str) -> list[Tool]:
    parts = _decoded(_tools, body, place)
    return [_tool(part, at, protocol) for part, at in zip(parts, elements(body, place), strict=True)]


def _tool(part: _ToolPart, place: Place, protocol: str) -> Tool:
    if protocol == P.CHAT_COMPLETIONS:
        name = (part.function or part.custom or _Named()).name
    else:
        own = (None, "custom") if protocol == P.MESSAGES else ("function", "custom")
        name = part.name if part.type in own else ""
    return Tool(name, place, is_marked=memoryview(part.cache_control).nbytes > 0)


def _texts_of(body: bytes, place: Place) -> frozenset[str]:
    begin, end = place
    if end - begin > _LONGEST_CHOICE:
        raise NotUnderstood("unknown_item")
    found: set[str] = set()
    left = [msgspec.json.decode(body[begin:end])] if begin < end else []
    while left:
        value: Any = left.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
    return frozenset(found)
