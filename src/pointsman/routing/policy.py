"""What an account's rules say of one request: which match where, whether it may pass, and with which body. Pure.

Rules are compiled once for whoever sends, and where to. Texts of the whole body are searched at once first, for all
patterns; only when something was found is each text looked at by itself. So a body that holds nothing costs little,
and no spelling of JSON makes a difference: it is always its canonical form that is searched.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from pointsman.core.caller import Caller
from pointsman.core.errors import MalformedRequest
from pointsman.core.policy import Effect, Policy, PolicyHit, Rule, RuleScope, Side
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.routing.redaction import Places, without
from pointsman.routing.request_text import (
    Text,
    TooManyStrings,
    hidden_texts,
    is_in_tokens,
    parts_of_groups,
    pointer,
    texts_of,
)
from pointsman.routing.request_tools import ToolPlace, tools_called, tools_of
from pointsman.routing.text_patterns import PatternSet, folded
from pointsman.wire.headers import is_utf8
from pointsman.wire.json_strings import Document, Span, flat_text, may_hold_controls, read_document, utf8
from pointsman.wire.output_bound import prompts_in

MOST_BYTES = 4 * 1024 * 1024
"""Of a body that is searched. Beyond it a request is refused where a rule blocks or redacts."""
MOST_BRACKETS = 200_000
"""Braces and brackets, and strings, in a body that is searched: each costs up to half a microsecond."""
MOST_HITS = 32
"""That one request has; which rules have matched is told in any case."""
UNREADABLE = "unreadable-body"
"""Stands for a rule, in a dry run: the policy, enforced, would refuse a body that cannot be searched."""
_BOUNDS: Mapping[str, tuple[str, ...]] = {
    P.CHAT_COMPLETIONS: ("max_tokens", "max_completion_tokens"),
    P.COMPLETIONS: ("max_tokens",),
    P.RESPONSES: ("max_output_tokens",),
    P.MESSAGES: ("max_tokens",),
}
"""What bounds the output in a dialect; dialects that are not here have none."""
_ALL_BOUNDS = frozenset(("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_new_tokens"))
"""What some upstream may take for such a bound, llama.cpp's and vLLM's own included."""
_TIMES = ("n", "best_of")
_MULTIPLIED = frozenset((*_TIMES, "prompt"))
"""What asks for several answers, each of which may be as long."""


@dataclass(frozen=True, slots=True)
class AccountPatterns:
    """The patterns of a policy, compiled once for all who it is about."""

    numbers: Mapping[str, int]
    """By rule."""
    patterns: PatternSet | None


def compile_patterns(policy: Policy, side: Side) -> AccountPatterns:
    """A thousand take 30 ms."""
    rules = [rule for rule in policy.rules if rule.side is side and rule.pattern]
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    return AccountPatterns(numbers, PatternSet([rule.pattern for rule in rules]) if rules else None)


@dataclass(frozen=True, slots=True)
class ToolRule:
    rule: Rule
    is_denied: Callable[[str], bool]
    is_allowed: Callable[[str], bool] | None

    def matches(self, tool: ToolPlace) -> bool:
        if not tool.names:
            return True  # whatever it is: it cannot be told, so it is not allowed
        if any(self.is_denied(folded(name)) for name in tool.names):
            return True
        return self.is_allowed is not None and not all(self.is_allowed(name) for name in tool.names)


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """The rules of one side that are about one caller, route and dialect."""

    version: int
    is_enforced: bool
    rules: tuple[Rule, ...]
    closing: tuple[Rule, ...]
    """Those that match whatever is sent."""
    fields: tuple[Rule, ...]
    denied_names: frozenset[str]
    """Of fields, folded, for all of these rules."""
    bounds: tuple[Rule, ...]
    """Of output."""
    tools: tuple[ToolRule, ...]
    patterns: PatternSet | None
    by_number: Mapping[int, Rule]
    """The rules that have a pattern, by its place."""
    dialect: str
    side: Side = Side.REQUEST

    @property
    def steps(self) -> int:
        """What of its patterns a hostile text may keep busy (`text_patterns.open_steps`)."""
        return 0 if self.patterns is None else self.patterns.steps

    @property
    def refuses_unread(self) -> bool:
        """Whether a body that cannot be searched must not pass."""
        return self.is_enforced and any(rule.effect is not Effect.FLAG for rule in self.rules)


def is_about(scope: RuleScope, caller: Caller, route: str, dialect: str) -> bool:
    """Whether a rule of this scope is about such a request."""
    return (
        (not scope.routes or route in scope.routes)
        and (not scope.keys or caller.shown_name in scope.keys)
        and (not scope.dialects or dialect in scope.dialects)
    )


def compile_policy(
    policy: Policy, patterns: AccountPatterns, caller: Caller, route: str, dialect: str, side: Side = Side.REQUEST
) -> CompiledPolicy | None:
    """The rules that are about such requests; None for none."""
    rules = tuple(rule for rule in policy.rules if rule.side is side and is_about(rule.scope, caller, route, dialect))
    if not rules:
        return None
    tools = tuple(
        ToolRule(
            rule,
            _any_of(rule.denied_tools, folded),
            _any_of(rule.allowed_tools) if rule.allowed_tools else None,
        )
        for rule in rules
        if rule.denied_tools or rule.allowed_tools
    )
    by_number = {patterns.numbers[rule.id]: rule for rule in rules if rule.pattern}
    return CompiledPolicy(
        policy.version,
        policy.is_enforced,
        rules,
        closing=tuple(rule for rule in rules if rule.denies_route),
        fields=tuple(rule for rule in rules if rule.denied_fields),
        denied_names=frozenset(field.casefold() for rule in rules for field in rule.denied_fields),
        bounds=tuple(rule for rule in rules if rule.most_tokens),
        tools=tools,
        patterns=patterns.patterns if by_number else None,
        by_number=by_number,
        dialect=dialect,
        side=side,
    )


def _any_of(names: Iterable[str], fold: Callable[[str], str] = str) -> Callable[[str], bool]:
    """Whether a name, folded, is one of those in which `*` stands for anything."""
    pieces_of = [[fold(piece) for piece in name.split("*")] for name in names]
    exact = frozenset(pieces[0] for pieces in pieces_of if len(pieces) == 1)
    starred = [pieces for pieces in pieces_of if len(pieces) > 1]

    def found(name: str) -> bool:
        return name in exact or any(_fits(name, pieces) for pieces in starred)

    return found


def _fits(name: str, pieces: Sequence[str]) -> bool:
    """The first piece begins it, the last ends it, and the others are found in order in between: in linear time."""
    first, *between, last = pieces
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in between:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say."""

    hits: tuple[PolicyHit, ...] = ()
    blocked_by: str = ""
    """The rule that refuses it; empty when it may pass."""
    body: bytes | None = None
    """What to send in place of the body; None: the body."""

    @property
    def would_block(self) -> str:
        """In a dry run, the rule that would refuse it."""
        return next((hit.rule for hit in self.hits if hit.would is Effect.BLOCK), "")


PASSED = Decision()


class Unsearchable(Exception):
    """A body that cannot be searched where a rule would refuse or change it. The text is fit for its sender."""


class Hits:
    """Gathers what matched, bounded."""

    def __init__(self, compiled: CompiledPolicy) -> None:
        self._is_enforced = compiled.is_enforced
        self._seen: set[str] = set()
        self._places: set[tuple[str, str]] = set()
        self.all: list[PolicyHit] = []
        self.blocked_by = ""

    def has_room_for(self, rule: Rule) -> bool:
        return len(self.all) < MOST_HITS or rule.id not in self._seen

    def add(self, rule: Rule, place: str) -> None:
        if (rule.id, place) in self._places or not self.has_room_for(rule):
            return
        self._seen.add(rule.id)
        self._places.add((rule.id, place))
        self.all.append(PolicyHit(rule.id, rule.effect if self._is_enforced else Effect.FLAG, place, rule.effect))
        if self._is_enforced and rule.effect is Effect.BLOCK and not self.blocked_by:
            self.blocked_by = rule.id


def evaluate(
    compiled: CompiledPolicy,
    body: bytes,
    *,
    generates: bool = True,
    content_type: bytes = b"",
    document: Document | None = None,
) -> Decision:
    """What becomes of a request. `generates`: not of one that only counts tokens, which asks for no output.

    `content_type` goes upstream with the body, and says there in what it is read; `document`: the body's, where it was
    read. Raises Unsearchable.
    """
    hits = Hits(compiled)
    for rule in compiled.closing:
        hits.add(rule, "")
    if hits.blocked_by or len(compiled.closing) == len(compiled.rules):
        return Decision(tuple(hits.all), hits.blocked_by)
    try:
        if not is_utf8(content_type):
            raise MalformedRequest("request body is said to be in another charset than UTF-8")
        new_body = _evaluate(compiled, document or _document(body), body, hits, generates=generates)
    except (MalformedRequest, TooManyStrings) as error:
        reason = error.detail if isinstance(error, MalformedRequest) else "request body holds too many strings"
        if compiled.refuses_unread:
            raise Unsearchable(reason) from None
        would = Effect.BLOCK if any(rule.effect is not Effect.FLAG for rule in compiled.rules) else Effect.FLAG
        return Decision((*hits.all, PolicyHit(UNREADABLE, Effect.FLAG, "", would)))
    if not hits.all:
        return PASSED
    return Decision(tuple(hits.all), hits.blocked_by, None if hits.blocked_by else new_body)


def _document(body: bytes) -> Document:
    if len(body) > MOST_BYTES:
        raise MalformedRequest(f"request body is larger than the {MOST_BYTES} bytes that are searched")
    if len(body) > 3 * MOST_BRACKETS:  # less cannot hold as many
        strings = (body.count(b'"') - body.count(b'\\"')) // 2
        if body.count(b"[") + body.count(b"{") > MOST_BRACKETS or strings > MOST_BRACKETS:
            raise MalformedRequest(f"request body has more than {MOST_BRACKETS} brackets or strings")
    document = read_document(body)
    if type(document.value) is not dict:
        raise MalformedRequest("request body is no JSON object")
    return document


def _evaluate(
    compiled: CompiledPolicy, document: Document, body: bytes, hits: Hits, *, generates: bool
) -> bytes | None:
    request: dict[str, Any] = document.value
    names = {key.casefold(): value for key, value in request.items()}
    if len(names) != len(request):  # some upstreams (Go's) take members in any case, and the last counts
        raise MalformedRequest("request body names a member twice, in different cases")
    if not compiled.denied_names.isdisjoint(names):
        for rule in compiled.fields:
            for field in rule.denied_fields:
                if field.casefold() in names:
                    hits.add(rule, f"/{field}")
    if generates:
        for rule in compiled.bounds:
            place = _beyond(rule.most_tokens, names, compiled.dialect)
            if place is not None:
                hits.add(rule, place)
    if compiled.tools:
        for tool in tools_of(names) if compiled.side is Side.REQUEST else tools_called(request):
            for tool_rule in compiled.tools:
                if tool_rule.matches(tool):
                    hits.add(tool_rule.rule, tool.place)
    if compiled.patterns is None or hits.blocked_by:
        return None
    if is_in_tokens(names):
        raise MalformedRequest("request body gives text as numbers of tokens, which are not searched")
    found = _suspects(compiled, compiled.patterns, document)
    return _search(compiled, found, document, body, hits) if found else None


def _beyond(most: int, names: Mapping[str, Any], dialect: str) -> str | None:
    """Where a request asks for more output than that; empty when it names no bound, None when it does not."""
    own = _BOUNDS.get(dialect)
    if own is None:
        return None
    times = 1
    if not _MULTIPLIED.isdisjoint(names):
        for name in _TIMES:  # of these the larger
            value = names.get(name)
            if value is not None:
                if type(value) is not int or value < 1:
                    return f"/{name}"
                times = max(times, value)
        times *= prompts_in(names.get("prompt"))
    is_bound = False
    for name in _ALL_BOUNDS.intersection(names):
        value = names[name]
        if value is None:
            continue
        if type(value) is not int or value < 1 or value * times > most:
            return f"/{name}"
        is_bound = is_bound or name in own
    return None if is_bound else ""


def _suspects(compiled: CompiledPolicy, patterns: PatternSet, document: Document) -> Set[int]:
    """The patterns that may match some text: all that match all of it at once, in any of its forms."""
    flat = flat_text(document.canonical, has_lines=patterns.has_line_ends)
    hidden = hidden_texts(document.value)
    if hidden:
        flat = b"\n".join((flat, *hidden))
    has_controls = may_hold_controls(document.canonical)  # what is hidden there too
    found = patterns.in_forms(flat, has_controls=has_controls)
    return {number for number in found if number in compiled.by_number} if found else found


def _search(compiled: CompiledPolicy, found: Set[int], document: Document, body: bytes, hits: Hits) -> bytes | None:
    """Look at each text by itself, for what was found in all of them; the body without what is to go."""
    if compiled.patterns is None:
        return None
    texts, places = texts_of(document.value), Places(compiled.patterns)
    cuts: dict[int, list[Span]] = {}

    def note(number: int, text: Text, find: Callable[[], list[Span]]) -> None:
        rule = compiled.by_number[number]
        if rule.effect is not Effect.REDACT:
            if hits.has_room_for(rule):
                hits.add(rule, pointer(text.place))
        elif not text.is_fixed:
            if hits.has_room_for(rule):
                hits.add(rule, pointer(text.place))
            if not (places.are_all_told and text.number in cuts):
                cuts.setdefault(text.number, []).extend(find())

    for text in texts:
        for number in places.found_in(text, found):
            note(number, text, partial(places.in_text, number, text))
    for parts in parts_of_groups(texts):
        for number in places.found_in_parts(parts, found):
            for text, spans in places.in_parts(number, parts):
                note(number, text, partial(list, spans))
    redacting = {number for number in found if compiled.by_number[number].effect is Effect.REDACT}
    for parts in (*([text] for text in texts), *parts_of_groups(texts)):
        if any(part.number in cuts for part in parts) and places.are_left(parts, cuts, redacting):
            cuts |= {part.number: [(0, len(utf8(part.value)))] for part in parts}
    return without(body, cuts) if cuts and compiled.is_enforced else None
