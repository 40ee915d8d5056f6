"""The data plane as one object: a bundle in, sockets served, system calls answered.

It composes what is in this package. Where bundles come from, how sockets are made and what the engine is belongs to
whoever makes a Router.
"""

import asyncio
import itertools
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pointsman.bus.interface import Bus
from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import MalformedRequest, UpstreamProtocol, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS, Limits, RunnerLimits
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.answering import REPLACED_BODIES
from pointsman.proxy.backends.http import EngineBackend, EngineLine, HttpBackend
from pointsman.proxy.backends.mock import MockBackend
from pointsman.proxy.backends.runner import RunnerBackend
from pointsman.proxy.call import Backend, Call
from pointsman.proxy.client_connection import Application
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.reception import Door, Reception
from pointsman.proxy.relay import Collector
from pointsman.proxy.route_table import RouteTable
from pointsman.proxy.server import Server
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.pool import Pool
from pointsman.proxy.upstream.resolve import Resolver
from pointsman.routing.plan import select_candidate
from pointsman.wire.headers import Fields
from pointsman.wire.request import RequestHead, parse_head
from pointsman.wire.response import redacted_lines


@dataclass(frozen=True, slots=True)
class BufferedResponse:
    """A whole answer of `system_inference`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Front:
    """What a listener shows instead of the door: its rules, and what answers around them."""

    reception: Reception
    application: Callable[[Dispatcher], Application]
    """Gets what serves the requests that the reception takes in."""
    mark: bytes = b""
    """The gateway's (`routing.hops`)."""
    reach: DirectReach = ONLY_PUBLIC
    """Where confined candidates may lead to."""


class Router:
    """Make it inside a running event loop; close it there. Deadlines are told by `clock`, the loop's by default."""

    def __init__(
        self,
        bundle: Bundle,
        log: OperationLog,
        *,
        limits: Limits = DEFAULT_LIMITS,
        find_engine: Callable[[Candidate], Awaitable[EngineLine]] | None = None,
        clock: Callable[[], float] | None = None,
        front: Front | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._limits = limits
        self._log = log
        self._sweep = Sweep(loop, limits.sweep_seconds, clock or loop.time)
        self._resolver = Resolver()
        self._confined = Resolver((ONLY_PUBLIC if front is None else front.reach).refused)
        self._pool = Pool(limits, self._sweep, self._resolver, self._confined)
        self.routes = RouteTable(bundle)
        http = HttpBackend(self._pool, limits, self._sweep, b"" if front is None else front.mark)
        self._backends: dict[str, Backend] = {"http": http, "https": http, "mock": MockBackend(limits)}
        if find_engine is not None:
            self._backends["gguf"] = EngineBackend(self._pool, limits, self._sweep, find_engine)
        prefix, numbers = secrets.token_hex(6), itertools.count(1)
        self._dispatcher = Dispatcher(
            Door(self.routes) if front is None else front.reception,
            self._backends,
            log,
            limits,
            clock=self._sweep.now,
            request_ids=lambda: f"{prefix}-{next(numbers):x}",
        )
        application = self._dispatcher if front is None else front.application(self._dispatcher)
        self._server = Server(application, limits, self._sweep)

    def serve_runners(self, bus: Bus, now: Callable[[], float], limits: RunnerLimits = DEFAULT_RUNNER_LIMITS) -> None:
        """Serve models beside runners too, asked over a bus. `now`: seconds since the epoch."""
        self._backends["runner"] = RunnerBackend(bus, now, self._limits, limits)

    async def serve_tunnel(self, listener: socket.socket, tls_context: Callable[[], ssl.SSLContext]) -> None:
        """Serve CONNECT to the door on a listening socket, until `close`."""
        await self._server.serve_tunnel(listener, tls_context)

    async def serve_tls(self, listener: socket.socket, tls_context: Callable[[], ssl.SSLContext]) -> None:
        """Serve clients that come to the door without CONNECT, with the same checks, until `close`."""
        await self._server.serve_tls(listener, tls_context)

    async def serve_plain(self, listener: socket.socket) -> None:
        """Serve the same requests without CONNECT and TLS. For benchmarks; nothing authenticates the client."""
        await self._server.serve_plain(listener)

    async def system_inference(
        self, protocol: str, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> BufferedResponse:
        """Call the `sandbox-system` route in process; no request through a listener reaches it.

        The answer is whole: at most `Limits.response_body_bytes`, within the route's timeout (0: 60 s). Raises
        NotConfigured when there is no system route, NoCompatibleRoute, MalformedRequest, UpstreamUnavailable
        (also for a timeout) and UpstreamProtocol (also for a body that is cut or too large).
        """
        candidate = select_candidate(self.routes.bundle.system_routes, protocol)
        head = RequestHead(method, path, 1, _checked_fields(method, path, headers))
        call = Call(candidate, protocol, head, path, body)
        try:
            async with asyncio.timeout(candidate.timeout_seconds or self._limits.buffered_seconds):
                return await self._collect(call)
        except TimeoutError:
            raise UpstreamUnavailable("no complete response in time") from None

    async def fetch(self, candidate: Candidate, path: str) -> BufferedResponse:
        """Read a path of an upstream, whole, as nobody's request. Raises RouterError; the caller bounds the time."""
        head = RequestHead("GET", path, 1, [])
        return await self._collect(Call(candidate, InferenceProtocol.MODEL_DISCOVERY, head, path, b""))

    async def _collect(self, call: Call) -> BufferedResponse:
        response = await self._backends[call.candidate.endpoint.scheme].open(call)
        try:
            collector = Collector()
            truncated = await response.relay(collector)
            if truncated:
                raise UpstreamProtocol(truncated)
            head = response.head
            replaced = REPLACED_BODIES.get(head.status)
            lines = head.relayed if replaced is None else redacted_lines(head, call.candidate.api_key)
            body = collector.value() if replaced is None else replaced
            return BufferedResponse(head.status, tuple(_split_line(line) for line in lines), body)
        finally:
            response.close()

    @property
    def held_body_bytes(self) -> int:
        """Bytes of bodies that are held now."""
        return self._server.held_body_bytes

    @property
    def known_origins(self) -> int:
        """Origins, keys told apart, that are used or have a connection."""
        return self._pool.known_origins

    @property
    def open_connections(self) -> int:
        """Clients that are connected now."""
        return self._server.open_connections

    def stop_requests_of(self, account: str, because: str) -> None:
        """End what is being served for an account, in one word of `events.reasons.REASONS`."""
        self._server.stop_requests_of(account, because)

    def enforce_deadlines(self) -> None:
        """Act on what is overdue now, without waiting for the next sweep."""
        self._sweep.ask()

    async def close(self) -> None:
        """Stop listening, give requests in progress half a second, then cut what is left."""
        await self._server.close()
        self._pool.close()
        self._resolver.close()
        self._confined.close()
        self._sweep.close()
        self._log.flush()


def _split_line(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(": ")
    return name, value


def _checked_fields(method: str, path: str, headers: Sequence[tuple[str, str]]) -> Fields:
    """The header of a system call, held to the grammar of a client's. Raises MalformedRequest."""
    lines = [f"{method} {path} HTTP/1.0", *(f"{name}: {value}" for name, value in headers)]
    try:
        head = parse_head("".join(line + "\r\n" for line in lines).encode("latin-1"), DEFAULT_LIMITS)
    except UnicodeEncodeError:
        raise MalformedRequest("a system call's path and headers must be Latin-1 text") from None
    if not head.target.startswith("/") or len(head.fields) != len(headers):
        raise MalformedRequest("a system call needs an absolute path, and one value per header")
    return head.fields
