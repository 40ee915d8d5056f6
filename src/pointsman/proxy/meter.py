"""Watching a response for its token counts, without delaying or changing it."""

import zlib
from typing import Literal

from pointsman.wire.finish_reason import find_finish_reason, last_event_of_responses
from pointsman.wire.usage import TokenUsage, find_usage, has_finish, has_terminal_event

_KEPT_BYTES = 4 * 1024
_SMALL = 1024
_GZIP = b"\x1f"  # the first byte tells it from any text
MOST_PACKED = 64 * 1024
_MOST_UNPACKED = 256 * 1024  # takes about 1 ms; a bomb takes no more


class Meter:
    """Keeps the first and the last pieces of a body; reads them once, when asked.

    Usage objects stand at either end in every dialect, so nothing is parsed while the body passes: it holds less
    than 13 KiB. A gzip body, which most SDKs ask for, can only be read from its start: up to `MOST_PACKED` bytes of it
    are kept and unpacked when asked. Other codings, and longer ones, yield nothing.

    `of_responses`: an event stream of that dialect, whose last event says at its beginning why it is the last. It is
    looked for in large pieces alone: in all of them it would cost each event of a stream some 3 % more.
    """

    __slots__ = ("_first", "_last", "_last_event", "_packed", "_previous", "_usage", "of_responses")

    def __init__(self, *, of_responses: bool = False) -> None:
        self._first = b""
        self.of_responses = of_responses
        self._last_event = b""
        self._previous = b""
        self._last = b""
        self._packed: bytearray | None = None
        self._usage: TokenUsage | Literal[False] | None = False
        """False until it has been looked for: two logs ask."""

    def watch(self, data: bytes) -> None:
        """See the next bytes of the body."""
        if len(self._first) < _SMALL:
            if not self._first and data.startswith(_GZIP):
                self._packed = bytearray()
            self._first += data[:_KEPT_BYTES]
        if self._packed is not None:
            self._packed += data
            if len(self._packed) > MOST_PACKED:
                self._packed = None
        if len(data) >= _KEPT_BYTES:
            if self.of_responses:
                self._last_event = last_event_of_responses(self._previous + self._last + data) or self._last_event
            self._previous, self._last = b"", data[-_KEPT_BYTES:]
        elif len(self._last) < _SMALL:
            self._last += data
        else:
            self._previous, self._last = self._last, data

    def usage(self) -> TokenUsage | None:
        """The counts the body reported, if it did. Ask when it has ended."""
        if self._usage is False:
            self._usage = self._find_usage()
        return self._usage

    def _find_usage(self) -> TokenUsage | None:
        self._unpack()
        return find_usage(self._first, self._previous + self._last)

    def finish_reason(self, protocol: str) -> str:
        """Why the model stopped, as it said itself in a dialect; empty for none. Ask when the body has ended."""
        self._unpack()
        return find_finish_reason(self._first, self._last_event + self._previous + self._last, protocol)

    def _unpack(self) -> None:
        """Once: from then on the ends are those of what was packed."""
        if self._packed is None:
            return
        try:
            body = zlib.decompressobj(wbits=31).decompress(self._packed, _MOST_UNPACKED)
        except zlib.error:
            body = b""
        self._first, self._previous, self._last = body[:_KEPT_BYTES], b"", body[-2 * _KEPT_BYTES :]
        self._packed = None

    def finished(self) -> bool:
        """Whether an event stream has said why it ends, or that it does."""
        return has_finish(self._previous + self._last)

    def last_event_passed(self) -> bool:
        """Whether the stream's last event has passed, so that a client that leaves now has all of it."""
        return has_terminal_event(self._previous + self._last)
