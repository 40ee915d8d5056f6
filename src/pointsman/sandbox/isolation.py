"""Starting an isolated command from the host side.

`launcher` carries out; this module gives it its orders, serves as the other end of its conversation, and turns what
went wrong into one line for the operator.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pointsman.sandbox.child import CannotStart, User, sandbox_user, system_call_filter, system_calls
from pointsman.sandbox.visibility import HIDDEN, Bind, locate, plan_view, program_needs, traversal_by

NOT_PROTECTED = (
    "--isolation none protects nothing: the command can reach the network without the door, read this user's files "
    "and keys, and see and signal this user's processes. Its environment points to the door, nothing more."
)
DEFAULT_PORT = 3128
_KILL_SECONDS = 2.0
_START_SECONDS = 30.0
_PASSED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)


class Isolation(StrEnum):
    """How a command is kept apart."""

    AUTO = "auto"
    NETNS = "netns"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Command:
    """What is to be run."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    """The operator's: `PATH` finds the program, `SUDO_UID` names the user."""
    cwd: str
    user: str | None = None
    expose: tuple[str, ...] = field(default=())
    """Directories that must be visible although the user may not enter what lies above them."""


def choose_isolation(requested: Isolation, *, is_root: bool) -> Isolation:
    """What `auto` means here. Raises CannotStart: never is `none` chosen for anybody."""
    if requested is Isolation.NONE or is_root:
        return Isolation.NETNS if requested is Isolation.AUTO else requested
    raise CannotStart(
        "a network namespace needs root here; run it with sudo, or accept no protection with --isolation none"
    )


class SandboxProcess:
    """A command that has been prepared and waits to be released."""

    def __init__(self, launcher: "subprocess.Popen[bytes]", conversation: "_Conversation", program: str) -> None:
        self._launcher = launcher
        self._conversation = conversation
        self._program = program
        self._exited = asyncio.get_running_loop().create_future()
        self._pidfd = os.pidfd_open(launcher.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)
        self.listener: socket.socket | None = None
        """The only thing that answers inside the sandbox; None with isolation `none`, where the caller listens."""
        self.home = ""
        """A private home directory, where there is one."""

    @property
    def pid(self) -> int:
        """Of the launcher, which lives as long as the command."""
        return self._launcher.pid

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._launcher.wait()
        if not self._exited.done():
            self._exited.set_result(None)

    async def release(self, environment: Mapping[str, str]) -> None:
        """Let the command start. Raises CannotStart."""
        await self._conversation.send({"environment": dict(environment)})
        await self._conversation.expect("started", self._program)

    async def wait(self) -> int:
        """The command's exit status; 128 + n when signal n ended it."""
        await asyncio.shield(self._exited)
        status = self._launcher.returncode
        return 128 - status if status < 0 else status

    def send_signal(self, number: int) -> None:
        """Pass a signal on to the command."""
        with contextlib.suppress(ProcessLookupError):
            if self._launcher.returncode is None:
                os.kill(self.pid, signal.SIGRTMIN + number)

    async def close(self) -> None:
        """Kill whatever is left, and forget the private home."""
        if not self._exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGRTMIN)
            try:
                async with asyncio.timeout(_KILL_SECONDS):
                    await asyncio.shield(self._exited)
            except TimeoutError:
                self._launcher.kill()
                await asyncio.shield(self._exited)
        os.close(self._pidfd)
        self._conversation.close()


async def start(command: Command, isolation: Isolation, port: int = DEFAULT_PORT) -> SandboxProcess:
    """Prepare a command up to the point where it waits for `release`. Raises CannotStart."""
    program = locate(command.argv[0], command.environ.get("PATH", os.defpath), command.cwd)
    orders: dict[str, Any] = {
        "isolation": str(isolation),
        "supervisor": os.getpid(),
        "cwd": command.cwd,
        "path": program,
        "argv": list(command.argv),
    }
    if isolation is Isolation.NETNS:
        orders |= _namespace_orders(command, program, port)
    ours, theirs = socket.socketpair()
    with theirs:
        launcher = subprocess.Popen(  # noqa: ASYNC220  # it returns at once: the launcher talks over the socket
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env={"PATH": os.defpath},
        )
    conversation = _Conversation(ours)
    process = SandboxProcess(launcher, conversation, command.argv[0])
    try:
        await conversation.send(orders)
        ready = await conversation.expect("ready", command.argv[0])
    except BaseException:
        await process.close()
        raise
    process.home = ready.get("home", "")
    if conversation.descriptor is not None:
        process.listener = socket.socket(fileno=conversation.descriptor)
        process.listener.setblocking(False)
    return process


def _namespace_orders(command: Command, program: str, port: int) -> dict[str, Any]:
    user = sandbox_user(command.user, command.environ)
    calls = system_calls()
    hidden = sorted({os.path.realpath(path) for path in HIDDEN if os.path.isdir(path)})
    view = plan_view(_needed(command, program, user), traversal_by(user), hidden)
    return {
        "port": port,
        "user": {"uid": user.uid, "gid": user.gid},
        "home_base": command.environ.get("TMPDIR", "/tmp"),  # noqa: S108  # a fresh 0700 directory is made in it
        "view": [[cover.path, [[bind.path, bind.writable] for bind in cover.binds]] for cover in view],
        "system_calls": {"keyctl": calls.keyctl, "filter": system_call_filter(calls).hex()},
    }


def _needed(command: Command, program: str, user: User) -> list[Bind]:
    can_traverse = traversal_by(user)
    needed = [Bind(os.path.realpath(command.cwd), writable=True)]
    for path in command.expose:
        if not os.path.exists(path):
            raise CannotStart(f"--expose {path}: no such directory; give one that exists")
        needed.append(Bind(os.path.realpath(path), writable=True))
    needed += program_needs(program, command.environ.get("PATH", os.defpath), can_traverse)
    needed += [Bind(os.path.realpath(prefix)) for prefix in (sys.prefix, sys.base_prefix)]
    return [bind for bind in needed if os.path.realpath(bind.path) == bind.path or os.path.exists(bind.path)]


class _Conversation:
    """JSON lines over a socket pair; descriptors may come along."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._buffer = b""
        self.descriptor: int | None = None

    async def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(ConnectionError):  # its end is noticed when we read
            await asyncio.get_running_loop().sock_sendall(self._socket, json.dumps(message).encode() + b"\n")

    async def expect(self, word: str, program: str) -> dict[str, Any]:
        """The next message, which must hold `word`. Raises CannotStart for a failure or an early end."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                message = await self._receive()
        except TimeoutError:
            raise CannotStart(f"cannot run {program}: the launcher did not answer; try again") from None
        if word not in message:
            raise CannotStart(_explain(message, program))
        return message

    async def _receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            await self._readable()
            data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
            if descriptors:
                self.descriptor = descriptors[0]
            if not data:
                return {"failed": "end"}
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._socket, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._socket)

    def close(self) -> None:
        self._socket.close()


def _explain(message: Mapping[str, Any], program: str) -> str:
    stage, detail = message.get("failed", "end"), message.get("detail", "")
    next_step = {
        "namespaces": "check that this kernel and container allow namespaces, or use --isolation none",
        "view": "give directories that exist with --expose, or use --isolation none",
        "listener": "report this with the line above",
        "home": "check TMPDIR",
        "privileges": "use --isolation none only if you trust the command",
        "directory": "start it in a directory that the sandbox's user may enter, or pass --user",
        "find": "check the interpreter in its first line, or --expose the directory that it is in",
        "execute": "check its mode and that the sandbox's user may read it, or pass --user or --expose",
    }.get(stage, "try again")
    return f"cannot run {program}: {detail or 'the launcher ended'}; {next_step}"


def forward_signals(process: SandboxProcess) -> Callable[[], None]:
    """Pass this process's signals on to the command; returns what ends that."""
    loop = asyncio.get_running_loop()
    for number in _PASSED:
        loop.add_signal_handler(number, process.send_signal, number)

    def stop() -> None:
        for number in _PASSED:
            loop.remove_signal_handler(number)

    return stop
