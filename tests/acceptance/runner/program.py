"""A process that runs under one name, may be started anew, and whose every line is kept."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

_START_SECONDS = 60.0


class Program:
    """Not started. What it writes to either output is one list of lines."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.lines: list[str] = []
        self._command = list(command)
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._said = threading.Condition()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, until: str) -> str:
        """The first line with that text. Raises AssertionError when it ends before, or takes a minute."""
        before = len(self.lines)
        process = self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # some end with it, and all with this process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environ,
        )
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return self.said(until, before)

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with self._said:
                    self.lines.append(line)
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def said(self, text: str, since: int, seconds: float = _START_SECONDS) -> str:
        """The first line with a text after so many lines, once it is there. Raises AssertionError."""
        until = time.monotonic() + seconds
        with self._said:
            while True:
                for line in self.lines[since:]:
                    if text in line:
                        return line
                ended = self._reader is None or not self._reader.is_alive()
                left = until - time.monotonic()
                assert left > 0, f"{self.name} did not say {text!r} in {seconds:g} s: {self.lines[since:]}"
                assert not ended, f"{self.name} ended before it said {text!r}: {self.lines[since:]}"
                self._said.wait(min(left, 1.0))

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP is over when it holds."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        if number is signal.SIGSTOP:
            os.waitpid(self._process.pid, os.WUNTRACED)  # or it could still take the next message

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status; it runs no more."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert self._reader is not None
        process.send_signal(how)
        process.stdin.close()
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise AssertionError(f"{self.name} did not end in 30 s") from None
        finally:
            self._reader.join(10)

    def close(self) -> None:
        """Whatever state it is in."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self.end(signal.SIGKILL)
