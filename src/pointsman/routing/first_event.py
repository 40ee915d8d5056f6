"""Whether an event stream begins with an error: the look that a chain takes before it commits to a provider.

Bytes in, a verdict out; the bytes themselves stay with whoever reads them. For identity-coded streams only.
"""

import re
from enum import Enum

import msgspec

from pointsman.core.limits import DEFAULT_LIMITS

FIRST_EVENT_BYTES = DEFAULT_LIMITS.first_event_bytes

_LINE_END = rb"(?>\r\n|\n|\r)"
_BLOCK_END = re.compile(_LINE_END + _LINE_END)
_BLOCK_END_BYTES = 4
_LINES = re.compile(_LINE_END)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Verdict(Enum):
    """What the beginning of a stream says."""

    UNDECIDED = "undecided"
    COMMIT = "commit"
    """It is content, or too long to be waited for."""
    FAILED = "failed"
    """An error, or an end, before any content."""


class FirstEvent:
    """Judges a stream by its first event that is more than a comment. However the bytes are cut, the verdict is one."""

    __slots__ = ("_held", "_room", "verdict")

    def __init__(self, limit: int = FIRST_EVENT_BYTES) -> None:
        self._held = b""
        self._room = limit
        self.verdict = Verdict.UNDECIDED

    def receive(self, data: bytes) -> Verdict:
        """Take the stream's next bytes; a verdict once given stays."""
        if self.verdict is not Verdict.UNDECIDED:
            return self.verdict
        data = data[: self._room]
        self._room -= len(data)
        known = len(self._held)
        self._held += data
        if b"\n" in data or b"\r" in data:
            self._judge_blocks(max(0, known - _BLOCK_END_BYTES + 1))
        if self.verdict is Verdict.UNDECIDED and not self._room:
            self.verdict = Verdict.COMMIT
        if self.verdict is not Verdict.UNDECIDED:
            self._held = b""
        return self.verdict

    def end(self) -> Verdict:
        """The stream has ended, cleanly or not: without an event, it has failed."""
        if self.verdict is Verdict.UNDECIDED:
            self.verdict = Verdict.FAILED
        return self.verdict

    def _judge_blocks(self, new: int) -> None:
        start = 0
        while self.verdict is Verdict.UNDECIDED and (match := _BLOCK_END.search(self._held, max(start, new))):
            self.verdict = _judge(self._held[start : match.start()])
            start = match.end()
        self._held = self._held[start:]


def _judge(block: bytes) -> Verdict:
    name = b""
    data: list[bytes] = []
    for line in _LINES.split(block.removeprefix(_BYTE_ORDER_MARK)):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)
    if name == b"error":
        return Verdict.FAILED
    if not data:
        return Verdict.UNDECIDED  # comments, `retry` and `id` alone: no client is handed an event
    return Verdict.FAILED if _tells_an_error(b"\n".join(data)) else Verdict.COMMIT


def _tells_an_error(data: bytes) -> bool:
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # Some servers write "error": null into every event.
    return isinstance(content, dict) and (content.get("type") == "error" or bool(content.get("error")))
