"""An upstream that a test plays by hand, byte by byte."""

import contextlib
import socket
import ssl
from types import TracebackType

from tests.support.canary import PROMPT
from tests.support.raw_client import RESET_ON_CLOSE, RawClient, post


class ReceivedRequest:
    """What reached the upstream."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.split(b"\r\n")
        self.line = lines[0]
        self.fields = [tuple(line.split(b": ", 1)) for line in lines[1:]]
        self.body = body

    def value(self, name: bytes) -> bytes | None:
        values = [value for key, value in self.fields if key.lower() == name]
        assert len(values) <= 1, f"{name!r} repeated"
        return values[0] if values else None


class UpstreamPeer:
    """One connection that the proxy made."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""

    def request(self) -> ReceivedRequest:
        """The next request, by its Content-Length."""
        while b"\r\n\r\n" not in self.buffer:
            piece = self.sock.recv(65536)
            assert piece, "connection ended before a request head"
            self.buffer += piece
        head, _, rest = self.buffer.partition(b"\r\n\r\n")
        size = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length: "):
                size = int(line[16:])
        while len(rest) < size:
            piece = self.sock.recv(65536)
            assert piece, "connection ended before the end of a request body"
            rest += piece
        self.buffer = rest[size:]
        return ReceivedRequest(head, rest[:size])

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def respond(self, body: bytes = b"{}", fields: bytes = b"Content-Type: application/json\r\n") -> None:
        """A whole 200 with a Content-Length."""
        self.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body))

    def start_events(self, fields: bytes = b"") -> None:
        """The head of a chunked event stream."""
        self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%bTransfer-Encoding: chunked\r\n\r\n" % fields
        )

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end_chunks(self) -> None:
        self.send(b"0\r\n\r\n")

    def wait_closed(self, seconds: float = 1.0) -> bool:
        """Whether the proxy ends the connection within that time."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(65536):
                pass
        except (ConnectionResetError, ssl.SSLError):
            return True
        except TimeoutError:
            return False
        return True

    def shut_down(self) -> None:
        """End the connection while another thread may be reading from it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


class Upstream:
    """Listens; the test accepts."""

    def __init__(self, context: ssl.SSLContext | None = None, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._listener = socket.create_server(address)
        self._listener.settimeout(10)
        self._context = context
        self._peers: list[UpstreamPeer] = []
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if context else 'http'}://{'localhost' if context else address[0]}:{self.port}/v1"

    def accept(self, seconds: float = 10) -> UpstreamPeer:
        self._listener.settimeout(seconds)
        sock, _ = self._listener.accept()
        sock.settimeout(10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True)
        peer = UpstreamPeer(sock)
        self._peers.append(peer)
        return peer

    def saw_nothing(self, seconds: float = 0.05) -> bool:
        """Whether no connection waits to be accepted. Ask when the client has its answer."""
        self._listener.settimeout(seconds)
        try:
            self._peers.append(UpstreamPeer(self._listener.accept()[0]))
        except (TimeoutError, BlockingIOError):
            return True
        finally:
            self._listener.settimeout(10)
        return False

    def __enter__(self) -> "Upstream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for peer in self._peers:
            peer.close()
        self._listener.close()


SOME_BODY = b'{"messages":[{"role":"user","content":"%b"}]}' % PROMPT.encode()
"""Of a request that is not about its body."""


def begin(client: RawClient, upstream: Upstream, path: bytes = b"/v1/chat/completions") -> UpstreamPeer:
    """Send a request and hand over the upstream that has read it."""
    client.send(post(SOME_BODY, path=path))
    peer = upstream.accept()
    peer.request()
    return peer
