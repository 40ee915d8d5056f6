"""Which tools a request offers, and which ones a request or an answer tells of having been called. Pure.

In any dialect and spelling.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Names = tuple[str, ...]
"""All that a tool may be known by: its name, and its type when it is one of the upstream's own."""

_OF_TOOLS = frozenset(
    (
        *("messages", "input", "tools", "functions", "mcp_servers", "web_search_options", "tool_choice"),
        *("function_call", "prompt"),
    )
)
"""A request's members that may tell of tools."""
_PLAIN_TYPES = frozenset(("function", "custom", "object", ""))
_PLAIN = frozenset(("role", "content", "name", "tool_call_id", "refusal", "text", "type", "cache_control"))
_KNOWN = _PLAIN | frozenset(
    (
        *("tools", "tool_calls", "function_call", "function", "custom", "id", "index", "call_id", "arguments", "input"),
        *("description", "parameters", "input_schema", "strict", "status", "output", "tool_use_id", "is_error"),
        *("source", "image_url", "reasoning_content", "annotations", "thinking", "signature", "summary"),
    )
)
"""Members that are no others in another case."""
_CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use", "function_call", "custom_tool_call", "mcp_call"))


_CHOICES = frozenset(("auto", "any", "none", "required", "tool", "allowed_tools"))
"""Words of a choice that name no tool."""


class ToolPlace:
    """A tool somewhere in a request. Not a dataclass: there may be hundreds."""

    __slots__ = ("names", "place")

    def __init__(self, names: Names, place: str) -> None:
        self.names = names
        """Empty where something is offered that cannot be told."""
        self.place = place


def tools_of(request: Mapping[str, Any]) -> Iterator[ToolPlace]:
    """Everything that is offered or chosen, and everything that was called.

    The names of the request's members are folded: some upstreams (Go's) take them in any case.
    """
    for known, value in request.items():
        if known not in _OF_TOOLS or value is None:
            continue
        if known in ("messages", "input"):
            for number, each in enumerate(value if type(value) is list else ()):
                if type(each) is dict and not _is_plain(each):
                    yield from _in_message(each, f"/{known}/{number}")
        elif known in ("tools", "functions", "mcp_servers"):
            yield from _offered(value, f"/{known}", "mcp" if known == "mcp_servers" else "")
        elif known == "web_search_options":
            yield ToolPlace(("web_search",), "/web_search_options")
        elif known in ("tool_choice", "function_call"):
            yield from _chosen(value, f"/{known}")
        elif type(value) is dict:  # a prompt that is kept at the upstream, and may have tools
            yield ToolPlace((), "/prompt")


def _is_plain(message: dict[str, Any]) -> bool:
    """Whether it is text alone, as most are: told sooner than by looking for calls."""
    if not message.keys() <= _PLAIN or "type" in message:
        return False
    parts = message.get("content")
    return type(parts) is not list or all(map(_is_text, parts))


def _is_text(part: Any) -> bool:
    return type(part) is not dict or (part.keys() <= _PLAIN and part.get("type") == "text")


def tools_called(answer: dict[str, Any], place: str = "") -> Iterator[ToolPlace]:
    """Everything that an answer, or an event of one, calls. What goes on with a call that has begun has no names."""
    yield from _in_message({key: value for key, value in answer.items() if key != "tools"}, place)  # as they were asked
    for known in ("message", "delta", "content_block", "item", "response"):
        for inner in _members(answer, known):
            if type(inner) is dict:
                yield from tools_called(inner, f"{place}/{known}")
    for known in ("choices", "output"):
        for inner in _members(answer, known):
            for number, each in enumerate(inner if type(inner) is list else ()):
                if type(each) is dict:
                    yield from tools_called(each, f"{place}/{known}/{number}")


def _offered(value: Any, place: str, kind: str = "") -> Iterator[ToolPlace]:
    if type(value) is not list:
        yield ToolPlace((), place)
        return
    for number, each in enumerate(value):
        yield ToolPlace(_names(each, kind), f"{place}/{number}")
        inner = _members(each, "tools")  # a namespace of tools
        for tools in inner:
            yield from _offered(tools, f"{place}/{number}/tools")


def _names(tool: Any, kind: str = "") -> Names:
    """Empty for what is no tool at all."""
    if type(tool) is str:
        return (tool,)
    names = [kind] if kind else []
    names += [each for each in _members(tool, "name") if type(each) is str]
    for key in ("function", "custom"):
        for inner in _members(tool, key):
            names += [each for each in _members(inner, "name") if type(each) is str]
    names += [each for each in _members(tool, "type") if type(each) is str and each not in _PLAIN_TYPES]
    return tuple(names)


def _chosen(choice: Any, place: str) -> Iterator[ToolPlace]:
    """What has to be called: offered beside it, or known to the upstream."""
    names = tuple(each for each in _names(choice) if each not in _CHOICES)
    if names:
        yield ToolPlace(names, place)
    for inner in (choice, *_members(choice, "allowed_tools")):
        for tools in _members(inner, "tools"):
            yield from _offered(tools, f"{place}/tools")


def _in_message(message: dict[str, Any], place: str) -> Iterator[ToolPlace]:
    """The calls that a message, or an item of a conversation, tells of, and the tools that it brings."""
    if message.keys() <= _PLAIN and "type" not in message:  # what most are
        yield from _in_parts(message.get("content"), place)
        return
    for tools in _members(message, "tools"):
        if tools is not None:
            yield from _offered(tools, f"{place}/tools")
    yield from _call(message, place)
    for calls in _members(message, "tool_calls"):
        for number, call in enumerate(calls if type(calls) is list else ()):
            yield ToolPlace(_names(call), f"{place}/tool_calls/{number}")
    for call in _members(message, "function_call"):
        if call is not None:
            yield ToolPlace(_names(call), f"{place}/function_call")
    for parts in _members(message, "content"):
        yield from _in_parts(parts, place)


def _in_parts(parts: Any, place: str) -> Iterator[ToolPlace]:
    for number, part in enumerate(parts if type(parts) is list else ()):
        if not _is_text(part):
            yield from _call(part, f"{place}/content/{number}")


def _call(part: dict[str, Any], place: str) -> Iterator[ToolPlace]:
    for kind in _members(part, "type"):
        if type(kind) is str and kind in _CALLS:
            yield ToolPlace(tuple(each for each in _members(part, "name") if type(each) is str), place)
        elif type(kind) is str and kind.endswith("_call"):  # of the upstream's own tools: web_search_call
            yield ToolPlace((kind.removesuffix("_call"),), place)


def _members(value: Any, name: str) -> Sequence[Any]:
    """Every member of that name, in any case."""
    if type(value) is not dict:
        return ()
    if value.keys() <= _KNOWN:
        return (value[name],) if name in value else ()
    return [each for key, each in value.items() if len(key) == len(name) and key.casefold() == name]
