"""A real `pointsman runner start`, in a directory of its own, that can be ended in any way and started again."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support import evidence
from tests.support.processes import POINTSMAN, run_to_end

_SECONDS = 60.0


class RunnerProcess:
    """`gateway` is a control listener's URL, or a way to it."""

    def __init__(self, name: str, directory: Path, gateway: str, key_file: Path) -> None:
        self.name = name
        self.directory = directory
        self.gateway = gateway
        self.key_file = key_file
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._said = threading.Condition()

    def register(self, *models: str) -> subprocess.CompletedProcess[str]:
        """With models, each MODEL@URL."""
        urls = [f"--url={model.partition('@')[2]}" for model in models]
        chosen = [f"--register={model}" for model in models]
        place = (f"--gateway={self.gateway}", f"--key-file={self.key_file}", f"--config-dir={self.directory}")
        return run_to_end([POINTSMAN, "runner", "register", self.name, *place, *urls, *chosen], seconds=_SECONDS)

    def start(self, environ: Mapping[str, str] | None = None) -> None:
        """It dials; whether it is let in is another matter."""
        self.process = subprocess.Popen(
            [POINTSMAN, "runner", "start", "--config-dir", str(self.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                with self._said:
                    self.lines.append(line.strip())
                    self._said.notify_all()

    def said(self, text: str, since: int = 0) -> str:
        """The first line with a text, once it is there; `since` so many lines. Raises TimeoutError."""

        def found() -> str:
            return next((line for line in self.lines[since:] if text in line), "")

        with self._said:
            if not self._said.wait_for(lambda: bool(found()), _SECONDS):
                raise TimeoutError(f"runner {self.name} did not say {text!r}: {self.lines[since:]}")
            return found()

    @property
    def id(self) -> str:
        """As the gateway knows it."""
        state: dict[str, str] = json.loads((self.directory / "runner.json").read_text())
        return state["runner_id"]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended by itself."""
        return self.process is not None and self.process.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status; it runs no more."""
        assert self.process is not None
        assert self._reader is not None
        self.process.send_signal(how)
        status = self.process.wait(_SECONDS)
        self._reader.join(_SECONDS)
        self.process = None
        return status

    def close(self) -> None:
        """For the end. What it said is evidence."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.end()
        evidence.keep("cli", "\n".join(self.lines))
