"""Starting an isolated command and staying with it: the supervisor's side of `launcher`.

The caller serves `SandboxProcess.listener`, the command's only way out, and only then releases the command. Not
here: which isolation it is (`choice`), the variables it gets (`environment`), what it sees (`orders`), whom it runs
as (`child`).
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
from collections.abc import Mapping
from typing import Any

from pointsman.sandbox.child import CannotStart, Failure
from pointsman.sandbox.choice import Isolation, IsolationRefused, explain_bubblewrap
from pointsman.sandbox.host import user_namespace_settings
from pointsman.sandbox.orders import Command, launcher, orders_for, text
from pointsman.sandbox.visibility import PRIVATE_HOME

COULD_NOT_START = 125
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


class SandboxProcess:
    """A command that was started, or soon will be. Belongs to one event loop; `close` must be called."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, command: Command) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._command = command
        self._identity: dict[str, str] = {}
        self._private: str | None = None
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
        self._private = orders.get("private")
        await self._receive()
        if (user := self._command.user) and self._private:
            home = os.path.join(self._private, PRIVATE_HOME)
            self._identity = {"HOME": home, "USER": user.name, "LOGNAME": user.name}
        for each in self._listeners:
            each.setblocking(False)

    async def release(self, environment: Mapping[str, str]) -> None:
        """Let the command start, with `environment` and its own HOME, USER and PWD. Raises CannotStart."""
        variables = {**environment, **self._identity, "PWD": self._command.cwd}
        await self._send({"environment": {text(name): text(value) for name, value in variables.items()}})
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
        if self._private is not None:
            # The keeper removes it, unless it was killed. In a thread: it may hold a package manager's cache.
            await asyncio.to_thread(shutil.rmtree, self._private, ignore_errors=True)

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
            if failure.stage == "bwrap":
                raise IsolationRefused(explain_bubblewrap(failure.detail, user_namespace_settings()))
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


def _launch(control: socket.socket) -> subprocess.Popen[bytes]:
    # Blocked across the start, so that a Ctrl-C in the middle of it finds no half-started interpreter. The launcher
    # keeps the mask; its environment is empty because an environment can be read, and ours holds keys.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_SIGNALS)
    try:
        return subprocess.Popen(
            [*launcher("main"), str(control.fileno())],
            pass_fds=[control.fileno()],
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        )
    except OSError as error:
        raise CannotStart(f"cannot start {sys.executable}: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


async def start(
    command: Command, isolation: Isolation, port: int = 3128, bubblewrap: str | None = None
) -> SandboxProcess:
    """Prepare `command`: everything is there but the command itself, which `release` starts. Raises CannotStart.

    The proxy's listener is on 127.0.0.1:`port`, inside the sandbox, or with isolation `none` on this host, where 0
    means any free port. `bubblewrap` is the path of bwrap, for the isolation that takes it. Must be called on the main
    thread: the kernel ties the launcher's life to the thread that made it.
    """
    assert isolation is not Isolation.AUTO, "choose_isolation comes first"
    orders = orders_for(command, isolation, port, bubblewrap)
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
