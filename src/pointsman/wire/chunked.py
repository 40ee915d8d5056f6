"""Decoding of chunked request bodies (RFC 9112 section 7.1), strictly."""

import re

from pointsman.core.errors import BodyTooLarge, MalformedRequest
from pointsman.core.limits import Limits
from pointsman.wire.headers import BROKEN_EARLY, TOKEN, parse_fields

_QUOTED = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
# White space around an extension is legal, and refused: readers that are in use disagree about it.
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})((?:;" + TOKEN + rb"(?:=(?:" + TOKEN + rb"|" + _QUOTED + rb"))?)*)")
_FORBIDDEN_TRAILERS = frozenset({b"content-length", b"transfer-encoding", b"host", b"authorization"})
_LONGEST_SIZE = 16

_SIZE, _DATA, _TRAILERS, _DONE = range(4)


class ChunkedDecoder:
    """Feed it bytes; it keeps the body, and what follows the last chunk.

    Raises MalformedRequest or BodyTooLarge as soon as the bytes seen cannot become an acceptable body.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_chunks",
        "_extension_bytes",
        "_limits",
        "_remaining",
        "_size",
        "_state",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._body = bytearray()  # not a list: pieces of two bytes would take thirty times their size
        self._state = _SIZE
        self._remaining = 0
        self._size = 0
        self._chunks = 0
        self._extension_bytes = 0

    @property
    def done(self) -> bool:
        """Whether the last chunk and its trailers have been read."""
        return self._state == _DONE

    def body(self) -> bytes:
        """The decoded body; complete when `done`."""
        return bytes(self._body)

    @property
    def held(self) -> int:
        """Bytes kept."""
        return len(self._body) + len(self._buffer)

    def rest(self) -> bytes:
        """Bytes behind the body: the next request's."""
        return bytes(self._buffer)

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        self._buffer += data
        while self._step():
            pass

    def _step(self) -> bool:
        if self._state == _SIZE:
            return self._read_size()
        if self._state == _DATA:
            return self._read_data()
        if self._state == _TRAILERS:
            return self._read_trailers()
        return False

    def _read_size(self) -> bool:
        end = self._buffer.find(b"\n")
        if end < 0:
            room = _LONGEST_SIZE + self._limits.chunk_extension_bytes - self._extension_bytes + 1
            # What is there must still be able to become a size line: a lone CR may be the start of its end.
            if len(self._buffer) > room or not self._may_become_size_line():
                raise MalformedRequest("malformed chunk size")
            return False
        line = bytes(self._buffer[: end + 1])
        match = _SIZE_LINE.match(line)
        if match is None or line[match.end() :] != b"\r\n":
            raise MalformedRequest("malformed chunk size")
        self._extension_bytes += len(match[2])
        if self._extension_bytes > self._limits.chunk_extension_bytes:
            raise MalformedRequest("chunk extensions too long")
        del self._buffer[: end + 1]
        self._remaining = int(match[1], 16)
        if self._remaining == 0:
            self._state = _TRAILERS
            return True
        self._count_chunk()
        self._state = _DATA
        return True

    def _may_become_size_line(self) -> bool:
        head = bytes(self._buffer[: _LONGEST_SIZE + 1])
        digits = re.match(rb"[0-9A-Fa-f]*", head)
        length = digits.end() if digits else 0
        if length > _LONGEST_SIZE or (length == 0 and head):
            return False
        return length == len(head) or head[length : length + 1] in b"\r;"

    def _count_chunk(self) -> None:
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            raise MalformedRequest("too many chunks")
        self._size += self._remaining
        if self._size > self._limits.body_bytes:
            raise BodyTooLarge

    def _read_data(self) -> bool:
        if self._remaining:
            piece = bytes(self._buffer[: self._remaining])
            if not piece:
                return False
            del self._buffer[: len(piece)]
            self._body += piece
            self._remaining -= len(piece)
            return True
        ending = bytes(self._buffer[:2])
        if not b"\r\n".startswith(ending):
            raise MalformedRequest("chunk data longer than its size")
        if len(ending) < 2:
            return False
        del self._buffer[:2]
        self._state = _SIZE
        return True

    def _read_trailers(self) -> bool:
        if self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
            self._state = _DONE
            return False
        end = self._buffer.find(b"\r\n\r\n")
        if self._buffer == b"\r":
            return False
        if end < 0 or end + 4 > self._limits.trailer_bytes:
            if len(self._buffer) >= self._limits.trailer_bytes or BROKEN_EARLY.search(self._buffer):
                raise MalformedRequest("malformed trailers")
            return False
        fields = parse_fields(b"\n" + bytes(self._buffer[: end + 2]), 1)
        if fields is None or len(fields) > self._limits.trailer_fields:
            raise MalformedRequest("malformed trailers")
        if any(name.lower() in _FORBIDDEN_TRAILERS for name, _ in fields):
            raise MalformedRequest("forbidden trailer field")
        del self._buffer[: end + 4]
        self._state = _DONE
        return False
