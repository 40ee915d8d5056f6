"""One engine: its child is started at first use, watched, and started again when it has died."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pointsman.core.secret import Secret
from pointsman.engine.model_file import check_model_file

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_KEPT_MESSAGES = 4096
_LONGEST_PAUSE = 30.0
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class EngineUnavailable(Exception):
    """The engine cannot be used now; the message is one line for the operator."""


class EngineState(StrEnum):
    """What the engine is doing."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run."""

    threads: int = max(1, (os.cpu_count() or 2) - 1)
    """One core stays with the proxy: llama.cpp's spin barriers collapse when another process takes their core."""
    context_tokens: int = 8192
    load_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where a ready engine listens."""

    socket_path: str
    key: Secret


class Engine:
    """Runs one model file. Use it from one event loop; `close` it there."""

    def __init__(self, model: Path, *, clock: Callable[[], float], options: EngineOptions | None = None) -> None:
        self._model = model
        self._clock = clock
        self._options = options or EngineOptions()
        self._start: asyncio.Task[EngineAddress] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._messages: asyncio.Task[bytes] | None = None
        self._directory: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._reason = ""

    @property
    def state(self) -> EngineState:
        """For status displays."""
        if self._start is None:
            return EngineState.FAILED if self._failures else EngineState.IDLE
        if not self._start.done():
            return EngineState.LOADING
        return EngineState.READY if self._alive() else EngineState.IDLE

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._process.pid if self._process is not None and self._alive() else None

    async def address(self) -> EngineAddress:
        """Start the child if it does not run; concurrent callers share one start. Raises EngineUnavailable."""
        if self._start is not None and self._start.done() and not self._alive():
            await self._discard()
        if self._start is None:
            if self._clock() < self._retry_at:
                raise EngineUnavailable(self._reason)
            self._start = asyncio.get_running_loop().create_task(self._launch())
        start = self._start
        try:
            return await asyncio.shield(start)
        except EngineUnavailable as error:
            if self._start is start:
                self._note_failure(str(error))
                await self._discard()
            raise

    def cpu_seconds(self) -> float:
        """CPU time the child has used: it grows while a prompt is being read, long before the first token."""
        pid = self.pid
        if pid is None:
            return 0.0
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    async def close(self) -> None:
        """End the child."""
        await self._discard()

    def _alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        self._reason = reason
        self._retry_at = self._clock() + min(2.0 ** (self._failures - 1), _LONGEST_PAUSE)

    async def _launch(self) -> EngineAddress:
        try:
            check_model_file(self._model)
        except ValueError as error:
            raise EngineUnavailable(str(error)) from None
        self._directory = tempfile.mkdtemp(prefix="pointsman-engine-")
        address = EngineAddress(str(Path(self._directory, "engine.sock")), Secret(secrets.token_urlsafe(32)))
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pointsman.engine.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise EngineUnavailable("the engine's pipes are missing")
        self._messages = asyncio.get_running_loop().create_task(_last_bytes(process.stderr))
        process.stdin.write(self._orders(address))
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(self._options.load_seconds):
                await process.stdin.drain()
                answer = await process.stdout.readline()
        reply = json.loads(answer) if answer.endswith(b"\n") else {"error": "it ended without an answer"}
        if "error" in reply:
            raise EngineUnavailable(f"the engine could not load {self._model.name}: {reply['error']}")
        self._failures = 0
        return address

    def _orders(self, address: EngineAddress) -> bytes:
        orders = {
            "model_path": str(self._model),
            "model_name": self._model.stem,
            "socket_path": address.socket_path,
            "key": address.key.reveal(),
            "threads": self._options.threads,
            "context_tokens": self._options.context_tokens,
        }
        return json.dumps(orders).encode() + b"\n"

    async def _discard(self) -> None:
        start, self._start = self._start, None
        if start is not None and not start.done():
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineUnavailable):
                await start
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()  # at once: unloading while it generates crashes it anyway
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
        messages, self._messages = self._messages, None
        if messages is not None:
            await messages
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


async def _last_bytes(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end so that its writer never blocks; keep the last few kilobytes."""
    kept = b""
    while piece := await stream.read(4096):
        kept = (kept + piece)[-_KEPT_MESSAGES:]
    return kept
