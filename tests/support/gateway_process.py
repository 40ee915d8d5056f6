"""A real `pointsman gateway` that keeps its ports, so that it can be ended in any way and started again."""

import http.client
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support import evidence
from tests.support.processes import POINTSMAN

LISTENERS = ("data", "control", "grpc")
_PORT = re.compile(r"(\w+)=127\.0\.0\.1:(\d+)")
_START_SECONDS = 60.0


class NotStarted(Exception):
    """The gateway ended instead of listening. The text is what it said."""


class GatewayProcess:
    """`ports` are those of `LISTENERS`; 0 is any, until it has started.

    `prefix` goes before the command, and must exec it.
    """

    def __init__(
        self, directory: Path, ports: Sequence[int] = (0, 0, 0), *options: str, prefix: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.ports = dict(zip(LISTENERS, ports, strict=True))
        self.options = options
        self.prefix = tuple(prefix)
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._said = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['grpc']}"

    @property
    def token_file(self) -> Path:
        return self.directory / "admin.token"

    def start(self, environ: Mapping[str, str] | None = None) -> None:
        """Until it listens. Raises NotStarted."""
        listeners = [f"--listen-{name}=127.0.0.1:{port}" for name, port in self.ports.items()]
        command = [*self.prefix, POINTSMAN, "gateway", f"--data-dir={self.directory}", *listeners, *self.options]
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        ready, first = threading.Event(), len(self.lines)
        self._reader = threading.Thread(target=self._read, args=(process, ready), daemon=True)
        self._reader.start()
        self.process = process
        if not ready.wait(_START_SECONDS):
            self.end(signal.SIGKILL)
            raise NotStarted("nothing was said")
        told = next((line for line in self.lines[first:] if " ready " in line), "")
        if not told:
            self.end(signal.SIGKILL)
            raise NotStarted("".join(self.lines[first:]).strip())
        self.ports = {name: int(port) for name, port in _PORT.findall(told)}

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                with self._said:
                    self.lines.append(line)
                    self._said.notify_all()
                if "pointsman: ready " in line:
                    ready.set()
        ready.set()

    def said(self, text: str, since: int = 0) -> str:
        """The first line with a text, once it is there; `since` so many lines."""

        def found() -> str:
            return next((line for line in self.lines[since:] if text in line), "")

        with self._said:
            self._said.wait_for(lambda: bool(found()), _START_SECONDS)
            assert found(), f"{text!r} was not said: {self.lines[since:]}"
            return found()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status; it runs no more."""
        assert self.process is not None
        assert self._reader is not None
        self.process.send_signal(how)
        status = self.process.wait(_START_SECONDS)
        self._reader.join(_START_SECONDS)
        self.process = None
        return status

    def close(self) -> None:
        """For the end of a test. What it said is evidence."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.end()
        evidence.keep("cli", "".join(self.lines))


def fetch(port: int, path: str, token: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
    response = connection.getresponse()
    answer = response.status, response.read()
    connection.close()
    return answer
