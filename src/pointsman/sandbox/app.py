"""Composes the data plane for one sandbox: routes from a file, the tunnel, the engine, the log."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.engine.fleet import EngineFleet
from pointsman.engine.supervisor import EngineUnavailable
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.backends.http import EngineLine
from pointsman.proxy.router import Router
from pointsman.sandbox.authority import CertificateAuthority


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What `sandbox proxy` was asked for."""

    bundle: Bundle
    listen: tuple[str, int]
    ca_directory: Path
    ocsf_log: str = ""
    """A path, `-` for standard output, or empty for none."""
    plain: bool = False
    """Serve HTTP without CONNECT and TLS; for benchmarks only."""
    limits: Limits = DEFAULT_LIMITS


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a program's main coroutine on the event loop of the data plane."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@contextlib.contextmanager
def operation_log(ocsf_log: str) -> Any:
    """The log on stderr, and as OCSF lines where asked."""
    with contextlib.ExitStack() as stack:
        ocsf = None
        if ocsf_log == "-":
            ocsf = sys.stdout
        elif ocsf_log:
            descriptor = os.open(ocsf_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            ocsf = stack.enter_context(os.fdopen(descriptor, "a", encoding="utf-8"))
        log = OperationLog(lines=sys.stderr, ocsf=ocsf, wall_clock=time.time)
        try:
            yield log
        finally:
            log.flush()


@contextlib.asynccontextmanager
async def open_router(
    bundle: Bundle, log: OperationLog | None = None, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Router]:
    """A router with a local engine behind its `gguf` routes. The engine starts at first use."""
    if log is None:
        log = OperationLog(lines=None, wall_clock=time.time)
    fleet = EngineFleet(clock=time.monotonic)

    async def find_engine(candidate: Candidate) -> EngineLine:
        engine = fleet.engine(Path(candidate.endpoint.path))
        try:
            address = await engine.address()
        except EngineUnavailable as error:
            raise UpstreamUnavailable(str(error)) from None
        return EngineLine(address.socket_path, address.key, engine.cpu_seconds)

    router = Router(bundle, log, limits=limits, find_engine=find_engine)
    try:
        yield router
    finally:
        await router.close()
        await fleet.close()


def freeze_garbage() -> None:
    """Take what start-up made out of the collector's sight: a full collection then costs 0.01 ms, not 30."""
    gc.collect()
    gc.freeze()


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


def bind(address: tuple[str, int]) -> socket.socket:
    """A listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=1024)


def say_ready(name: str, listener: socket.socket) -> None:
    """The one line that tells that a server listens."""
    host, port = listener.getsockname()[:2]
    print(f"pointsman: ready {name}={f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr, flush=True)


async def run_proxy(options: ProxyOptions) -> int:
    """The proxy alone, until SIGINT or SIGTERM. Returns the exit status."""
    stop, restore = until_signalled(signal.SIGINT, signal.SIGTERM)
    authority = CertificateAuthority(time.time)
    authority.write(options.ca_directory, os.environ)
    listener = bind(options.listen)
    with operation_log(options.ocsf_log) as log:
        async with open_router(options.bundle, log, options.limits) as router:
            if options.plain:
                await router.serve_plain(listener)
            else:
                await router.serve_tunnel(listener, authority.tls_context)
            freeze_garbage()
            say_ready("proxy", listener)
            await stop.wait()
            restore()
    return 0
