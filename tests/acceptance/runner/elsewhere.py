"""Places of the gateway's machine where no prompt for a runner may come: each counts the bytes that do."""

import contextlib
import socket
import threading
from collections.abc import Iterator


class Elsewhere:
    """Listens on one port of loopback, answers nothing."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.received = b""
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(2)
                with contextlib.suppress(OSError):
                    while data := connection.recv(65536):
                        self.received += data

    def proves_itself(self) -> None:
        """Bytes that come here are seen: some are sent, and forgotten. Raises AssertionError."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as made:
            made.sendall(b"seen")
            made.shutdown(socket.SHUT_WR)
            made.settimeout(5)
            assert made.recv(1) == b""
        assert self.received == b"seen"
        self.received, self.connections = b"", 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@contextlib.contextmanager
def elsewhere(port: int = 0) -> Iterator[Elsewhere]:
    """Listening."""
    made = Elsewhere(port)
    try:
        made.proves_itself()
        yield made
    finally:
        made.close()
