"""From an upstream response to a client's bytes: framing, whole events, truthful ends."""

from typing import Protocol

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.limits import Limits
from pointsman.core.protocols import InferenceProtocol
from pointsman.proxy.meter import Meter
from pointsman.wire.response import LAST_CHUNK, ResponseHead, error_event, has_body, relayed_head
from pointsman.wire.sse import EventTail


class ClientWriter(Protocol):
    """The client's connection, as far as a relay needs it."""

    keep_alive: bool

    def write(self, data: bytes) -> None: ...
    def cut(self, *, visibly: bool) -> None: ...


class Relay:
    """Takes a response body and writes it to a client, one write per upstream read.

    The head goes out with the first bytes of the body, or by `start` when the body keeps the client waiting.
    """

    __slots__ = ("_chunked", "_client", "_head", "_meter", "_protocol", "_silent", "_tail", "ended", "hashes", "sent")

    def __init__(
        self, client: ClientWriter, head: ResponseHead, own: bytes, *, minor: int, protocol: str, limits: Limits
    ) -> None:
        self._client = client
        self._chunked = minor == 1
        self._silent = not has_body(head.status)
        if not self._chunked and not self._silent:
            client.keep_alive = False  # without chunks the end of the connection is the end of the body
        self._head = relayed_head(head, own, minor=minor, keep_alive=client.keep_alive)
        self._protocol = protocol
        self._tail = EventTail(limits.event_tail_bytes) if head.is_event_stream else None
        self._meter = Meter(of_responses=head.is_event_stream and protocol == InferenceProtocol.RESPONSES)
        self.hashes: BodyHashes | None = None
        """Gets what comes and what the client is handed, if anybody asks."""
        self.sent = 0
        """Bytes of the body handed to the client."""
        self.ended = False
        """Whether the client has been handed all of it."""

    @property
    def meter(self) -> Meter:
        """What the body said of its cost."""
        return self._meter

    @property
    def refused(self) -> str:
        """What a client is told of an answer of which nothing more may pass; empty for one that may."""
        return ""

    @property
    def has_begun(self) -> bool:
        """Whether the client has been handed the head."""
        return not self._head

    def last_event_passed(self) -> bool:
        """Whether the client has been handed a stream's last event."""
        return self._meter.last_event_passed()

    def start(self) -> None:
        """Send the head now, if it has not gone yet."""
        if self._head:
            self._client.write(self._head)
            self._head = b""

    def body(self, data: bytes, *, last: bool) -> None:
        """Write what one upstream read delivered."""
        self.ended = last
        hashes = self.hashes
        if hashes is not None:
            hashes.come(data)
        if data:
            self._meter.watch(data)
        if self._tail is not None:
            data = self._tail.receive(data)
            if last:
                data += self._tail.finish()
        if self._silent:
            data = b""
        if hashes is not None:
            hashes.hand(data)
        self.sent += len(data)
        head, self._head = self._head, b""
        if self._chunked and not self._silent:
            if data:
                ending = b"\r\n0\r\n\r\n" if last else b"\r\n"
                self._client.write(b"%b%x\r\n%b%b" % (head, len(data), data, ending))
                return
            head += LAST_CHUNK if last else b""
            data = b""
        if head or data:
            self._client.write(head + data)

    def truncate(self, reason: str) -> None:
        """The body ends here, and it should not have."""
        self.start()
        if self._tail is None or self._tail.inside_event:
            self._client.keep_alive = False
            self._client.cut(visibly=not self._chunked)
            return
        event = error_event(self._protocol, reason)
        if self.hashes is not None:
            self.hashes.hand(event)
        self._client.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event) if self._chunked else event)


class Collector:
    """Gathers a body in memory, for calls that want it whole."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def start(self) -> None:
        """Nothing to do before the body comes."""

    def body(self, data: bytes, *, last: bool) -> None:
        """Take the next bytes."""
        self._pieces.append(data)

    def value(self) -> bytes:
        """What has come so far."""
        return b"".join(self._pieces)
