"""Calls over HTTP/1.1: to providers, and over a unix socket to the local engine."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pointsman.core.candidate import Candidate
from pointsman.core.candidate_cache import CandidateCache
from pointsman.core.limits import Limits
from pointsman.core.secret import Secret
from pointsman.proxy.call import Call
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.exchange import Exchange, Patience, StaleConnection
from pointsman.proxy.upstream.pool import ConnectionRefused, Origin, OriginPool, Pool
from pointsman.routing.rewrite import RequestTemplate
from pointsman.wire.json_model import Pieces, with_model

_WORKING_SHARE = 0.01
"""An engine that used less of a core than this was not reading a prompt, only waiting for work."""


class _Prepared:
    """What is derived from a candidate once and used for all of its requests."""

    __slots__ = ("origin", "patience", "template")

    def __init__(self, candidate: Candidate, pool: Pool, limits: Limits, mark: bytes) -> None:
        endpoint = candidate.endpoint
        credential = candidate.api_key.reveal() if candidate.api_key else ""
        self.template = RequestTemplate(candidate, credential, endpoint.authority, mark)
        self.origin = pool.origin(
            Origin(
                endpoint.host,
                endpoint.port,
                tls=endpoint.scheme == "https",
                ca_bundle=candidate.ca_bundle,
                key=candidate.api_key,
                is_confined=candidate.is_confined,
            )
        )
        self.patience = Patience(candidate.timeout_seconds or limits.response_header_seconds)


class HttpBackend:
    """Calls providers. `mark`: the gateway's, empty in a sandbox (`routing.hops`)."""

    def __init__(self, pool: Pool, limits: Limits, sweep: Sweep, mark: bytes = b"") -> None:
        self._limits = limits
        self._sweep = sweep
        self._prepared = CandidateCache(lambda candidate: _Prepared(candidate, pool, limits, mark))

    async def open(self, call: Call) -> Exchange:
        """Send the request, over a kept connection if there is one, and wait for the head."""
        prepared = self._prepared.get(call.candidate)
        request = encode_call(call, prepared.template, self._limits)
        return await send(call, request, prepared.origin, self._sweep, self._limits, prepared.patience)


def encode_call(call: Call, template: RequestTemplate, limits: Limits) -> list[bytes | memoryview]:
    """The bytes of a request, its model pinned. Raises MalformedRequest for a body that cannot be pinned."""
    method = call.head.method
    if method == "GET" and not call.body:
        pieces: Pieces = ()
    else:
        place = call.place_of_model(limits.json_keys)
        # A name that is kept may be spelled with escapes.
        pieces = (call.body,) if call.keeps_model else with_model(call.body, place, template.model)
    if call.hashes is not None:
        call.hashes.send(pieces)
    return template.encode(method, call.path, call.head.values, pieces)


async def send(
    call: Call, request: list[bytes | memoryview], origin: OriginPool, sweep: Sweep, limits: Limits, patience: Patience
) -> Exchange:
    """One attempt. A kept connection that dies without a byte of response is replaced once."""
    connection = origin.take() or await origin.dial()
    while True:
        exchange = Exchange(connection, limits, sweep, patience, reused=connection.used)
        try:
            call.is_sent = True
            connection.send(exchange, request)
            await exchange.opened()
        except StaleConnection:
            exchange.close()
            connection = await origin.dial()
        except BaseException:
            exchange.close()
            raise
        else:
            return exchange


@dataclass(frozen=True, slots=True)
class EngineLine:
    """How to reach a local engine that is ready."""

    socket_path: str
    key: Secret
    cpu_seconds: Callable[[], float]
    """CPU time it has used; while that grows it is at work on the prompt, and worth waiting for."""
    until_dead: Callable[[], Awaitable[None]]
    """Returns when it has ended, or when it evidently will not."""


class EngineBackend:
    """Calls the local engine: the same HTTP, over its unix socket."""

    def __init__(
        self, pool: Pool, limits: Limits, sweep: Sweep, find_engine: Callable[[Candidate], Awaitable[EngineLine]]
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._sweep = sweep
        self._find_engine = find_engine

    async def open(self, call: Call) -> Exchange:
        """Start the engine if need be, then call it."""
        line = await self._find_engine(call.candidate)
        try:
            return await self._open(call, line)
        except ConnectionRefused:
            # It is dying: its socket goes a moment before its process does. Nothing was sent.
            await line.until_dead()
        return await self._open(call, await self._find_engine(call.candidate))

    async def _open(self, call: Call, line: EngineLine) -> Exchange:
        template = RequestTemplate(call.candidate, line.key.reveal(), "localhost")
        origin = self._pool.origin(Origin("engine", 0, unix_socket=line.socket_path))
        request = encode_call(call, template, self._limits)
        timeout = call.candidate.timeout_seconds
        if timeout:
            return await send(call, request, origin, self._sweep, self._limits, Patience(timeout))
        seconds = self._limits.response_header_seconds
        patience = Patience(seconds, _while_working(line.cpu_seconds, seconds * _WORKING_SHARE))
        return await send(call, request, origin, self._sweep, self._limits, patience)


def _while_working(cpu_seconds: Callable[[], float], least: float) -> Callable[[], bool]:
    """Whether the engine has used the CPU for more than `least` seconds since it was asked last."""
    seen = cpu_seconds()

    def working() -> bool:
        nonlocal seen
        before, seen = seen, cpu_seconds()
        return seen > before + least

    return working
