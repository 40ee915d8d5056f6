"""Composes the data plane for one sandbox: routes, the tunnel, the engine, the log."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pointsman.core.candidate import Bundle, keys_of
from pointsman.core.secret import Secret
from pointsman.data_plane import open_router
from pointsman.events.log_files import NO_EVENT_LOG, EventLog, operation_log
from pointsman.events.operation_log import OperationLog
from pointsman.events.record import routes_states
from pointsman.proxy.memory import freeze_garbage
from pointsman.proxy.process import bind, bound_address, ready_text, until_ended, until_signalled
from pointsman.proxy.router import Router
from pointsman.sandbox.authority import CaFiles, CertificateAuthority
from pointsman.sandbox.child import User, calling_user, sandbox_user
from pointsman.sandbox.choice import BUBBLEWRAP_PATH, UNPROTECTED_WARNING, Isolation, choose_isolation
from pointsman.sandbox.control_groups import make_control_groups
from pointsman.sandbox.environment import Door, sandbox_environment
from pointsman.sandbox.isolation import PASSED_SIGNALS, SandboxProcess, start
from pointsman.sandbox.orders import Command
from pointsman.sandbox.resources import UNBOUNDED, Resources, out_of_memory
from pointsman.sandbox.route_source import FileRoutes, GatewayRoutes, RouteSource

DEFAULT_PORT = 3128
"""Of the proxy inside a sandbox."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """What `sandbox proxy` was asked for."""

    routes: RouteSource
    listen: tuple[str, int]
    ca_directory: Path
    event_log: EventLog = NO_EVENT_LOG
    plain: bool = False
    """Serve HTTP without CONNECT and TLS; for benchmarks only."""


@contextlib.asynccontextmanager
async def open_routed(source: RouteSource, log: OperationLog) -> AsyncIterator[Router]:
    """A router with the routes of a source, which have been told. Raises GatewayFileError."""
    if isinstance(source, GatewayRoutes):
        from pointsman.sandbox.gateway_router import open_gateway_router  # grpc comes with it

        async with open_gateway_router(source, log) as router:
            yield router
        return
    _tell_routes(log, source.loaded.bundle)
    async with open_router(source.loaded.bundle, log) as router:
        yield router


async def run_proxy(options: ProxyOptions) -> int:
    """The proxy alone, until SIGINT or SIGTERM. Returns the exit status."""
    stop, restore = until_signalled(signal.SIGINT, signal.SIGTERM)
    authority = CertificateAuthority(time.time)
    authority.write(options.ca_directory, os.environ)
    listener = bind(options.listen)
    with operation_log(options.event_log) as log:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, log.reopen)
        async with open_routed(options.routes, log) as router:
            if options.plain:
                await router.serve_plain(listener)
            else:
                await router.serve_tunnel(listener, authority.tls_context)
            freeze_garbage()
            log.say(ready_text(proxy=bound_address(listener)))  # behind what was told before
            await stop.wait()
            restore()
    return 0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `sandbox run` was asked for."""

    routes: RouteSource
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    """The operator's: `PATH` finds the program, `SUDO_UID` names the user."""
    isolation: Isolation
    user: str | None = None
    expose: tuple[str, ...] = ()
    event_log: EventLog = NO_EVENT_LOG
    resources: Resources = UNBOUNDED


async def run_sandboxed(options: RunOptions) -> int:
    """Run a command behind the door; its exit status. Raises CannotStart before it runs.

    Until it runs, which may wait for a gateway, SIGTERM and SIGHUP end the attempt: 128 + n.
    """
    return await until_ended(_run_sandboxed(options), signal.SIGTERM, signal.SIGHUP)


async def _run_sandboxed(options: RunOptions) -> int:
    search_path = options.environ.get("PATH", os.defpath)
    bubblewrap = shutil.which("bwrap", path=BUBBLEWRAP_PATH)
    isolation = choose_isolation(options.isolation, is_root=os.geteuid() == 0, bubblewrap=bubblewrap)
    options = replace(options, isolation=isolation)
    isolated = isolation is not Isolation.NONE
    if not isolated:
        print(UNPROTECTED_WARNING, file=sys.stderr, end="", flush=True)
    authority = CertificateAuthority(time.time)
    async with contextlib.AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-ca-"))
        log = stack.enter_context(operation_log(options.event_log))
        os.chmod(directory, 0o755)  # noqa: S103  # certificates, for the sandbox's user to read
        files = authority.write(Path(directory), os.environ)
        groups = make_control_groups(options.resources)
        stack.push_async_callback(groups.remove)
        command = Command(
            options.argv,
            _user(options),
            os.getcwd(),
            search_path,
            options.expose,
            show=(directory,),
            blank=options.routes.files,
            groups=tuple(groups.paths),
        )
        process = await start(command, isolation, DEFAULT_PORT if isolated else 0, bubblewrap)
        try:
            return await _behind_the_door(options, process, authority.tls_context, files, log)
        finally:
            await process.close()
            if killed := groups.out_of_memory:
                print(out_of_memory(killed, options.resources), file=sys.stderr, flush=True)


def _user(options: RunOptions) -> User | None:
    match options.isolation:
        case Isolation.NONE:
            return None
        case Isolation.BWRAP:
            return calling_user(options.user, options.environ)
    return sandbox_user(options.user, options.environ)


async def _behind_the_door(
    options: RunOptions,
    process: SandboxProcess,
    tls_context: Callable[[], ssl.SSLContext],
    files: CaFiles,
    log: OperationLog,
) -> int:
    host, port = process.listener.getsockname()[:2]
    async with open_routed(options.routes, log) as router:
        bundle = router.routes.bundle
        await router.serve_tunnel(process.listener, tls_context)
        if process.direct_listener is not None:
            await router.serve_tls(process.direct_listener, tls_context)
        freeze_garbage()
        log.say(f"sandbox isolation={options.isolation} proxy={host}:{port} routes={_route_names(bundle)}")
        environment = sandbox_environment(
            options.environ,
            Door(f"http://{host}:{port}", str(files.authority), str(files.bundle)),
            secrets=(*keys_of((*bundle.routes, *bundle.system_routes)), *_own_secrets(options.routes)),
            key_variables=options.routes.loaded.key_variables if isinstance(options.routes, FileRoutes) else (),
        )
        loop = asyncio.get_running_loop()
        for number in PASSED_SIGNALS:
            loop.add_signal_handler(number, process.send_signal, number)
        try:
            await process.release(environment)
            return await process.wait()
        finally:
            for number in PASSED_SIGNALS:
                loop.remove_signal_handler(number)


def _tell_routes(log: OperationLog, bundle: Bundle) -> None:
    for state in routes_states(log.now, bundle, "file", socket.gethostname()):
        log.append(state)
    log.flush()


def _own_secrets(source: RouteSource) -> tuple[Secret, ...]:
    return (source.token,) if isinstance(source, GatewayRoutes) else ()


def _route_names(bundle: Bundle) -> str:
    return ",".join(f"{each.route}→{each.model}" for each in bundle.routes) or "none"
