"""A client that sends and sees raw bytes."""

import socket
import ssl
import struct

from tests.support import evidence

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def post(
    body: bytes = b"{}", path: bytes = b"/v1/chat/completions", fields: bytes = b"", version: bytes = b"1.1"
) -> bytes:
    """A request to the door."""
    return b"POST %b HTTP/%b\r\nHost: inference.local\r\nContent-Length: %d\r\n%b\r\n%b" % (
        path,
        version,
        len(body),
        fields,
        body,
    )


GET_MODELS = b"GET /v1/models HTTP/1.1\r\nHost: inference.local\r\n\r\n"


class Answer:
    """A response as the client saw it."""

    def __init__(self, head: bytes, body: bytes, *, complete: bool) -> None:
        lines = head.split(b"\r\n")
        self.status = int(lines[0].split(b" ")[1])
        self.status_line = lines[0]
        self.fields = [tuple(line.split(b": ", 1)) for line in lines[1:] if line]
        self.body = body
        self.complete = complete
        """Whether the framing said that the body ended."""
        evidence.keep("client", head + b"\r\n\r\n" + body)

    def value(self, name: bytes) -> bytes | None:
        """The one field of that name, in any case."""
        values = [value for key, value in self.fields if key.lower() == name]
        assert len(values) <= 1, f"{name!r} repeated"
        return values[0] if values else None


class RawClient:
    """Blocking, with a deadline on every wait. Bytes are only ever added to what has been received."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        self.sock = context.wrap_socket(self.sock, server_hostname=name, suppress_ragged_eofs=False)

    def enter_tunnel(self, context: ssl.SSLContext) -> None:
        """CONNECT to the door, then TLS."""
        self.send(b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n")
        assert self.read_until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        self.start_tls(context, "inference.local")

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read_until(self, end: bytes) -> bytes:
        """Everything up to and including `end`."""
        while end not in self.buffer:
            piece = self.sock.recv(65536)
            assert piece, f"connection ended before {end!r}: {self.buffer!r}"
            self.buffer += piece
        at = self.buffer.index(end) + len(end)
        found, self.buffer = self.buffer[:at], self.buffer[at:]
        return found

    def read_exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            piece = self.sock.recv(65536)
            assert piece, f"connection ended before {size} bytes: {self.buffer!r}"
            self.buffer += piece
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def read_to_end(self) -> bytes:
        """Everything until the connection ends in whatever way; the way is in `how_ended`."""
        self.how_ended = "closed"
        while True:
            try:
                piece = self.sock.recv(65536)
            except ssl.SSLEOFError:
                self.how_ended = "cut"
                break
            except ConnectionResetError:
                self.how_ended = "reset"
                break
            if not piece:
                break
            self.buffer += piece
        found, self.buffer = self.buffer, b""
        evidence.keep("client", found)
        return found

    def answer(self) -> Answer:
        """One response, read by its framing; a cut body gives an incomplete answer."""
        head = self.read_until(b"\r\n\r\n")
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked\r\n" in lower:
            return self._chunked(head[:-4])
        if b"\r\ncontent-length: " in lower:
            size = int(lower.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
            return Answer(head[:-4], self.read_exactly(size), complete=True)
        if int(head.split(b" ")[1]) in (204, 304):
            return Answer(head[:-4], b"", complete=True)
        body = self.read_to_end()
        return Answer(head[:-4], body, complete=self.how_ended == "closed")

    def _chunked(self, head: bytes) -> Answer:
        body = b""
        while True:
            try:
                size = int(self.read_until(b"\r\n")[:-2], 16)
                piece = self.read_exactly(size + 2)
            except (AssertionError, ConnectionResetError, ssl.SSLEOFError):
                return Answer(head, body, complete=False)
            assert piece.endswith(b"\r\n")
            if size == 0:
                return Answer(head, body, complete=True)
            body += piece[:-2]

    def half_close(self) -> None:
        """FIN, with the reading side left open."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.sock.close()

    def close(self) -> None:
        self.sock.close()
