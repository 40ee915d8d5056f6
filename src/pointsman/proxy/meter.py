"""Watching a response for its token counts, without delaying or changing it."""

import zlib
from typing import Literal

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
    """

    __slots__ = ("_first", "_last", "_packed", "_previous", "_usage")

    def __init__(self) -> None:
        self._first = b""
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
        if self._packed is None:
            return find_usage(self._first, self._previous + self._last)
        try:
            body = zlib.decompressobj(wbits=31).decompress(self._packed, _MOST_UNPACKED)
        except zlib.error:
            return None
        return find_usage(body[:_KEPT_BYTES], body[-2 * _KEPT_BYTES :])

    def finished(self) -> bool:
        """Whether an event stream has said why it ends, or that it does."""
        return has_finish(self._previous + self._last)

    def last_event_passed(self) -> bool:
        """Whether the stream's last event has passed, so that a client that leaves now has all of it."""
        return has_terminal_event(self._previous + self._last)
