"""A real nats-server, ended by whoever starts it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_ports

PROGRAM = Path(sys.executable).with_name("nats-server")
_CONFIGURATION = "listen: 127.0.0.1:{port}\nmax_payload: {max_payload}\n{more}\n"


class NatsServer:
    """One on a port of its own; it comes back on the same one."""

    def __init__(self, directory: Path, max_payload: str = "4MB", more: str = "", credentials: str = "") -> None:
        assert PROGRAM.exists(), f"{PROGRAM} is missing: run make setup"
        self.port = free_ports(1)[0]
        self._credentials = credentials
        self._file = directory / f"nats-{self.port}.conf"
        self.configure(max_payload, more)
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, max_payload: str, more: str = "") -> None:
        """What holds from the next start."""
        self._file.write_text(_CONFIGURATION.format(port=self.port, max_payload=max_payload, more=more))

    @property
    def url(self) -> str:
        return f"nats://{self._credentials}127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [str(PROGRAM), "-c", str(self._file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as made:
                assert made.recv(4) == b"INFO"
                return
            assert self.process.poll() is None, "nats-server ended"
            assert time.monotonic() < until, "nats-server does not listen"
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)
        if number is signal.SIGSTOP:
            os.waitpid(self.process.pid, os.WUNTRACED)  # or it could still take the next message

    def kill(self) -> None:
        """As a crash would, whatever state it is in."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)
            self.process = None


@contextlib.contextmanager
def nats_server(
    directory: Path, max_payload: str = "4MB", more: str = "", credentials: str = ""
) -> Iterator[NatsServer]:
    """Started; killed on leaving."""
    server = NatsServer(directory, max_payload, more, credentials)
    server.start()
    try:
        yield server
    finally:
        server.kill()
