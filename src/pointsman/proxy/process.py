"""A server as a process: its event loop, what ends it, its listening sockets and the line that names them."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from pointsman.proxy.memory import give_back_memory


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a program's main coroutine on the event loop of the data plane."""
    give_back_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def open_files(wanted: int) -> int:
    """Let this process hold `wanted` files open, connections among them, as far as it may; how many it can now.

    1,024 are usual, and a listener that takes more clients than that takes what the database needs as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        with contextlib.suppress(ValueError, OSError):  # a kernel or container that says no
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if soft == resource.RLIM_INFINITY else soft


def until_signalled(*numbers: signal.Signals) -> tuple[asyncio.Event, Callable[[], None]]:
    """An event that a signal sets, and what restores the handlers."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in numbers:
        loop.add_signal_handler(number, stop.set)

    def restore() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return stop, restore


async def until_ended(main: Coroutine[Any, Any, int], *numbers: signal.Signals) -> int:
    """Run `main`, which a signal cancels: what it has begun is undone, and the status is 128 + n.

    A signal that this process was started to ignore is ignored still. `main` may take one over by a handler of its
    own.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "it runs in a task"
    came: list[int] = []

    def end(number: int) -> None:
        if not came:  # a second one would break the undoing off
            came.append(number)
            task.cancel()

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heeded:
        loop.add_signal_handler(number, end, number)
    try:
        return await main
    except asyncio.CancelledError:
        if not came:
            raise
        task.uncancel()
        return 128 + came[0]
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def bind(address: tuple[str, int]) -> socket.socket:
    """A listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=1024)


def ready_text(**listeners: tuple[str, int]) -> str:
    """What the one line says that tells that a server listens: `ready NAME=HOST:PORT …`."""
    places = (f"{name}={f'[{host}]' if ':' in host else host}:{port}" for name, (host, port) in listeners.items())
    return " ".join(("ready", *places))


def bound_address(listener: socket.socket) -> tuple[str, int]:
    """Where a socket listens, with the port that it really got."""
    host, port = listener.getsockname()[:2]
    return host, port
