"""Where patterns are found in texts, and taking it out of the JSON that they stand in. Pure."""

from collections.abc import Mapping, Sequence, Set
from itertools import islice

from pointsman.routing.request_text import Text
from pointsman.routing.text_patterns import PatternSet, looks_as_it_is
from pointsman.wire.json_strings import Span, encoded_spans, merged, replaced, string_spans, unescaped, utf8

REDACTED = b"[redacted]"
MOST_SPANS = 2_000
"""That are replaced in one body one by one; of what matches beyond it, the whole text is."""


def without(body: bytes, cuts: Mapping[int, list[Span]]) -> bytes:
    """The body with `[redacted]` for parts of its strings, which are given by their numbers."""
    strings = string_spans(body)
    spans: list[Span] = []
    for number, inside in cuts.items():
        begin, end = strings[number]
        spans += [(begin + start, begin + stop) for start, stop in encoded_spans(body[begin:end], merged(inside))]
    return replaced(body, merged(spans), REDACTED)


class Places:
    """Where patterns are found, in bytes of UTF-8. Bounded: in the end, whole texts are what is found."""

    def __init__(self, patterns: PatternSet) -> None:
        self._patterns = patterns
        self._left = MOST_SPANS

    @property
    def are_all_told(self) -> bool:
        """Whether each text is replaced as a whole from now on."""
        return self._left < 0

    def found_in(self, text: Text, wanted: Set[int]) -> Set[int]:
        """Which of some patterns are found in a text, in any of its forms."""
        encoded = utf8(text.value)
        found = self._patterns.in_forms(encoded)
        if text.is_arguments and "\\" in text.value:
            found |= self._patterns.in_forms(unescaped(encoded))
        return found & wanted

    def found_in_parts(self, parts: list[Text], wanted: Set[int]) -> Set[int]:
        """The same for a text that came in parts."""
        return self._patterns.in_forms(_whole(parts)) & wanted

    def in_text(self, number: int, text: Text) -> list[Span]:
        """Each place of a pattern that is found in the text."""
        encoded = utf8(text.value)
        spans = self._spans(number, encoded)
        if text.is_arguments and "\\" in text.value:
            spans += encoded_spans(encoded, self._spans(number, unescaped(encoded)))
        # None: only in a form in which nobody knows what stands where.
        return spans or [(0, len(encoded))]

    def in_parts(self, number: int, parts: list[Text]) -> list[tuple[Text, list[Span]]]:
        """Of a text that came in parts and in which the pattern is found: in each, what of a match is in it."""
        whole = _whole(parts)
        spans = self._spans(number, whole) or [(0, len(whole))]
        found, at = [], 0
        for part in parts:
            end = at + len(utf8(part.value))
            inside = [(max(begin, at) - at, min(stop, end) - at) for begin, stop in spans if begin < end and stop > at]
            if inside:
                found.append((part, inside))
            at = end
        return found

    def are_left(self, parts: Sequence[Text], cuts: Mapping[int, list[Span]], patterns: Set[int]) -> bool:
        """Whether one is still found in a text, in the form that it has for readers, once its cuts are made.

        What is found as it is written says where it stands, and what is found only as it looks does not: beside the
        first the second would stay.
        """
        whole, is_escaped = _whole(parts), any(part.is_arguments and "\\" in part.value for part in parts)
        if not is_escaped and looks_as_it_is(whole):
            return False
        spans, at = [], 0
        for part in parts:
            spans += [(at + begin, at + end) for begin, end in cuts.get(part.number, ())]
            at += len(utf8(part.value))
        begin = 0
        for end, after in [*merged(spans), (len(whole), len(whole))]:
            # Beside it there will be brackets: it neither begins nor ends a line there.
            piece = whole[begin:end].join((b"]" if begin else b"", b"[" if end < len(whole) else b""))
            if not patterns.isdisjoint(self._patterns.in_forms(unescaped(piece) if is_escaped else piece)):
                return True
            begin = after
        return False

    def _spans(self, number: int, text: bytes) -> list[Span]:
        """None when the pattern is not found; all of the text once too many were told."""
        if self._left > 0:
            spans = list(islice(self._patterns.spans(number, text), self._left + 1))
            self._left -= len(spans)
            if self._left >= 0:
                return spans
        return [(0, len(text))]


def _whole(parts: Sequence[Text]) -> bytes:
    return b"".join([utf8(part.value) for part in parts])
