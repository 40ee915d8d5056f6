"""Events of an answer that are held back, the texts that run through them, and what is cut out of those. Pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice

from pointsman.routing.answer_search import TextSearch
from pointsman.routing.answer_texts import AnswerText
from pointsman.routing.redaction import REDACTED
from pointsman.wire.json_strings import encoded_spans, merged, string_spans, utf8
from pointsman.wire.stream_events import EventData


class HeldEvent:
    """One that is held. `pending`: parts of its texts that are not certain."""

    __slots__ = ("cuts", "data", "pending", "raw")

    def __init__(self, raw: bytes, data: EventData) -> None:
        self.raw = raw
        self.data = data
        self.pending = 0
        self.cuts: dict[int, list[tuple[int, int, bool]]] = {}
        """By string: what goes, in bytes of UTF-8, and whether it is replaced here or goes with what went before."""

    def bytes(self) -> bytes:
        """As it goes on."""
        if not self.cuts:
            return self.raw
        strings = string_spans(self.data.text)
        edits = []
        for number, cuts in self.cuts.items():
            begin, end = strings[number]
            spans = encoded_spans(self.data.text[begin:end], [(first, last) for first, last, _ in cuts])
            if len(spans) != len(cuts):  # too many escapes to tell parts apart
                cuts = [(0, 0, any(marked for _, _, marked in cuts))]
            for (first, last), (_, _, marked) in zip(spans, cuts, strict=True):
                edits.append((begin + first, begin + last, REDACTED if marked else b""))
        made: list[bytes] = []
        at = 0
        for first, last, by in sorted(edits):
            made += (self.raw[at : self.data.place(first)], by)
            at = self.data.place(last)
        return b"".join((*made, self.raw[at:]))


class Part:
    """What one event says of a text."""

    __slots__ = ("begin", "end", "event", "number", "value")

    def __init__(self, event: HeldEvent, text: AnswerText, begin: int) -> None:
        self.event = event
        self.number = text.number
        self.value = text.value
        self.begin = begin
        self.end = begin + len(text.value)


class Block:
    """One text, as far as it is held."""

    __slots__ = ("_covered", "_parts", "has_ended", "is_fixed", "length", "place", "search")

    def __init__(self, search: TextSearch, text: AnswerText) -> None:
        self.search = search
        self.place = text.place
        self.is_fixed = text.is_fixed
        self._parts: deque[Part] = deque()
        self.length = 0
        self._covered = -1
        """Up to here a match that was replaced goes."""
        self.has_ended = False

    def add(self, part: Part) -> None:
        """Hold the part's event until it is certain what matches in it."""
        part.event.pending += 1
        self._parts.append(part)
        self.length = part.end

    def let_go(self) -> None:
        """Of the parts in which that is certain."""
        while self._parts and self._parts[0].end <= self.search.base:
            self._parts.popleft().event.pending -= 1

    def cut(self, spans: Sequence[tuple[int, int]]) -> None:
        """Replace these in the parts, the mark where each begins."""
        if not spans:
            return
        parts = list(self._parts)
        ends = [part.end for part in parts]
        for begin, end in merged(spans):
            marked = begin > self._covered
            first = max(begin, self._covered)
            for part in islice(parts, bisect_right(ends, first), None):
                if part.begin >= end:
                    break
                start, stop = max(first, part.begin) - part.begin, min(end, part.end) - part.begin
                lengths = len(utf8(part.value[:start])), len(utf8(part.value[:stop]))
                part.event.cuts.setdefault(part.number, []).append((*lengths, marked))
                marked = False
            self._covered = max(self._covered, end)
