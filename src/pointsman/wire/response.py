"""Reading upstream responses, and writing response heads and answers of our own.

Reading is llhttp (httptools) with its gaps closed: interim responses are counted and dropped, a second response
glued to the first is noticed, a body that ends with its connection is told from one that was cut, and transfer
codings that nobody here undoes are refused.
"""

import re

import httptools
import msgspec

from pointsman.core.errors import RouterError, UpstreamProtocol
from pointsman.core.limits import Limits
from pointsman.core.model_errors import AccountHalted, PolicyBlocked
from pointsman.core.runner_errors import RUNNER_CODES
from pointsman.core.secret import Secret
from pointsman.wire.headers import HOP_BY_HOP, Fields, end_of_hop

_CODES = RUNNER_CODES | {AccountHalted.code, PolicyBlocked.code}
"""That an event tells as an answer that had not begun would have it."""
_BODILESS = frozenset({204, 304})
_OUR_PREFIX = b"x-pointsman-"
_OUR_MOCK_FIELD = b"x-openshell-mock"
_DROPPED = HOP_BY_HOP | {b"content-length"}
_REDACTED = frozenset({b"content-encoding", b"content-type", b"www-authenticate"})
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_SPECIAL = _DROPPED | {b"content-type", b"content-encoding", _OUR_MOCK_FIELD}
_REASON = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")  # RFC 9112 section 4
_NO_OPTIONS: frozenset[bytes] = frozenset()
_NO_FIELDS: Fields = []
_PLAIN_CONNECTION = frozenset({b"keep-alive", b"close"})

LAST_CHUNK = b"0\r\n\r\n"


class ResponseHead:
    """Status and fields of an upstream response. One is made per request, on the hot path.

    Raises UpstreamProtocol for a transfer coding other than `chunked`, once.
    """

    __slots__ = ("fields", "framed", "is_event_stream", "ours", "reason", "relayed", "status")

    def __init__(self, status: int, reason: bytes, fields: Fields) -> None:
        self.status = status
        self.reason = reason
        self.fields = fields
        self.relayed: list[bytes] = []
        """Lines for the client: all fields but hop-by-hop, framing and our own names."""
        self.ours: Fields = _NO_FIELDS
        """Fields with our own names, which mean something only when the upstream is a gateway of ours."""
        self.is_event_stream = False
        """Whether the body is an identity-coded event stream, the only kind that is cut into events."""
        self.framed = status in _BODILESS
        """Whether the body's end is told by its head or its chunks, not by the end of the connection."""
        self._classify()

    def _classify(self) -> None:
        # The one pass over the fields of a response; everything that needs a name in lower case happens here.
        relayed = self.relayed
        coded = chunked = False
        options = _NO_OPTIONS
        for name, value in self.fields:
            lower = name.lower()
            if lower in _SPECIAL:
                if lower in _FRAMING:
                    self.framed = True
                    if lower == b"transfer-encoding":
                        # llhttp takes `gzip, chunked` as well, and the client would get gzip without being told.
                        if chunked or value.strip().lower() != b"chunked":
                            raise UpstreamProtocol("unusable Transfer-Encoding")
                        chunked = True
                elif lower == b"content-type":
                    self.is_event_stream = value.partition(b";")[0].strip().lower() == b"text/event-stream"
                elif lower == b"content-encoding":
                    coded = coded or value.strip().lower() not in (b"", b"identity")
                elif lower == _OUR_MOCK_FIELD:
                    continue
                elif lower == b"connection" and value.lower() not in _PLAIN_CONNECTION:
                    options = end_of_hop(self.fields)
                if lower in _DROPPED:
                    continue
            elif lower.startswith(_OUR_PREFIX):
                self.ours = [*self.ours, (lower, value)]
                continue
            relayed.append(name + b": " + value)
        if options:
            self.relayed = [line for line in relayed if line.split(b":", 1)[0].lower() not in options]
        if coded:
            self.is_event_stream = False


class ResponseReader:
    """Reads one response. Feed it with `receive`; then look at `head`, `take_body`, `complete`.

    Raises UpstreamProtocol for what is not one well-formed response.
    """

    __slots__ = (
        "_barren",
        "_body",
        "_fields",
        "_head_bytes",
        "_interim",
        "_limits",
        "_parser",
        "_reason",
        "complete",
        "extra",
        "head",
        "reusable",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._fields: Fields = []
        self._reason = b""
        self._body: list[bytes] = []
        self._head_bytes = 0
        self._barren = 0
        self._interim = 0
        self.head: ResponseHead | None = None
        self.complete = False
        self.reusable = False
        """Set when complete: the connection may carry another request."""
        self.extra = False
        """Bytes came behind the response: the connection is not to be trusted."""

    def receive(self, data: bytes) -> None:
        """Take what one read of the connection delivered."""
        if self.complete:
            self.extra = True
            return
        if self._parser is None:
            return
        if self.head is None:
            room = self._limits.response_head_bytes - self._head_bytes
            if len(data) > room:
                # The bound is on the head, however it was cut, and not on what one read happened to bring.
                self._parse(self._parser, data[:room])
                self._require_head()
                self.receive(data[room:])
                return
            self._head_bytes += len(data)
        self._barren += len(data)
        self._parse(self._parser, data)
        if self._barren > self._limits.response_head_bytes and not self.complete:
            # Chunk extensions and trailers are dropped, but they must not go on for ever.
            raise UpstreamProtocol("too much framing without content")

    def _require_head(self) -> None:
        if self.head is None:
            raise UpstreamProtocol("response head too large")

    def _parse(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.complete:
                # The response was whole. What came behind it costs the connection, not the client.
                self.extra = True
                return
            if isinstance(error, httptools.HttpParserUpgrade):
                raise UpstreamProtocol("upstream switched protocols") from None
            cause = error.__context__
            if isinstance(cause, UpstreamProtocol):
                raise cause from None
            raise UpstreamProtocol(f"malformed response: {error}") from None

    def take_body(self) -> bytes:
        """The body bytes since the last call, as one piece."""
        body = self._body
        if not body:
            return b""
        piece = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        return piece

    def end_of_connection(self) -> bool:
        """The upstream closed. True when that is how this body ends, False when something is missing."""
        if self.head is not None and not self.complete and not self.head.framed:
            self.complete = True
        return self.complete

    def detach(self) -> None:
        """Break the cycle between this object and its parser, so that both go at once."""
        self._parser = None

    # What follows is called by the parser.

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # otherwise a trailer, which is dropped
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None or self.complete:
            return
        self._barren = 0
        status = parser.get_status_code()
        if 100 <= status < 200:
            self._interim += 1
            if self._interim > self._limits.interim_responses or status == 101:
                raise UpstreamProtocol("too many or unusable interim responses")
            return
        fields = self._fields
        if not 200 <= status <= 599 or len(fields) > self._limits.response_head_fields:
            raise UpstreamProtocol("unusable status or too many header fields")
        if not parser.get_http_version().startswith("1.") or not _REASON.fullmatch(self._reason):
            raise UpstreamProtocol("unusable status line")
        self.head = ResponseHead(status, self._reason, fields)

    def on_body(self, data: bytes) -> None:
        if self.complete:  # a second response in the same read
            self.extra = True
        else:
            self._barren = 0
            self._body.append(data)

    def on_message_begin(self) -> None:
        if self.complete:
            self.extra = True

    def on_message_complete(self) -> None:
        if self.head is None:  # an interim response
            self._fields = []
            self._reason = b""
            return
        if not self.complete and self._parser is not None:
            # should_keep_alive is right only here; see httptools
            self.reusable = self._parser.should_keep_alive() and self.head.framed
            self.complete = True


def relayed_head(head: ResponseHead, own: bytes, *, minor: int, keep_alive: bool) -> bytes:
    """The client's view of an upstream head: the same, less hop-by-hop and framing fields, plus our own lines."""
    framing = b"transfer-encoding: chunked\r\n" if minor and head.status not in _BODILESS else b""
    if not keep_alive:
        framing += b"connection: close\r\n"
    lines = b"\r\n".join(head.relayed)
    return b"HTTP/1.1 %d %b\r\n%b%b%b%b\r\n" % (
        head.status,
        head.reason,
        lines,
        b"\r\n" if lines else b"",
        framing,
        own,
    )


def own_lines_of_two(own: bytes, head: ResponseHead) -> bytes:
    """Our own lines for an answer of our own gateway: it knows better what was used, so its fields replace ours."""
    said = {name for name, _ in head.ours}
    mine = [line for line in own.split(b"\r\n") if line and line.partition(b":")[0] not in said]
    return b"".join(line + b"\r\n" for line in (*mine, *(name + b": " + value for name, value in head.ours)))


def redacted_lines(head: ResponseHead, secret: Secret | None) -> list[bytes]:
    """The harmless field lines of a refusal whose body is replaced: none that describes the body or holds the key."""
    return [
        line
        for line in head.relayed
        if line.split(b":", 1)[0].lower() not in _REDACTED
        and not (secret is not None and secret.appears_in(line.decode("latin-1")))
    ]


def redacted_head(head: ResponseHead, own: bytes, secret: Secret | None, *, length: int, keep_alive: bool) -> bytes:
    """Head of an answer whose body is replaced: the upstream's status and harmless fields, a JSON body of ours."""
    lines = [b"HTTP/1.1 %d %b" % (head.status, _REASONS.get(head.status, b"Error")), *redacted_lines(head, secret)]
    lines.append(b"content-type: application/json")
    lines.append(b"content-length: %d" % length)
    if not keep_alive:
        lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n" + own + b"\r\n"


def has_body(status: int) -> bool:
    """Whether a response of that status to GET or POST carries a body."""
    return status not in _BODILESS


_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Payload Too Large",
    414: b"URI Too Long",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    508: b"Loop Detected",
}


def error_body(text: str, hint: str = "") -> bytes:
    """The JSON object of an answer of our own."""
    return msgspec.json.encode({"error": text, "hint": hint} if hint else {"error": text})


def error_answer(error: RouterError, own: bytes, *, keep_alive: bool) -> bytes:
    """A whole response that tells the client of an error; nothing in it depends on `error.detail`."""
    return json_answer(error.status, error_body(error.text, error.hint), own, keep_alive=keep_alive)


def json_answer(status: int, body: bytes, own: bytes, *, keep_alive: bool) -> bytes:
    """A whole response of our own; `own` are further header lines."""
    connection = b"" if keep_alive else b"connection: close\r\n"
    return b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s%s\r\n%s" % (
        status,
        _REASONS.get(status, b"Error"),  # a runner's upstream may have said anything
        len(body),
        connection,
        own,
        body,
    )


def own_lines(request_id: str, attempts: int, route: str = "") -> bytes:
    """The header lines that every response of ours has; with the route, where one is known."""
    lines = b"x-pointsman-request-id: %b\r\nx-pointsman-attempts: %d\r\n" % (request_id.encode("ascii"), attempts)
    return lines + b"x-pointsman-route: %b\r\n" % header_text(route) if route else lines


def header_text(name: str) -> bytes:
    """A name as a header value: anything but visible ASCII and spaces is escaped."""
    return "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in name).encode("ascii")


def error_event(protocol: str, reason: str) -> bytes:
    """The one event that ends a truncated event stream (DESIGN 6.3 and D21)."""
    message = f"response truncated: {reason}"
    if protocol == "anthropic_messages":
        error = {"type": "proxy_stream_error", "message": message}
        return b"event: error\ndata: " + msgspec.json.encode({"type": "error", "error": error}) + b"\n\n"
    told = {"message": message, "type": "proxy_stream_error"}
    if reason in _CODES:
        told["code"] = reason
    return b"data: " + msgspec.json.encode({"error": told}) + b"\n\n"
