"""What rules make of an answer that is an event stream: which events may go on, and how changed. Pure, sans I/O.

Where rules block or redact, an event goes on when all text in it is certain (`answer_search`) and all events before it
went. It is the events that decide, and never which reads brought them.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from pointsman.core.errors import MalformedRequest
from pointsman.core.policy import Blocked, Effect, PolicyHit, Rule
from pointsman.routing.answer_search import Found, TextSearch
from pointsman.routing.answer_texts import AnswerText, Ends, Key, answer_texts, repeats_text
from pointsman.routing.held_events import Block, HeldEvent, Part
from pointsman.routing.policy import MOST_BYTES, UNREADABLE, CompiledPolicy, Hits
from pointsman.routing.request_tools import ToolPlace, tools_called
from pointsman.routing.text_patterns import PatternSet
from pointsman.wire.json_strings import read_document
from pointsman.wire.stream_events import EventCutter, EventData, Unreadable

MOST_HELD = MOST_BYTES
"""Bytes of an answer that are held at once, and of one event; beyond it nothing more of the answer passes."""
LEAST_STEPS = 4
"""What reading a byte of JSON costs, in open steps of patterns: 256 KiB are two milliseconds."""
_EVENT_WORK = 2_500
"""The same of an event by itself, however short: 25 µs."""
_EVENT_BYTES = 512
"""Of memory, for each event that is held, besides what it is made of."""
_MOST_EVENTS = 32_768
"""That are held at once."""
_MOST_TEXTS = 4_096
"""Of one answer, each of which costs a kilobyte."""
_DONE = b"[DONE]"

Tell = Callable[[PolicyHit], None]


class StreamedAnswer:
    """An answer that is an event stream."""

    def __init__(
        self, compiled: CompiledPolicy, tell: Tell, *, holds: bool, longest: int | None, most: int = MOST_HELD
    ) -> None:
        self._compiled = compiled
        self._tell = tell
        self.holds = holds
        self._longest = longest
        self._most = most
        self._cutter = EventCutter()
        self._queue: deque[HeldEvent] = deque()
        self._held = 0
        self._unsettled = 0
        """Characters that are still to be searched, or again."""
        self._blocks: dict[Key, Block] = {}
        self._names: dict[Key, str] = {}
        self._hits = Hits(compiled)
        self._told = 0
        self._redacts = holds and redacts(compiled)
        self._is_blind = False

    @property
    def held(self) -> int:
        """Bytes that it has in memory."""
        kept = self._held + len(self._queue) * _EVENT_BYTES if self.holds else self._unsettled
        return kept + len(self._cutter)

    def work(self, data: bytes, *, last: bool) -> int:
        """See `proxy.stages.BodyFilter`: as if each two lines were an event, and all texts ended now."""
        if self._is_blind:
            return 0
        steps = max(LEAST_STEPS, self._compiled.steps)
        events = (data.count(b"\n") + data.count(b"\r")) // 2 + 1
        size = len(self._cutter) + len(data) + self._unsettled
        return size * steps + events * (_EVENT_WORK + (self._longest or 0) * self._compiled.steps)

    def receive(self, data: bytes) -> bytes:
        """Raises Blocked."""
        if self._is_blind:
            return data
        passed: list[bytes] = []
        try:
            for raw in self._cutter.receive(data):
                self._take(raw, passed)
            if len(self._cutter) > self._most:
                raise unsearchable(f"an event is larger than {self._most} bytes")
        except Blocked as blocked:
            self._stop(blocked, passed)
        return b"".join(passed) if self.holds else data

    def finish(self, *, is_whole: bool = True) -> bytes:
        """Raises Blocked. `is_whole`: False for what was cut; the event that it was cut in goes."""
        if self._is_blind:
            return b""
        passed: list[bytes] = []
        rest = self._cutter.rest()
        try:
            if rest and is_whole:
                self._take(rest, passed)
            self._end(None)
            self._let_go(passed)
        except Blocked as blocked:
            self._stop(blocked, passed)
        return b"".join(passed)

    def _stop(self, blocked: Blocked, passed: list[bytes]) -> None:
        self._queue.clear()
        self._blocks.clear()
        self._cutter, self._held, self._unsettled = EventCutter(), 0, 0
        self._is_blind = True
        if self.holds:
            raise Blocked(blocked.told, b"".join(passed)) from None
        self._tell(PolicyHit(UNREADABLE, Effect.FLAG, "", _strongest(self._compiled.rules)))

    def _take(self, raw: bytes, passed: list[bytes]) -> None:
        if len(raw) > self._most:
            raise unsearchable(f"an event is larger than {self._most} bytes")
        try:
            event = HeldEvent(raw, EventData(raw))
        except Unreadable:
            raise unsearchable("it is no event stream") from None
        if self.holds:
            self._queue.append(event)
            self._held += len(raw)
        text = event.data.text.strip(b" \t")
        if text == _DONE:
            self._end(None)
        elif text:
            self._look(event, _read(event.data.text))
        self._let_go(passed)
        if self._held > self._most or len(self._queue) > _MOST_EVENTS:
            raise unsearchable(f"more than {self._most} bytes of it would have to be held")

    def _let_go(self, passed: list[bytes]) -> None:
        while self._queue and not self._queue[0].pending:
            event = self._queue.popleft()
            self._held -= len(event.raw)
            passed.append(event.bytes())

    def _look(self, event: HeldEvent, value: dict[str, Any]) -> None:
        try:
            texts = answer_texts(value)
            if self._compiled.tools:
                self._look_for_tools(value, texts)
            if self._redacts and repeats_text(value):
                raise unsearchable("its logprobs repeat the text")
        except RecursionError:
            raise unsearchable("it is nested too deeply") from None
        if self._compiled.patterns is not None:
            for text in texts:
                if text.value:
                    self._read_text(event, text, self._compiled.patterns)
            self._end(Ends(value))

    def _look_for_tools(self, value: dict[str, Any], texts: list[AnswerText]) -> None:
        calls = [each for each in tools_called(value) if any(each.names)]
        for text in texts:
            if text.is_fixed and text.key is not None:  # a name that comes in parts
                before = self._names.get(text.key, "")
                if text.value and before and before != text.value:
                    calls.append(ToolPlace((before + text.value,), text.place))
                    self._names[text.key] = before + text.value
                elif len(self._names) < _MOST_TEXTS:
                    self._names[text.key] = text.value
        for call in calls:
            for tool_rule in self._compiled.tools:
                if tool_rule.matches(call):
                    self._hit(tool_rule.rule, call.place)
        self._refuse()

    def _read_text(self, event: HeldEvent, text: AnswerText, patterns: PatternSet) -> None:
        block = self._blocks.get(text.key) if text.key is not None else None
        if block is None:
            search = TextSearch(
                patterns, self._compiled.by_number.keys(), self._longest, is_arguments=text.is_arguments
            )
            block = Block(search, text)
            if text.key is not None:
                if len(self._blocks) >= _MOST_TEXTS:
                    raise unsearchable(f"it has more than {_MOST_TEXTS} texts")
                self._blocks[text.key] = block
        elif block.has_ended:
            raise unsearchable("a text goes on behind its end")
        if self.holds:
            block.add(Part(event, text, block.length))
        before = block.search.length
        found = block.search.add(text.value)
        is_full = not self.holds and block.search.length > self._most
        if text.key is None or is_full:
            found += block.search.settle(is_end=True)
        self._unsettled += block.search.length - before
        self._found(block, found)

    def _end(self, ends: Ends | None) -> None:
        """Of texts; None: of all."""
        if ends is None or ends.all or ends.index is not None:
            for key, block in self._blocks.items():
                if not block.has_ended and (ends is None or ends.end(key)):
                    block.has_ended = True
                    self._unsettled -= block.search.length
                    self._found(block, block.search.settle(is_end=True))

    def _found(self, block: Block, found: list[Found]) -> None:
        cuts = []
        for number, begin, end in sorted(found, key=_by_place):
            rule = self._compiled.by_number[number]
            self._hit(rule, block.place)
            if rule.effect is Effect.REDACT and not block.is_fixed:
                cuts.append((begin, end))
        self._refuse()
        if self.holds:
            block.cut(cuts)
            block.let_go()

    def _hit(self, rule: Rule, place: str) -> None:
        self._hits.add(rule, place)
        for hit in self._hits.all[self._told :]:
            self._tell(hit)
        self._told = len(self._hits.all)

    def _refuse(self) -> None:
        if self._hits.blocked_by:
            raise refused_by(self._hits.blocked_by)


def _by_place(found: Found) -> tuple[int, int]:
    return found[1], found[0]


def _strongest(rules: Iterable[Rule]) -> Effect:
    """What would become of an answer that cannot be searched."""
    return Effect.BLOCK if any(rule.effect is not Effect.FLAG for rule in rules) else Effect.FLAG


def unsearchable(reason: str) -> Blocked:
    """For an answer that cannot be searched where a rule would block or redact."""
    return Blocked(f"the answer cannot be searched, and a policy applies: {reason}")


def refused_by(rule: str) -> Blocked:
    """For an answer that a rule refuses."""
    return Blocked(f"the answer is refused by the rule {rule!r} of a policy")


def _read(text: bytes) -> dict[str, Any]:
    try:
        value = read_document(text).value
    except MalformedRequest:
        value = None
    if type(value) is not dict:
        raise unsearchable("an event is not the JSON that it should be")
    return value


def redacts(compiled: CompiledPolicy) -> bool:
    """Whether any of its rules does."""
    return any(rule.effect is Effect.REDACT for rule in compiled.rules)
