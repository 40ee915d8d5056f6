"""What is taken out of a long conversation before it is sent on. Pure, and the same for the same body every time.

Every decision looks at what stands before it alone, so that a conversation that has grown by a turn begins with the
very bytes that were sent before: a provider's prompt cache goes on to find them. Two steps break with that, seldom:
tools go once, when enough turns have called some, and the oldest turns go in strides of a quarter of the budget.
What is not understood is left as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pointsman.core.context_options import ContextOptions
from pointsman.core.errors import MalformedRequest
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.conversation import (
    Conversation,
    Entry,
    NotUnderstood,
    Result,
    Tool,
    read_conversation,
    result_member,
)
from pointsman.wire.json_model import Place, elements, members
from pointsman.wire.plain_conversation import is_plain

BYTES_PER_TOKEN = 4
"""Of a body (`routing.tokens_used`)."""
LEAST_REPEATED = 256
"""Bytes of a result that is told by reference: a shorter one costs less than what would stand in its place."""
CALLING_TURNS = 10
"""After so many messages with calls, tools that none of them has called are taken to be unused (ours)."""
_STRIDES = 4
"""In how many steps the oldest turns go: each costs a prompt cache what lies behind it."""
_LONGEST_ID = 64
_CACHE_MARK = b'"cache_control"'
OPTIMISED = (P.CHAT_COMPLETIONS, P.MESSAGES, P.RESPONSES)
"""The dialects that have conversations."""


class Dropped(NamedTuple):
    """How many of what was taken out."""

    messages: int = 0
    tools: int = 0
    results: int = 0
    """Of tools, told by reference."""


class Optimised(NamedTuple):
    """What is sent on."""

    body: bytes
    """The same object where nothing was taken out."""
    saved_tokens: int = 0
    """Reckoned by bytes."""
    unchanged: str = ""
    """Why it was left as it is, in the word of `NotUnderstood`; empty where it was understood."""
    dropped: Dropped = Dropped()


class _Edit(NamedTuple):
    begin: int
    end: int
    text: bytes = b""


class _Unit(NamedTuple):
    """What goes together or stays together: a user's messages, or an answer with the results of its calls."""

    numbers: list[int]
    is_head: bool


def optimise(
    body: bytes, protocol: str, options: ContextOptions, request: Mapping[str, Any] | None = None
) -> Optimised:
    """Take out what the options say. Whatever goes wrong, the body is sent on as it came.

    `request`: the body, decoded, where it is small and names no member twice.
    """
    if protocol not in OPTIMISED or (request is not None and _is_kept(len(body), request, protocol, options)):
        return Optimised(body)
    try:
        conversation = read_conversation(body, protocol)
        edits, dropped = _edits(body, protocol, conversation, options)
        if not edits:
            return Optimised(body)
        changed = _edited(body, edits)
        read_conversation(changed, protocol)  # what we made must be a conversation too
    except NotUnderstood as error:
        return Optimised(body, unchanged=error.word)
    except MalformedRequest:
        return Optimised(body, unchanged="not_json")
    return Optimised(changed, max(0, len(body) - len(changed)) // BYTES_PER_TOKEN, dropped=dropped)


def _is_kept(length: int, request: Mapping[str, Any], protocol: str, options: ContextOptions) -> bool:
    """Whether it is told at once that nothing goes."""
    is_short = not options.most_tokens or length <= options.most_tokens * BYTES_PER_TOKEN
    return is_short and is_plain(request, protocol)


def _edits(
    body: bytes, protocol: str, conversation: Conversation, options: ContextOptions
) -> tuple[list[_Edit], Dropped]:
    entries, tools = conversation.entries, conversation.tools
    edits: list[_Edit] = []
    unused: set[int] = set()
    if options.drop_unused_tools:
        unused = _unused(conversation)
        edits += _without([each.place for each in tools], unused)
    gone: set[int] = set()
    repeated: list[_Edit] = []
    if options.most_tokens:
        length = len(body) - sum(each.end - each.begin for each in edits)
        gone = _oldest(entries, length, options.most_tokens * BYTES_PER_TOKEN)
    if options.drop_duplicates:
        repeated = _repeated_results(body, protocol, entries, gone)
        gone |= _repeated_messages(body, entries, gone)
    edits += [*repeated, *_without([each.place for each in entries], gone)]
    return edits, Dropped(len(gone), len(unused), len(repeated))


def _edited(body: bytes, edits: Iterable[_Edit]) -> bytes:
    view, at = memoryview(body), 0
    pieces: list[bytes | memoryview] = []
    for edit in sorted(edits):
        pieces += (view[at : edit.begin], edit.text)
        at = edit.end
    return b"".join((*pieces, view[at:]))


def _without(places: Sequence[Place], gone: set[int]) -> list[_Edit]:
    """Edits that take elements out of an array, each with one comma. Not all of them."""
    edits = []
    kept = [number for number in range(len(places)) if number not in gone] if gone else []
    for before, number in zip([-1, *kept], kept, strict=False):
        if number > before + 1:
            edits.append(_Edit(places[before + 1][0], places[number][0]))
    if kept and kept[-1] < len(places) - 1:
        edits.append(_Edit(places[kept[-1]][1], places[-1][1]))
    return edits


def _unused(conversation: Conversation) -> set[int]:
    """Tools that go. A tool that has gone cannot be called, so that the same ones go in every later turn."""
    calling = [each for each in conversation.entries if each.calls]
    if len(calling) < CALLING_TURNS:
        return set()
    called = {name for each in calling for _, name in each.calls} | conversation.chosen
    unused = {number for number, tool in enumerate(conversation.tools) if _may_go(tool, called)}
    return unused if len(unused) < len(conversation.tools) else set()


def _may_go(tool: Tool, called: set[str]) -> bool:
    return bool(tool.name) and not tool.is_marked and tool.name not in called


def _oldest(entries: Sequence[Entry], length: int, most: int) -> set[int]:
    """Entries that go so that a body of `length` bytes gets below `most`, if that can be had without the last unit.

    What goes is a whole number of strides: as turns are added, the cut stays where it is until the next is due.
    """
    if length <= most:
        return set()
    stride = max(1, most // _STRIDES)
    wanted = -(-(length - most) // stride) * stride
    units = _units(entries)
    dropped, head_size, head = 0, 0, -1
    cut = 0
    for cut, unit in enumerate(units):
        if unit.is_head:
            dropped, head_size, head = dropped + head_size, _size(entries, unit), cut
        if dropped >= wanted:
            break
        if not unit.is_head:
            dropped += _size(entries, unit)
    # A turn that is cut in its midst keeps what its user said.
    kept = head if units and not units[cut].is_head else -1
    return {number for at, unit in enumerate(units[:cut]) if at != kept for number in unit.numbers}


def _size(entries: Sequence[Entry], unit: _Unit) -> int:
    return sum(entries[number].place[1] - entries[number].place[0] for number in unit.numbers)


def _units(entries: Sequence[Entry]) -> list[_Unit]:
    """All entries but system prompts, in units between which no call waits for its result."""
    units: list[_Unit] = []
    waiting, before = 0, ""
    reasons = any(each.is_reasoning for each in entries)
    for number, entry in enumerate(entries):
        if entry.is_system:
            continue
        begins = entry.role in ("user", "assistant") and entry.role != before
        if reasons and entry.role == "assistant":  # a call is refused without the reasoning that led to it
            begins = begins and entry.is_reasoning
        if not units or (begins and not waiting):
            units.append(_Unit([], entry.role == "user"))
        units[-1].numbers.append(number)
        waiting += len(entry.calls) - len(entry.results)
        before = entry.role
    return units


def _repeated_messages(body: bytes, entries: Sequence[Entry], gone: set[int]) -> set[int]:
    """Messages that were there already, word for word, and follow one of the same role: who speaks does not change."""
    seen: set[bytes] = set()
    repeated: set[int] = set()
    before = ""
    for number, entry in enumerate(entries):
        if number in gone:
            continue
        if entry.is_plain:
            written = body[slice(*entry.place)]
            if written in seen and entry.role == before and _CACHE_MARK not in written:
                repeated.add(number)
                continue
            seen.add(written)
        before = entry.role
    return repeated


def _repeated_results(body: bytes, protocol: str, entries: Sequence[Entry], gone: set[int]) -> list[_Edit]:
    """Results whose content was there already: the first stays, the later ones say which it was."""
    first: dict[bytes, str] = {}
    edits = []
    for number, entry in enumerate(entries):
        if number in gone:
            continue
        for result in entry.results:
            content = bytes(result.content)
            if len(content) < LEAST_REPEATED or _CACHE_MARK in content:
                continue
            if content not in first:
                first[content] = result.call_id
                continue
            begin, end = _content_place(body, protocol, entry, result)
            edits.append(_Edit(begin, end, _reference(first[content])))
    return edits


def _content_place(body: bytes, protocol: str, entry: Entry, result: Result) -> Place:
    """Raises NotUnderstood."""
    place = entry.place
    if result.block >= 0:
        place = elements(body, _member(body, place, "content"))[result.block]
    return _member(body, place, result_member(protocol))


def _member(body: bytes, place: Place, name: str) -> Place:
    start, end = place
    found = [at for each, at in members(body[start:end], DEFAULT_LIMITS.json_keys) if each == name]
    if len(found) != 1:
        raise NotUnderstood("repeated_key")
    return start + found[0][0], start + found[0][1]


def _reference(call_id: str) -> bytes:
    is_short = 0 < len(call_id) <= _LONGEST_ID and call_id.isascii() and call_id.isprintable()
    told = f"the result of {call_id}" if is_short else "an earlier result"
    return msgspec.json.encode(f"[The same as {told}, above]")
