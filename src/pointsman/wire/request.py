"""Reading HTTP/1.1 requests by a grammar stricter than any upstream's.

What this module accepts, every other implementation reads the same way. It owns framing and field grammar; which
targets and hosts are welcome is decided in `routing.pattern`.
"""

import re
from collections.abc import Iterable
from copy import copy

from pointsman.core.errors import (
    BodyTooLarge,
    EncodedBody,
    ExpectationFailed,
    HeadTooLarge,
    MalformedRequest,
    TargetTooLong,
)
from pointsman.core.limits import Limits
from pointsman.wire.chunked import ChunkedDecoder
from pointsman.wire.headers import BROKEN_EARLY, TOKEN, Fields, parse_fields

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([!-~]+) HTTP/1\.([01])\r\n")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_LONGEST_LENGTH = 19
_ROOM_FOR_LINE_END = 2
_LENGTH_NAME = len(b"Content-Length: ")


class FieldValues(dict[bytes, bytes]):
    """Header values by lower-case name, with a place for what somebody has derived from them.

    A connection's heads share one of these as long as they repeat each other.
    """

    __slots__ = ("derived", "derived_by")

    derived: bytes
    derived_by: object

    def __init__(self, items: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(items)
        self.derived_by = None


class RequestHead:
    """A checked request head. Not a dataclass: one is made per request, on the hot path."""

    __slots__ = (
        "chunked",
        "content_length",
        "expects_continue",
        "fields",
        "host",
        "keep_alive",
        "method",
        "minor",
        "peer",
        "target",
        "values",
    )

    def __init__(self, method: str, target: str, minor: int, fields: Fields) -> None:
        self.method = method
        self.target = target
        """As sent: origin-form, absolute-form or, for CONNECT, an authority."""
        self.minor = minor
        """HTTP/1.minor"""
        self.fields = fields
        self.values = FieldValues((name.lower(), value) for name, value in fields)
        """By lower-case name; the values of a repeated field are joined (RFC 9110 section 5.3)."""
        self.host = b""
        self.content_length = 0
        self.chunked = False
        self.keep_alive = minor == 1
        self.expects_continue = False
        self.peer = ""
        """The address that its connection comes from; empty where unknown. Nothing that a client writes is it."""

    def without_codings(self) -> "RequestHead":
        """The same head, asking for an answer without a content coding."""
        head = copy(self)
        head.values = FieldValues({**self.values, b"accept-encoding": b"identity"}.items())
        return head


class Request:
    """A complete request."""

    __slots__ = ("body", "head")

    def __init__(self, head: RequestHead, body: bytes) -> None:
        self.head = head
        self.body = body


def parse_head(block: bytes, limits: Limits) -> RequestHead:
    """Check and take apart a whole head, its last empty line left out.

    Raises MalformedRequest, TargetTooLong, HeadTooLarge, ExpectationFailed, EncodedBody.
    """
    line = _REQUEST_LINE.match(block)
    if line is None:
        raise MalformedRequest("malformed request line")
    if line.end() - _ROOM_FOR_LINE_END > limits.request_line_bytes:
        raise TargetTooLong
    fields = parse_fields(block, line.end())
    if fields is None:
        raise MalformedRequest("malformed header field")
    if len(fields) > limits.head_fields:
        raise HeadTooLarge
    head = RequestHead(line[1].decode("ascii"), line[2].decode("ascii"), line[3] == b"1", fields)
    if len(head.values) != len(fields):
        _join_repeated(head)
    values = head.values
    if b"host" in values:
        _read_host(head, values[b"host"])
    elif head.minor:
        raise MalformedRequest("no Host field")
    if b"content-length" in values:
        head.content_length = _content_length(values[b"content-length"])
    for name, rule in _RARE_RULES:
        if name in values:
            rule(head, values[name].rstrip(b" \t").lower())
    return head


def _join_repeated(head: RequestHead) -> None:
    joined = FieldValues()
    for name, value in head.fields:
        lower = name.lower()
        if lower not in joined:
            joined[lower] = value
        elif lower in _SINGLE:
            raise MalformedRequest("repeated Host or framing field")
        else:
            joined[lower] += b", " + value
    head.values = joined


def _read_host(head: RequestHead, value: bytes) -> None:
    if value != b"inference.local":  # the usual one needs no look at its grammar
        value = value.rstrip(b" \t")
        if not _HOST.fullmatch(value):
            raise MalformedRequest("malformed Host")
    head.host = value


def _content_length(value: bytes) -> int:
    value = value.rstrip(b" \t")
    # bytes.isdigit knows ASCII digits only, and int would take signs and underscores.
    if not value.isdigit() or len(value) > _LONGEST_LENGTH:
        raise MalformedRequest("malformed Content-Length")
    return int(value)


def _read_transfer_encoding(head: RequestHead, value: bytes) -> None:
    if value != b"chunked" or not head.minor or b"content-length" in head.values:
        raise MalformedRequest("unsupported Transfer-Encoding")
    head.chunked = True


def _read_connection(head: RequestHead, value: bytes) -> None:
    options = [option.strip() for option in value.split(b",")]
    if b"close" in options:
        head.keep_alive = False
    elif b"keep-alive" in options and not head.minor:
        head.keep_alive = True


def _read_expect(head: RequestHead, value: bytes) -> None:
    if value != b"100-continue":
        raise ExpectationFailed
    head.expects_continue = bool(head.minor)


def _read_content_encoding(_: RequestHead, value: bytes) -> None:
    if value not in (b"", b"identity"):
        raise EncodedBody


_SINGLE = frozenset({b"host", b"content-length", b"transfer-encoding"})
_RARE_RULES = (
    (b"transfer-encoding", _read_transfer_encoding),
    (b"connection", _read_connection),
    (b"expect", _read_expect),
    (b"content-encoding", _read_content_encoding),
)
"""These get their value in lower case."""


class RequestReader:
    """Reads one connection's requests, one after the other.

    `receive` takes bytes; `next_event` gives a RequestHead when a head has arrived ahead of its body or the body is
    chunked, then the Request; any other request that has arrived whole comes as a Request at once. None: more bytes
    are needed. Errors are raised by `next_event` and end the connection.
    """

    __slots__ = ("_body", "_buffer", "_decoder", "_head", "_last_head", "_last_rest", "_limits", "_missing", "_scanned")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = b""
        self._scanned = 0
        self._head: RequestHead | None = None
        self._last_rest = b""
        self._last_head: RequestHead | None = None
        self._body = bytearray()  # not a list: pieces of two bytes would take thirty times their size
        self._missing = 0
        self._decoder: ChunkedDecoder | None = None

    @property
    def buffered(self) -> int:
        """Bytes held that belong to no request yet handed out."""
        return len(self._buffer)

    @property
    def in_request(self) -> bool:
        """Whether a request has begun to arrive."""
        return bool(self._buffer) or self._head is not None

    @property
    def in_body(self) -> bool:
        """Whether a head is complete and its body is not."""
        return self._head is not None

    @property
    def held(self) -> int:
        """Bytes of a body that is not complete."""
        return len(self._body) if self._decoder is None else self._decoder.held

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the connection."""
        self._buffer = self._buffer + data if self._buffer else data

    def next_event(self) -> RequestHead | Request | None:
        """What the bytes received so far amount to."""
        if self._head is not None:
            return self._continue_body(self._head)
        buffer = self._buffer
        if not buffer:
            return None
        end = buffer.find(b"\r\n\r\n", self._scanned)
        if end < 0 or end + 4 > self._limits.head_bytes or not self._line_fits(buffer):
            self._check_unfinished(buffer)
            self._scanned = max(len(buffer) - 3, 0)
            return None
        self._scanned = 0
        head = self._read_head(buffer[: end + 2])
        if head.content_length > self._limits.body_bytes:
            raise BodyTooLarge
        return self._start_body(head, buffer, end + 4)

    def _read_head(self, block: bytes) -> RequestHead:
        """The same as `parse_head`, but a head that differs from the connection's last in its length alone is not
        parsed again. SDKs send such heads, request after request.
        """
        begin = block.find(b"\r\nContent-Length: ") + 2
        if begin == 1:
            begin = block.find(b"\r\ncontent-length: ") + 2
            if begin == 1:
                return parse_head(block, self._limits)
        end = block.index(b"\r\n", begin) + 2
        # First of all: what is wrong with it must not be hidden by a milder complaint about the rest.
        length = _content_length(block[begin + _LENGTH_NAME : end - 2].lstrip(b" \t"))
        rest = block[:begin] + block[end:]
        last = self._last_head
        if rest == self._last_rest and last is not None:
            head = RequestHead.__new__(RequestHead)
            head.method, head.target, head.minor = last.method, last.target, last.minor
            head.fields, head.values, head.host = last.fields, last.values, last.host
            head.chunked, head.keep_alive, head.expects_continue = False, last.keep_alive, last.expects_continue
        else:
            head = parse_head(rest, self._limits)
            if head.chunked or b"content-length" in head.values:
                raise MalformedRequest("conflicting framing fields")
            if len(head.fields) >= self._limits.head_fields:
                raise HeadTooLarge
            self._last_rest, self._last_head = rest, head
        head.content_length = length
        return head

    def _start_body(self, head: RequestHead, buffer: bytes, start: int) -> RequestHead | Request | None:
        stop = start + head.content_length
        if not head.chunked and len(buffer) >= stop:
            self._buffer = buffer[stop:]
            return Request(head, buffer[start:stop])
        self._head = head
        self._buffer = buffer[start:]
        self._missing = head.content_length
        if head.chunked:
            # Whoever asks may refuse the head, and must not hear of a broken body first.
            self._decoder = ChunkedDecoder(self._limits)
            return head
        return self._continue_body(head) or head

    def _continue_body(self, head: RequestHead) -> Request | None:
        data, self._buffer = self._buffer, b""
        if self._decoder is not None:
            self._decoder.receive(data)
            if not self._decoder.done:
                return None
            body, self._buffer = self._decoder.body(), self._decoder.rest()
            self._decoder = None
        else:
            if len(data) < self._missing:
                self._body += data
                self._missing -= len(data)
                return None
            self._body += data[: self._missing]
            body, self._buffer = bytes(self._body), data[self._missing :]
            self._body = bytearray()
        self._head = None
        return Request(head, body)

    def _check_unfinished(self, buffer: bytes) -> None:
        """Refuse for what comes first in the text, so that the answer doesn't depend on how it was split."""
        broken = BROKEN_EARLY.search(buffer, max(self._scanned - 1, 0), self._limits.head_bytes)
        if not self._line_fits(buffer) and (broken is None or broken.end() > self._limits.request_line_bytes + 1):
            raise TargetTooLong
        if broken is not None:
            raise MalformedRequest("malformed request head")
        if len(buffer) >= self._limits.head_bytes:
            raise HeadTooLarge

    def _line_fits(self, buffer: bytes) -> bool:
        if len(buffer) <= self._limits.request_line_bytes:
            return True
        return buffer.find(b"\r", 0, self._limits.request_line_bytes + 1) >= 0
