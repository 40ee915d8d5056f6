"""Watching a response for its token counts, without delaying or changing it."""

from pointsman.wire.usage import TokenUsage, find_usage, has_terminal_event

_KEPT_BYTES = 4 * 1024
_SMALL = 1024


class Meter:
    """Keeps the last pieces of a body; reads them once, when asked.

    The usage object stands near the end in every dialect, so nothing is parsed while the body passes. Encoded
    bodies simply yield nothing. It holds less than 8 KiB.
    """

    __slots__ = ("_last", "_previous")

    def __init__(self) -> None:
        self._previous = b""
        self._last = b""

    def watch(self, data: bytes) -> None:
        """See the next bytes of the body."""
        if len(data) >= _KEPT_BYTES:
            self._previous, self._last = b"", data[-_KEPT_BYTES:]
        elif len(self._last) < _SMALL:
            self._last += data
        else:
            self._previous, self._last = self._last, data

    def usage(self) -> TokenUsage | None:
        """The counts the body reported, if it did."""
        return find_usage(self._previous + self._last)

    def finished(self) -> bool:
        """Whether the stream's last event has passed, so that a client that leaves now has all of it."""
        return has_terminal_event(self._previous + self._last)
