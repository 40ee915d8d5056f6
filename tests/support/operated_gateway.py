"""A real `pointsman gateway` process on SQLite, and the commands of its operator."""

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from click.testing import Result

from tests.support import evidence
from tests.support.client_commands import run_client
from tests.support.processes import POINTSMAN, run_to_end

_READY = re.compile(r"pointsman: ready ")
_PLACE = re.compile(r"(\w+)=(\S+):(\d+)")
_LISTENERS = ("--listen-data", "--listen-control", "--listen-grpc")


class OperatedGateway:
    """Listening. Commands find its token in its data directory."""

    def __init__(self, process: "subprocess.Popen[str]", data_directory: Path) -> None:
        self.process = process
        self.data_directory = data_directory
        self.lines: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line)
            if _READY.search(line):
                self.ports = {name: int(port) for name, _, port in _PLACE.findall(line)}
                self.url = f"http://127.0.0.1:{self.ports['grpc']}"
                self.data = f"127.0.0.1:{self.ports['data']}"
                break
        else:
            raise AssertionError(f"the gateway did not start: {self.lines}")
        self._drain = threading.Thread(target=self._read, args=(process.stderr,))
        self._drain.start()

    def _read(self, stderr: Iterable[str]) -> None:
        self.lines.extend(stderr)

    def run(self, *arguments: str, environ: Mapping[str, str | None] | None = None, stdin: str | None = None) -> Result:
        """A command in this process."""
        settings = {"POINTSMAN_DATA_DIR": str(self.data_directory), **(environ or {})}
        return run_client(self.url, *arguments, environ=settings, stdin=stdin)

    def process_of(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """The same command as a process of its own."""
        settings = {"POINTSMAN_GATEWAY": self.url, "POINTSMAN_DATA_DIR": str(self.data_directory)}
        return run_to_end([POINTSMAN, *arguments], environ={**settings, **(environ or {})})

    def stop(self) -> int:
        self.process.terminate()
        status = self.process.wait(30)
        self._drain.join(30)
        evidence.keep("cli", "".join(self.lines))
        return status


@contextlib.contextmanager
def operated_gateway(directory: Path, *options: str) -> Iterator[OperatedGateway]:
    """Start one with its data in `directory`, and stop it."""
    listeners = [word for option in _LISTENERS for word in (option, "127.0.0.1:0")]
    command = [POINTSMAN, "gateway", "--data-dir", str(directory), *listeners, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    running = None
    try:
        running = OperatedGateway(process, directory)
        yield running
    finally:
        if running is not None and process.poll() is None:
            running.stop()
        process.wait(30)
        if process.stderr is not None:
            process.stderr.close()
