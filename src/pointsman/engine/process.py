"""One child process and all that exists because of it: its directory, its socket, its pipes.

Not here: when to start one and what to do when it has died (`supervisor`).
"""

import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.core.secret import Secret
from pointsman.engine.diagnosis import first_complaint, how_it_ended
from pointsman.engine.model_file import check_model_file

_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
_KEPT_MESSAGES = 4096
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_SOCKET_NAME = "engine.sock"


class EngineUnavailable(Exception):
    """The engine cannot be used now; the message is one line for the operator."""


def _spare_threads() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run."""

    threads: int = field(default_factory=_spare_threads)
    """One core stays with the proxy: llama.cpp's spin barriers collapse when another process takes their core."""
    context_tokens: int = 8192
    """Prompt and answer together; a model that was trained on fewer gets as many as that."""
    load_seconds: float = 600.0
    """For a large file on a slow disk."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where a ready engine listens: HTTP/1.1, `Authorization: Bearer` with the key."""

    socket_path: str
    """Means something in this process only, and until the child is replaced: dial it, don't keep it."""
    key: Secret


class EngineProcess:
    """A child, from its launch to its end. Made by `launch`; whoever holds it calls `end`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._messages: asyncio.Task[bytes] | None = None
        self._socket = -1
        self.key = Secret(secrets.token_urlsafe(32))

    @property
    def pid(self) -> int:
        """Of the child; meaningful while it is alive."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs now. The system is asked, since the event loop may not have heard yet."""
        return self._status() is None

    @property
    def address(self) -> EngineAddress:
        """Where it listens."""
        return EngineAddress(f"/proc/self/fd/{self._socket}", self.key)

    @property
    def ending(self) -> str:
        """How it ended, for the operator."""
        return how_it_ended(self._status())

    def _status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            left = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # the loop is to collect it
        except ChildProcessError:
            return 0  # collected, but not yet told
        if left is None:
            return None
        return left.si_status if left.si_code == os.CLD_EXITED else -left.si_status

    def cpu_seconds(self) -> float:
        """CPU time used so far, 0 when it has gone. It grows while a prompt is read, long before the first token."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    async def start(self, orders: dict[str, Any], seconds: float) -> None:
        """Have it load and listen. Raises EngineUnavailable."""
        process = self._process
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise EngineUnavailable("the engine's pipes are missing")
        self._messages = asyncio.get_running_loop().create_task(_last_bytes(process.stderr))
        line = json.dumps({**orders, "socket_name": _SOCKET_NAME, "key": self.key.reveal()}).encode() + b"\n"
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                process.stdin.write(line)
                await process.stdin.drain()
                answer = await process.stdout.readline()
                if not answer:
                    await process.wait()
        if answer != b'{"ready": true}\n':
            raise EngineUnavailable(await self._why_not(answer))
        # With a descriptor of the socket its directory can go at once: then nothing is left behind, however this
        # process ends, and nobody else finds the socket.
        self._socket = os.open(Path(orders["directory"], _SOCKET_NAME), os.O_PATH | os.O_CLOEXEC)

    async def _why_not(self, answer: bytes) -> str:
        reason = json.loads(answer)["error"] if answer.endswith(b"\n") else self.ending
        self._kill()
        messages = await self._messages if self._messages is not None else b""
        return first_complaint(messages.decode("utf-8", "replace")) or reason

    def _kill(self) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()  # at once: unloading while it generates crashes it anyway

    async def wait(self) -> None:
        """Until it has ended by itself."""
        await self._process.wait()

    async def end(self) -> None:
        """End it if it still runs, and give back what it held."""
        self._kill()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._messages is not None:
            await self._messages
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1


async def launch(model: Path, options: EngineOptions) -> EngineProcess:
    """Start a child on a model file and wait until it serves. Raises EngineUnavailable; leaves nothing behind then."""
    try:
        await asyncio.to_thread(check_model_file, model)
    except ValueError as error:
        raise EngineUnavailable(str(error)) from None
    try:
        with tempfile.TemporaryDirectory(prefix="pointsman-engine-", ignore_cleanup_errors=True) as directory:
            return await _launch(_orders(model, options, directory), options.load_seconds)
    except EngineUnavailable as error:
        raise EngineUnavailable(f"the engine could not load {model.name}: {error}") from None
    except OSError as error:
        raise EngineUnavailable(f"the engine could not be started: {error}") from None


def _orders(model: Path, options: EngineOptions, directory: str) -> dict[str, Any]:
    return {
        "model_path": str(model.absolute()),
        "model_name": model.stem,
        "directory": directory,
        "threads": options.threads,
        "context_tokens": options.context_tokens,
    }


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "GGML_NO_BACKTRACE": "1"}  # else a crash would have a debugger look at it


async def _spawn() -> EngineProcess:
    spawning = asyncio.get_running_loop().create_task(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # never import from the working directory: an agent may be able to write there
            "-m",
            "pointsman.engine.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    )
    try:
        return EngineProcess(await asyncio.shield(spawning))
    except asyncio.CancelledError:
        # Cancelled halfway, uvloop kills the process without waiting for its end.
        await EngineProcess(await spawning).end()
        raise


async def _launch(orders: dict[str, Any], seconds: float) -> EngineProcess:
    child = await _spawn()
    try:
        await child.start(orders, seconds)
    except BaseException:
        await child.end()
        raise
    return child


async def _last_bytes(stream: asyncio.StreamReader) -> bytes:
    """Read a stream to its end so that its writer never blocks; keep the last few kilobytes."""
    kept = b""
    while piece := await stream.read(_KEPT_MESSAGES):
        kept = (kept + piece)[-_KEPT_MESSAGES:]
    return kept
