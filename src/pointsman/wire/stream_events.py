"""Single events of an event stream: where each ends, and what its data says. Sans I/O.

Every byte belongs to one event, comments and empty lines included, so that the events joined are the stream. Which
reads brought the bytes makes no difference.
"""

import re
from bisect import bisect_right

_END = rb"(?:\r\n|\n|\r(?!\n))"
_BOUNDARY = re.compile(_END + _END)
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\n|\r|\Z)")
_FIELDS = frozenset((b"data", b"event", b"id", b"retry", b""))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_BOUNDARY = 4


class EventCutter:
    """Takes bytes as they come, and gives whole events."""

    __slots__ = ("_held", "_searched")

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def __len__(self) -> int:
        """Bytes of the event that has not ended yet."""
        return len(self._held)

    def receive(self, data: bytes) -> list[bytes]:
        """The events that end with these bytes. A CR at their end may belong to a CRLF, and waits."""
        held, events, at = self._held, [], 0
        held += data
        search = max(0, self._searched - _LONGEST_BOUNDARY)
        while (match := _BOUNDARY.search(held, max(at, search))) is not None:
            if match.end() == len(held) and held.endswith(b"\r"):
                break
            events.append(bytes(held[at : match.end()]))
            at = match.end()
        if at:
            del held[:at]
        self._searched = len(held)
        return events

    def rest(self) -> bytes:
        """What the stream ended in without an empty line; once."""
        rest, self._held = bytes(self._held), bytearray()
        return rest


class Unreadable(Exception):
    """What is no event stream."""


class EventData:
    """The data of one event, and where it stands in it."""

    __slots__ = ("_begins", "_places", "text")

    def __init__(self, event: bytes) -> None:
        """Raises Unreadable for lines that no event stream has: some client may make another sense of them."""
        lines: list[bytes] = []
        self._begins: list[int] = []
        self._places: list[int] = []
        length = 0
        start = len(_BYTE_ORDER_MARK) if event.startswith(_BYTE_ORDER_MARK) else 0
        for match in _LINE.finditer(event, start):
            name, colon, value = match[1].partition(b":")
            if name not in _FIELDS:
                raise Unreadable
            if name == b"data":
                place = match.start() + len(name) + len(colon)
                if value.startswith(b" "):
                    value, place = value[1:], place + 1
                self._begins.append(length)
                self._places.append(place)
                lines.append(value)
                length += len(value) + 1
        self.text = b"\n".join(lines)
        """Empty where there is none."""

    def place(self, at: int) -> int:
        """Where a byte of the text stands in the event."""
        number = bisect_right(self._begins, at) - 1
        return self._places[number] + at - self._begins[number]
