"""Starting an isolated command and staying with it: the supervisor's side of `launcher`.

The caller serves `SandboxProcess.listener`, the command's only way out, and only then releases the command. Not
here: the variables it gets (`environment`), what it sees (`visibility`), whom it runs as (`child`).
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pointsman.sandbox.child import CannotStart, Failure, User, system_call_filter, system_calls
from pointsman.sandbox.hosts import hosts_file
from pointsman.sandbox.visibility import HIDDEN, Bind, Cover, locate, plan_view, program_needs, traversal_by

LAUNCHER = (
    *(sys.executable, "-I", "-S", "-X", "utf8", "-c"),
    "import os, sys; sys.path.append(sys.argv[1]); from launcher.main import main; os._exit(main())",
    str(Path(__file__).parent),
)
"""Starts `launcher`, given the number of a descriptor. Neither other packages nor our own are in its reach."""
COULD_NOT_START = 125
TLS_PORT = 443
"""Where clients that ignore proxy variables look for the door; its URL names no other."""
PASSED_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
"""What the supervisor hands to `SandboxProcess.send_signal` instead of obeying it."""

_SETUP_SECONDS = 30.0  # takes 0.1; a machine that needs this long is broken
_LISTENERS = 2
_END_SECONDS = 5.0  # SIGKILL to everything inside; only the kernel can be slow
_END = signal.SIGRTMIN

UNPROTECTED_WARNING = """\
pointsman: WARNING: --isolation none: this command is NOT isolated. Nothing stops it from
pointsman: WARNING:   - reaching any host and any local service without the proxy (it need only ignore the variables)
pointsman: WARNING:   - reading and changing every file that you can, keys, tokens and shell start-up files included
pointsman: WARNING:   - seeing, tracing and stopping your other processes, this proxy and the keys in it included
pointsman: WARNING:   - typing into this terminal
pointsman: WARNING: Only its environment was cleaned of keys. Run as root with --isolation netns to isolate it.
"""


class Isolation(StrEnum):
    """How a command is kept from everything but the proxy."""

    AUTO = "auto"
    NETNS = "netns"
    NONE = "none"


class IsolationRefused(CannotStart):
    """The isolation asked for is not possible here."""


def choose_isolation(requested: Isolation, *, is_root: bool) -> Isolation:
    """Never AUTO, and NONE only for who asked for it. Raises IsolationRefused."""
    if requested is Isolation.NONE or is_root:
        return Isolation.NONE if requested is Isolation.NONE else Isolation.NETNS
    asked = "--isolation netns" if requested is Isolation.NETNS else "isolation"
    raise IsolationRefused(
        f"{asked} needs root, to make a network namespace: run it with sudo (the command still runs as you), or give "
        "up isolation with --isolation none"
    )


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and as whom."""

    argv: tuple[str, ...]
    user: User | None
    """None: as the caller; only with isolation `none`."""
    cwd: str
    """Absolute."""
    search_path: str
    """PATH, for finding `argv[0]`."""
    expose: tuple[str, ...] = ()
    """Directories or files that must stay visible, relative to `cwd`."""


def view_of(command: Command, user: User, prefixes: Sequence[str]) -> tuple[str, tuple[Cover, ...]]:
    """The path of the program, and the covers that leave `command` what it needs. Raises CannotStart.

    `prefixes` are the trees of our own interpreter, which CMD very often is, or starts.
    """
    can_traverse = traversal_by(user)
    program = locate(command.argv[0], command.search_path, command.cwd)
    shown = [os.path.realpath(command.cwd)]
    for each in command.expose:
        path = os.path.realpath(os.path.join(command.cwd, each))
        if not os.path.exists(path):
            raise CannotStart(f"--expose {each}: no such file or directory")
        shown.append(path)
    for path in shown:
        if os.path.isdir(path) and not can_traverse(path):
            way_out = "start from another directory" if path == shown[0] else "leave it out of --expose"
            raise CannotStart(f"{user.name} may not enter {path}: {way_out}, or choose another --user")
    needs = {Bind(path, writable=True) for path in shown}
    needs.update(Bind(os.path.realpath(prefix)) for prefix in prefixes)
    needs.update(program_needs(program, command.search_path, can_traverse))
    hidden = [path for path in HIDDEN if os.path.isdir(path) and not os.path.islink(path)]
    return program, plan_view(needs, can_traverse, hidden)


class SandboxProcess:
    """A command that was started, or soon will be. Belongs to one event loop; `close` must be called."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, command: Command) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._command = command
        self._identity: dict[str, str] = {}
        self._home: str | None = None
        self._buffer = b""
        self._terminal = _own_terminal()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._ended)
        self._listeners: list[socket.socket] = []

    @property
    def pid(self) -> int:
        """Of the process on this side that stands for the command and ends with it."""
        return self._process.pid

    @property
    def listener(self) -> socket.socket:
        """Bound and listening: the proxy's port as the command sees it. Closed by `close`."""
        return self._listeners[0]

    @property
    def direct_listener(self) -> socket.socket | None:
        """Port 443 of the address that the command's hosts file gives the door; None without isolation."""
        return self._listeners[1] if len(self._listeners) > 1 else None

    async def prepare(self, orders: Mapping[str, Any], listener: socket.socket | None) -> None:
        """Send the orders and wait until everything but the command is there. `start` calls it."""
        self._listeners = [] if listener is None else [listener]
        await self._send(orders)
        ready = await self._receive()
        if user := self._command.user:
            self._home = ready["home"]
            self._identity = {"HOME": ready["home"], "USER": user.name, "LOGNAME": user.name}
        for each in self._listeners:
            each.setblocking(False)

    async def release(self, environment: Mapping[str, str]) -> None:
        """Let the command start, with `environment` and its own HOME, USER and PWD. Raises CannotStart."""
        variables = {**environment, **self._identity, "PWD": self._command.cwd}
        await self._send({"environment": {_text(name): _text(value) for name, value in variables.items()}})
        await self._receive()
        self._loop.add_reader(self._control, self._suspended)

    async def wait(self) -> int:
        """The command's exit status, 128 + n when signal n ended it. Nothing of it is left by then."""
        return await asyncio.shield(self._exit)

    def send_signal(self, number: int) -> None:
        """Pass a signal on to the command, unless its terminal has given it the same one already."""
        if not 1 <= number <= 30:
            raise ValueError(f"signal {number} cannot be passed on")
        self._signal(_END + number)

    async def close(self) -> None:
        """End whatever is left and remove the private HOME. May be called twice."""
        if self._control.fileno() != -1:
            # A launcher that still waits for its orders is not listening for signals.
            self._loop.remove_reader(self._control)
            self._control.close()
        if not self._exit.done():
            self._signal(_END)
            try:
                async with asyncio.timeout(_END_SECONDS):
                    await self.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await self.wait()
        for each in self._listeners:
            each.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        if self._home is not None:
            # The keeper removes it, unless it was killed. In a thread: it may hold a package manager's cache.
            await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)

    async def _send(self, message: Mapping[str, Any]) -> None:
        # A launcher that has died says more by its status.
        with contextlib.suppress(ConnectionError):
            await self._loop.sock_sendall(self._control, json.dumps(message).encode() + b"\n")

    async def _receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            await self._readable()
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, _LISTENERS)
            self._listeners += [socket.socket(fileno=descriptor) for descriptor in descriptors]
            if not data:
                raise CannotStart(f"the launcher ended unexpectedly, with status {await self.wait()}")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "failed" in message:
            failure = Failure(message["failed"], message["errno"], message["detail"])
            who = self._command.user.name if self._command.user else "you"
            raise CannotStart(failure.explain(self._command.argv[0], self._command.cwd, who))
        return message

    async def _readable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(self._control, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(self._control)

    def _suspended(self) -> None:
        """CMD stopped itself (an editor's Ctrl-Z): stop too, or the operator's shell never gets its terminal back."""
        try:
            told = self._control.recv(1 << 16)
        except ConnectionError:
            told = b""
        if not told:
            self._loop.remove_reader(self._control)
        elif self._terminal is not None:
            os.kill(os.getpid(), signal.SIGSTOP)

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()  # it has ended: this only collects it
        if self._terminal is not None:
            _take_terminal_back(self._terminal)
        self._exit.set_result(128 - status if status < 0 else status)

    def _signal(self, number: int) -> None:
        if not self._exit.done():
            signal.pidfd_send_signal(self._pidfd, number)


def _own_terminal() -> int | None:
    """The controlling terminal, when this job is in its foreground."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if os.tcgetpgrp(terminal) == os.getpgrp():
        return terminal
    os.close(terminal)
    return None


def _take_terminal_back(terminal: int) -> None:
    """An interactive shell inside leaves the terminal to its own group: ours has no number in its namespace."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    try:
        os.killpg(os.tcgetpgrp(terminal), 0)
    except ProcessLookupError:
        # Only from a group that has died: a shell that moved this job to the background keeps its terminal.
        os.tcsetpgrp(terminal, os.getpgrp())
    except OSError:
        pass  # another user's group, or the terminal is gone
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _text(value: str) -> str:
    """`value` as the launcher, which always reads UTF-8, must be given it for the same bytes to come out."""
    return os.fsencode(value).decode("utf-8", "surrogateescape")


def _orders(command: Command, isolation: Isolation, port: int) -> dict[str, Any]:
    orders: dict[str, Any] = {
        "supervisor": os.getpid(),
        "isolation": isolation.value,
        "argv": [_text(each) for each in command.argv],
        "cwd": _text(command.cwd),
    }
    if isolation is Isolation.NONE:
        return {**orders, "path": _text(locate(command.argv[0], command.search_path, command.cwd))}
    user = command.user
    if user is None:
        raise CannotStart("an isolated command needs a user to run as; name one with --user")
    program, covers = view_of(command, user, (sys.prefix, sys.base_prefix))
    calls = system_calls()
    can_traverse = traversal_by(user)
    bases = (os.path.realpath(tempfile.gettempdir()), "/tmp", "/var/tmp")  # noqa: S108 - a fresh 0700 directory there
    reachable = (base for base in bases if all(can_traverse(str(step)) for step in (*Path(base).parents, base)))
    return {
        **orders,
        "path": _text(program),
        "ports": [port, TLS_PORT],
        "hosts": _text(hosts_file(_hosts())),
        "user": {"uid": user.uid, "gid": user.gid},
        "home_base": _text(next(reachable, "/tmp")),  # noqa: S108
        "view": [[_text(each.path), [[_text(b.path), b.writable] for b in each.binds]] for each in covers],
        "system_calls": {"filter": system_call_filter(calls).hex(), "keyctl": calls.keyctl},
    }


def _hosts() -> str:
    try:
        return os.fsdecode(Path("/etc/hosts").read_bytes())
    except OSError:
        return ""


def _launch(control: socket.socket) -> subprocess.Popen[bytes]:
    # Blocked across the start, so that a Ctrl-C in the middle of it finds no half-started interpreter. The launcher
    # keeps the mask; its environment is empty because an environment can be read, and ours holds keys.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_SIGNALS)
    try:
        return subprocess.Popen(
            [*LAUNCHER, str(control.fileno())],
            pass_fds=[control.fileno()],
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        )
    except OSError as error:
        raise CannotStart(f"cannot start {sys.executable}: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


async def start(command: Command, isolation: Isolation, port: int = 3128) -> SandboxProcess:
    """Prepare `command`: everything is there but the command itself, which `release` starts. Raises CannotStart.

    The proxy's listener is on 127.0.0.1:`port`, inside the sandbox, or with isolation `none` on this host, where 0
    means any free port. Must be called on the main thread: the kernel ties the launcher's life to the thread that
    made it.
    """
    assert isolation is not Isolation.AUTO, "choose_isolation comes first"
    orders = _orders(command, isolation, port)
    listener = None
    if isolation is Isolation.NONE:
        try:
            listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        except OSError as error:
            raise CannotStart(f"cannot listen on 127.0.0.1:{port}: {error.strerror}; choose another port") from None
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            launched = _launch(theirs)
        except CannotStart:
            ours.close()
            if listener is not None:
                listener.close()
            raise
    process = SandboxProcess(launched, ours, command)
    try:
        async with asyncio.timeout(_SETUP_SECONDS):
            await process.prepare(orders, listener)
    except BaseException as error:
        await process.close()
        if isinstance(error, TimeoutError):
            raise CannotStart(f"the sandbox was not ready within {_SETUP_SECONDS:.0f} s") from None
        raise
    return process
