"""What an account's rules make of an answer: which of them hold it back, and which only look at it. Pure, sans I/O.

Owns answers that are one JSON text; `streamed_answer` has those that are event streams.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from pointsman.core.policy import Effect, PolicyHit, Rule
from pointsman.routing.answer_texts import repeats_text
from pointsman.routing.pattern_length import longest_match
from pointsman.routing.policy import CompiledPolicy, Unsearchable, evaluate
from pointsman.routing.streamed_answer import (
    LEAST_STEPS,
    MOST_HELD,
    StreamedAnswer,
    Tell,
    redacts,
    refused_by,
    unsearchable,
)
from pointsman.wire.json_strings import read_document

MOST_WORK = 100_000_000
"""Bytes times steps of patterns that are searched at once: a tenth of a second or two of a thread."""
_MOST_WORK_OFTEN = 1_000_000
"""The same, of what is searched again with each event."""


class Filter(Protocol):
    """See `proxy.stages.BodyFilter`."""

    holds: bool

    @property
    def held(self) -> int: ...
    def work(self, data: bytes, *, last: bool) -> int: ...
    def receive(self, data: bytes) -> bytes: ...
    def finish(self, *, is_whole: bool = True) -> bytes: ...


def split_rules(compiled: CompiledPolicy) -> tuple[CompiledPolicy | None, CompiledPolicy | None]:
    """Those that hold an answer, and those that only look at it."""
    if not compiled.is_enforced:
        return None, compiled
    return _only(compiled, {Effect.BLOCK, Effect.REDACT}), _only(compiled, {Effect.FLAG})


def _only(compiled: CompiledPolicy, effects: set[Effect]) -> CompiledPolicy | None:
    rules = tuple(rule for rule in compiled.rules if rule.effect in effects)
    if not rules:
        return None
    by_number = {number: rule for number, rule in compiled.by_number.items() if rule.effect in effects}
    tools = tuple(each for each in compiled.tools if each.rule.effect in effects)
    patterns = compiled.patterns if by_number else None
    return replace(compiled, rules=rules, tools=tools, by_number=by_number, patterns=patterns)


def most_of(compiled: CompiledPolicy) -> int:
    """Bytes of an answer that are held: fewer where the patterns may take long."""
    return min(MOST_HELD, MOST_WORK // max(1, compiled.steps))


def longest_of(compiled: CompiledPolicy) -> int | None:
    """What the longest match of any of its patterns may have, in characters; None to search texts at their ends."""
    longest = 0
    for rule in compiled.by_number.values():
        one = longest_match(rule.pattern)
        if one is None:
            return None
        longest = max(longest, one)
    return longest if longest * compiled.steps <= _MOST_WORK_OFTEN else None


class AnswerRules:
    """The rules of an account's policies that are about the same answers, made ready once."""

    __slots__ = ("effects", "holding", "longest", "looking")

    def __init__(self, policies: Sequence[CompiledPolicy]) -> None:
        parts = [split_rules(compiled) for compiled in policies]
        self.holding = next((holding for holding, _ in parts if holding is not None), None)
        """Those that block or redact; at most one policy is enforced."""
        self.looking = [looking for _, looking in parts if looking is not None]
        self.longest = {id(each): longest_of(each) for each in (self.holding, *self.looking) if each is not None}
        self.effects = [_effects(compiled.rules) for compiled in policies]
        """Of each policy, in the words of `x-pointsman-policy`."""

    def filter(self, *, is_stream: bool, is_coded: bool, tell: Callable[[CompiledPolicy, PolicyHit], None]) -> Filter:
        """For one answer. `is_coded`: with a content coding, which nobody here undoes."""
        filters: list[Filter] = []
        if not is_coded:
            filters = [self._one(each, partial(tell, each), is_stream=is_stream, holds=False) for each in self.looking]
        if self.holding is not None:
            if is_coded:
                return RefusedAnswer("it is compressed")
            filters.append(self._one(self.holding, partial(tell, self.holding), is_stream=is_stream, holds=True))
        return filters[0] if len(filters) == 1 else InTurn(filters)

    def _one(self, compiled: CompiledPolicy, tell: Tell, *, is_stream: bool, holds: bool) -> Filter:
        most = most_of(compiled)
        if is_stream:
            return StreamedAnswer(compiled, tell, holds=holds, longest=self.longest[id(compiled)], most=most)
        return BufferedAnswer(compiled, tell, holds=holds, most=most)


def _effects(rules: Iterable[Rule]) -> str:
    given = {rule.effect for rule in rules}
    return ",".join(effect.value for effect in Effect if effect in given)


class RefusedAnswer:
    """For what cannot be searched at all."""

    holds = True
    held = 0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def work(self, data: bytes, *, last: bool) -> int:
        """None."""
        return 0

    def receive(self, data: bytes) -> bytes:
        """Raises Blocked."""
        raise unsearchable(self._reason)

    def finish(self, *, is_whole: bool = True) -> bytes:
        """Raises Blocked."""
        raise unsearchable(self._reason)


class InTurn:
    """An answer through several: whoever only looks sees it as it came."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters
        self.holds = any(each.holds for each in filters)

    @property
    def held(self) -> int:
        """Bytes that they have in memory."""
        return sum(each.held for each in self._filters)

    def work(self, data: bytes, *, last: bool) -> int:
        """See `proxy.stages.BodyFilter`."""
        return sum(each.work(data, last=last) for each in self._filters)

    def receive(self, data: bytes) -> bytes:
        """Raises Blocked."""
        for each in self._filters:
            data = each.receive(data)
        return data

    def finish(self, *, is_whole: bool = True) -> bytes:
        """Raises Blocked."""
        rest = b""
        for each in self._filters:
            rest = each.finish(is_whole=is_whole)
        return rest


class BufferedAnswer:
    """An answer that is one JSON text; held whole where a rule blocks or redacts."""

    def __init__(self, compiled: CompiledPolicy, tell: Tell, *, holds: bool, most: int = MOST_HELD) -> None:
        self._compiled = compiled
        self._most = most
        self._tell = tell
        self.holds = holds
        self._body = bytearray()
        self._is_too_large = False

    @property
    def held(self) -> int:
        """Bytes that it has in memory."""
        return len(self._body)

    def work(self, data: bytes, *, last: bool) -> int:
        """See `proxy.stages.BodyFilter`: it is read and searched when it is whole."""
        return (len(self._body) + len(data)) * max(LEAST_STEPS, self._compiled.steps) if last else 0

    def receive(self, data: bytes) -> bytes:
        """Raises Blocked for what is too large."""
        if self._is_too_large:
            return b"" if self.holds else data
        self._body += data
        if len(self._body) > self._most:
            self._is_too_large, self._body = True, bytearray()
            if self.holds:
                raise unsearchable(f"it is larger than {self._most} bytes")
        return b"" if self.holds else data

    def finish(self, *, is_whole: bool = True) -> bytes:
        """Raises Blocked."""
        body, self._body = bytes(self._body), bytearray()
        if not body or not is_whole:
            return b""
        try:
            decision = evaluate(self._compiled, body)
        except (Unsearchable, RecursionError):
            raise unsearchable("it is not the JSON that it should be") from None
        for hit in decision.hits:
            self._tell(hit)
        if not self.holds:
            return b""
        if decision.blocked_by:
            raise refused_by(decision.blocked_by)
        if redacts(self._compiled) and repeats_text(read_document(body).value):
            raise unsearchable("its logprobs repeat the text")
        return body if decision.body is None else decision.body
