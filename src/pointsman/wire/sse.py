"""Whole events: where an event stream may be cut.

A client can use an event only when its empty line has come, so holding back an incomplete one costs nothing, and
a truncated stream can then end in an error event that every parser reads (DESIGN 6.3).
"""

_LONGEST_BOUNDARY = 4


def last_boundary(data: bytes) -> int:
    """Index just behind the last empty line in `data`, or 0. Lines end in CRLF, LF or CR."""
    # Almost every stream uses LF: look for the other forms only when there is a CR at all.
    end = data.rfind(b"\n\n") + 2
    if end == 1:
        end = 0
    if b"\r" in data:
        for boundary in (b"\r\n\r\n", b"\n\r\n", b"\r\r", b"\n\r", b"\r\n\n"):
            found = data.rfind(boundary)
            if found >= 0:
                end = max(end, found + len(boundary))
    return end


class EventTail:
    """Holds back the incomplete last event of a stream.

    An event longer than `limit` bytes is let through raw, up to its end: `inside_event` then says that the stream
    cannot be cut cleanly here.
    """

    __slots__ = ("_held", "_last", "_limit", "inside_event")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = b""
        self._last = b""
        self.inside_event = False
        """Part of an unfinished event has been let through."""

    def receive(self, data: bytes) -> bytes:
        """Take bytes as they come; what may be passed on now is returned."""
        if self.inside_event:
            return self._receive_raw(data)
        if self._held:
            data = self._held + data
            self._held = b""
        end = last_boundary(data)
        if end == len(data):
            return data
        if len(data) - end > self._limit:
            self.inside_event = True
            self._last = data[-(_LONGEST_BOUNDARY - 1) :]
            return data
        self._held = data[end:]
        return data[:end]

    def _receive_raw(self, data: bytes) -> bytes:
        joined = self._last + data
        end = last_boundary(joined)
        if end <= len(self._last):
            self._last = joined[-(_LONGEST_BOUNDARY - 1) :]
            return data
        self.inside_event = False
        self._last = b""
        cut = end - (len(joined) - len(data))
        return data[:cut] + self.receive(data[cut:]) if cut < len(data) else data

    def finish(self) -> bytes:
        """The stream has ended by itself: what is still held belongs to it."""
        held, self._held = self._held, b""
        return held
