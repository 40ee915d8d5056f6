"""Searching a text that comes in parts, as if it had come whole: what is certain, and since when. Pure.

A place is certain once as much text has come behind it as the longest match may have, and a character more, since an
accent may still change the last: nothing that comes later makes a match that begins there, or changes one. Without such
a bound it is certain at the end.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Set
from functools import lru_cache
from itertools import accumulate, islice
from unicodedata import category

from pointsman.routing.redaction import MOST_SPANS
from pointsman.routing.text_patterns import PatternSet, plain
from pointsman.wire.json_strings import Span, encoded_spans, unescaped, utf8

MOST_WINDOW = 1_024
"""Characters of the longest match beyond which a text is searched at its end: shorter ones are searched again with
each part."""
_CONTINUED = bytes(range(0x80, 0xC0))
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

Found = tuple[int, int, int]
"""A pattern, and where it begins and ends in the text, in characters of all that came."""


@lru_cache(maxsize=4096)
def _begins(char: str) -> bool:
    """Whether a character is one to a reader, whatever stands before it: not invisible, not part of another."""
    made = plain(char)
    return bool(made) and category(made[0])[0] != "M" and not "\u1160" <= made[0] <= "\u11ff"


def certain(text: str, longest: int) -> int:
    """Up to where it is certain what matches; at the beginning of a character."""
    needed = longest + 1
    if text.isascii():
        return max(0, len(text) - needed)
    for at in range(len(text) - 1, -1, -1):
        if _begins(text[at]):
            needed -= 1
            if not needed:
                return at
    return 0


class _Whole:
    """A text in which two halves of a character, that came apart, are one."""

    __slots__ = ("_pairs", "text")

    def __init__(self, text: str) -> None:
        self._pairs: list[int] = []
        self.text = text
        if not text.isascii() and _PAIR.search(text):
            self._pairs = [match.start() - number for number, match in enumerate(_PAIR.finditer(text))]
            self.text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)

    def origin(self, at: int) -> int:
        """Where it was."""
        return at + bisect_left(self._pairs, at) if self._pairs else at

    def place(self, origin: int) -> int:
        """Where that is now."""
        if not self._pairs:
            return origin
        return origin - bisect_left([pair + number for number, pair in enumerate(self._pairs)], origin)


class TextSearch:
    """One text. `longest`: of what is searched for; None where the text is searched at its end."""

    __slots__ = (
        "_after",
        "_after_plain",
        "_before",
        "_before_plain",
        "_held",
        "_is_arguments",
        "_left",
        "_longest",
        "_looks_other",
        "_patterns",
        "_wanted",
        "base",
        "length",
    )  # fmt: skip

    def __init__(
        self, patterns: PatternSet, wanted: Set[int], longest: int | None, *, is_arguments: bool = False
    ) -> None:
        self._patterns = patterns
        self._wanted = wanted
        self._is_arguments = is_arguments
        self._longest = None if is_arguments or longest is None or longest > MOST_WINDOW else longest
        self._before = self._before_plain = ""
        self._after: dict[int, int] = {}
        """Where the last match of each pattern ended, of all characters; and the same in what the text looks like."""
        self._after_plain: dict[int, int] = {}
        self._looks_other = False
        """Whether anything in it is not as it looks."""
        self._left = MOST_SPANS
        self.base = 0
        """Characters that are certain."""
        self._held: list[str] = []
        """Those that are not."""
        self.length = 0
        """How many that are."""

    def add(self, part: str) -> list[Found]:
        """What is found for certain now."""
        self._held.append(part)
        self.length += len(part)
        return [] if self._longest is None else self.settle(is_end=False)

    def settle(self, *, is_end: bool) -> list[Found]:
        """What is found; at the end of the text, in all of it."""
        held = "".join(self._held)
        whole = _Whole(held)
        text = whole.text
        limit = len(text) if is_end or self._longest is None else certain(text, self._longest)
        if not limit:
            return []
        spans = self._as_it_is(text, limit, whole)
        made = text if text.isascii() else plain(text)
        self._looks_other = self._looks_other or made != text
        if self._looks_other:
            spans += self._as_it_looks(text, made, limit, whole)
        else:
            self._after_plain.update(self._after)
        if self._is_arguments and "\\" in text:
            spans += self._unescaped(text)
        found = [
            (number, self.base + whole.origin(begin), self.base + whole.origin(end)) for number, begin, end in spans
        ]
        self._before = text[limit - 1]
        self._before_plain = plain(text[:limit])[-1:] or self._before_plain
        gone = whole.origin(limit)
        self.base += gone
        self._held, self.length = [held[gone:]], len(held) - gone
        return found

    def _as_it_is(self, text: str, limit: int, whole: _Whole) -> list[Found]:
        after = {number: whole.place(at - self.base) for number, at in self._after.items() if at > self.base}
        found = self._matches(self._before + text, len(self._before), limit, after)
        for number, _, end in found:
            self._after[number] = self.base + whole.origin(end)
        return found

    def _as_it_looks(self, text: str, made: str, limit: int, whole: _Whole) -> list[Found]:
        """From the first to the last character that has a part in a match."""
        if not self._patterns.matching(utf8(self._before_plain + made)) & self._wanted:
            return []
        starts = [0, *(at for at in range(1, len(text)) if _begins(text[at]))]
        ends = [*starts[1:], len(text)]
        lengths = [len(plain(text[begin:end])) for begin, end in zip(starts, ends, strict=True)]
        places = [0, *accumulate(lengths)]
        if places[-1] != len(made):  # nobody knows what stands where
            starts, ends, places = [0], [len(text)], [0, len(made)]
        after = {
            number: places[bisect_left(starts, whole.place(at - self.base))]
            for number, at in self._after_plain.items()
            if at > self.base
        }
        cut = places[bisect_left(starts, limit)]
        found: list[Found] = []
        for number, begin, end in self._matches(self._before_plain + made, len(self._before_plain), cut, after):
            first, last = bisect_right(places, begin, 0, len(starts)) - 1, bisect_left(places, end) - 1
            found.append((number, starts[first], ends[last]))
            self._after_plain[number] = self.base + whole.origin(ends[last])
        return found

    def _unescaped(self, text: str) -> list[Found]:
        """In JSON within a string, of which all is there."""
        encoded, found = utf8(text), []
        undone = unescaped(encoded)
        for number in self._patterns.in_forms(undone) & self._wanted:
            spans = encoded_spans(encoded, self._taken(number, undone, 0)) or [(0, len(encoded))]
            found += [(number, _begin(encoded, begin), _end(encoded, end)) for begin, end in spans]
        return found

    def _matches(self, text: str, before: int, limit: int, after: Mapping[int, int]) -> list[Found]:
        """Those that begin before the limit; places are told without what stands before."""
        encoded, found = utf8(text), []
        is_ascii = len(encoded) == len(text)
        for number in self._patterns.matching(encoded) & self._wanted:
            begin_at = before + after.get(number, 0)
            start = begin_at if is_ascii else len(utf8(text[:begin_at]))
            for first, last in self._taken(number, encoded, start):
                begin = (first if is_ascii else _begin(encoded, first)) - before
                if begin >= limit:
                    break
                found.append((number, begin, (last if is_ascii else _end(encoded, last)) - before))
                self._left -= 1
        return found

    def _taken(self, number: int, text: bytes, start: int) -> list[Span]:
        """In the end, all of a text is what is found."""
        if self._left > 0:
            spans = list(islice(self._patterns.spans(number, text, start), self._left + 1))
            if len(spans) <= self._left:
                return spans
        return [(start, len(text))] if start < len(text) else []


def _begin(encoded: bytes, at: int) -> int:
    """The number of the character that a byte is in; a place may be within one that is half of another."""
    return _end(encoded, at) - (at < len(encoded) and encoded[at] in _CONTINUED)


def _end(encoded: bytes, at: int) -> int:
    return len(encoded[:at].translate(None, _CONTINUED))
