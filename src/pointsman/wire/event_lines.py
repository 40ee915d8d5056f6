"""Lines of an event stream, one at a time: what goes from a runner to its gateway. Sans I/O.

Lines end in LF, CR or CRLF. Empty ones, which end events, are not lines here; comments are. Which reads brought the
bytes makes no difference.
"""

import re

_END = re.compile(rb"[\r\n]")
_DONE = re.compile(rb"data:[ \t]*\[DONE\][ \t]*")


class LineTooLong(Exception):
    """A line is longer than the bound. The stream cannot be told further."""


def is_done(line: bytes) -> bool:
    """Whether a line is the one that ends a stream of the chat API."""
    return _DONE.fullmatch(line) is not None


class EventEnds:
    """Says what goes behind each line of a stream whose empty lines were left out.

    A field beside an event's data (`event`, `id`) stays with it: some readers take one that stands alone for an event
    that should have data, and fail.
    """

    __slots__ = ("_is_open",)

    def __init__(self) -> None:
        self._is_open = False

    def after(self, line: bytes) -> bytes:
        """One line's end, and the event's where it ends there."""
        if line.partition(b":")[0] == b"data":
            self._is_open = False
        elif not line.startswith(b":"):
            self._is_open = True
        return b"\n" if self._is_open else b"\n\n"


class EventLines:
    """Takes bytes as they come; gives lines when they are asked for."""

    __slots__ = ("_held", "_limit", "_searched")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of one line, its end not counted."""
        self._limit = limit
        self._held = bytearray()
        self._searched = 0
        """Up to here there is no end of a line: a long line is not searched again with each read."""

    def receive(self, data: bytes) -> None:
        """Hold what one read delivered."""
        self._held += data

    def next_line(self) -> bytes | None:
        """The next line without its end; None while there is no whole one. Raises LineTooLong."""
        held = self._held
        while (match := _END.search(held, self._searched)) is not None:
            # The LF of a CRLF ends a second, empty line, and so never shows.
            line = bytes(held[: match.start()])
            del held[: match.end()]
            self._searched = 0
            if len(line) > self._limit:
                raise LineTooLong
            if line:
                return line
        self._searched = len(held)
        if len(held) > self._limit:
            raise LineTooLong
        return None

    def rest(self) -> bytes:
        """What the stream ended in without an end of its line."""
        return bytes(self._held)
