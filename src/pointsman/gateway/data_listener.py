"""The gateway's data listener: the data plane of the door, for clients that come without a tunnel.

Owns the paths that it answers itself: `/health` and, by `listed_models`, `/v1/models`. Others of ours are
`data_watching`'s, inference is `proxy.dispatch`'s by the rules of `proxy.model_reception`; sockets, grammar, deadlines
and bounds are `proxy.server`'s.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import msgspec

from pointsman.bus.interface import Bus
from pointsman.core.attempts import Chain
from pointsman.core.caller import SANDBOX_TOKEN
from pointsman.core.candidate import Bundle
from pointsman.core.errors import RouterError
from pointsman.core.limits import DEFAULT_LIMITS, DEFAULT_RUNNER_LIMITS, Limits, RunnerLimits
from pointsman.core.model_errors import AccountHalted, ModelNotAuthorized
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.core.version import VERSION
from pointsman.data_plane import LocalEngines
from pointsman.events.operation_log import OperationLog
from pointsman.events.operations_record import OperationJournal
from pointsman.events.record import failed_handshake, peer_of
from pointsman.gateway.data_watching import Look, WatchedPaths
from pointsman.gateway.listed_models import MODELS_PATH, ListedModels
from pointsman.proxy.client_connection import ClientConnection, without_body
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.ledger import QuotaLedger
from pointsman.proxy.model_reception import Models
from pointsman.proxy.reception import Admitted
from pointsman.proxy.router import Front, Router
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.routing.strategies import NO_STATE, StrategyState
from pointsman.wire.handshake import explain_handshake
from pointsman.wire.openai_error import openai_error_body
from pointsman.wire.request import Request, RequestHead
from pointsman.wire.response import json_answer, own_lines

HEALTH_PATH = "/health"
"""Answered by the listener itself, as what `MODELS_PATH` begins."""
_CHECK_SECONDS = 2.0
"""A store that takes longer is as good as gone; what asks for health often waits for 3 s or more."""
_CHECK_KEEPS = 1.0
"""Seconds; anybody who reaches the listener may ask, and must not load the store by it."""


@dataclass(frozen=True, slots=True)
class Served:
    """What is served by name."""

    models: Models
    ledger: QuotaLedger
    engines: LocalEngines | None = None
    """For candidates that are model files; None where there are none."""
    stages: Stages = NO_STAGES
    journal: OperationJournal | None = None
    """Where what becomes of requests is told."""
    watched: WatchedPaths | None = None
    """Served besides; None for none."""
    runner_bus: Bus | None = None
    """How runners are asked; None where there are none."""
    runner_limits: RunnerLimits = DEFAULT_RUNNER_LIMITS
    reach: DirectReach = ONLY_PUBLIC
    """Where direct models of accounts' users may lead to."""


class DataListener:
    """Make it inside a running event loop; close it there.

    `is_healthy` tells whether the store answers; that it raises counts as no. Deadlines are told by `clock`, the loop's
    by default.
    """

    def __init__(
        self,
        log: OperationLog,
        is_healthy: Callable[[], Awaitable[bool]],
        served: Served,
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.served = served
        self.limits = limits
        self.state_of: Callable[[Chain], StrategyState] = lambda _: NO_STATE
        """What a chain's strategy remembers now."""
        now = clock or asyncio.get_running_loop().time
        health = _Health(is_healthy, now)
        listed = ListedModels(lambda candidate, path: self._router.fetch(candidate, path), limits, now)

        def application(dispatcher: Dispatcher) -> _Paths:
            dispatcher.serve_chains(served.ledger, Random(), served.journal)  # noqa: S311  # breaks ties, protects nothing
            self.state_of = dispatcher.state_of
            dispatcher.pass_stages(served.stages)
            return _Paths(log, health, served, listed, dispatcher)

        front = Front(served.models, application, served.models.mark, served.reach)
        find_engine = served.engines.find if served.engines is not None else None
        self._router = Router(Bundle(), log, limits=limits, find_engine=find_engine, clock=clock, front=front)
        if served.runner_bus is not None:
            self._router.serve_runners(served.runner_bus, time.time, served.runner_limits)

    async def serve(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a listening socket, in clear text if there is no context, until `close`."""
        if context is None:
            await self._router.serve_plain(listener)
        else:
            await self._router.serve_tls(listener, lambda: context)

    @property
    def open_connections(self) -> int:
        """Clients that are connected now."""
        return self._router.open_connections

    @property
    def held_body_bytes(self) -> int:
        """Bytes of bodies that are held now."""
        return self._router.held_body_bytes

    def halt(self, account: str) -> None:
        """End what is being served for an account. That it gets nothing more is `ModelAccess.halted`'s."""
        self._router.stop_requests_of(account, AccountHalted.code)

    def enforce_deadlines(self) -> None:
        """Act on what is overdue now, without waiting for the next sweep."""
        self._router.enforce_deadlines()

    async def close(self) -> None:
        """Stop listening, give requests in progress half a second, then cut what is left."""
        await self._router.close()


class _Health:
    """Asks the store, at most once a second however many ask."""

    def __init__(self, is_healthy: Callable[[], Awaitable[bool]], clock: Callable[[], float]) -> None:
        self._is_healthy = is_healthy
        self._clock = clock
        self._turn = asyncio.Lock()
        self._known_until = float("-inf")
        self._healthy = False

    async def ask(self) -> bool:
        """Whether the store answers."""
        async with self._turn:
            if self._clock() >= self._known_until:
                self._healthy = await self._check()
                self._known_until = self._clock() + _CHECK_KEEPS
            return self._healthy

    async def _check(self) -> bool:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await self._is_healthy()
        except Exception:  # whatever it is, the answer is no; the store's own log says why
            return False


class _Own:
    """A request that the listener answers itself."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[], Awaitable[tuple[int, bytes]]]) -> None:
        self.answer = answer
        """Status and body."""


class _Paths:
    """What is served: an `Application` of the data plane."""

    def __init__(
        self, log: OperationLog, health: _Health, served: Served, listed: ListedModels, dispatcher: Dispatcher
    ) -> None:
        self._log = log
        self._health = health
        self._models = served.models
        self._listed = listed
        self._dispatcher = dispatcher
        self._watched = served.watched

    def admit(self, head: RequestHead) -> Admitted | _Own | Look:
        """Inference is the dispatcher's. Raises RouterError."""
        path, _, query = head.target.partition("?")
        if path == HEALTH_PATH:
            return _Own(self._health_answer)
        if path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            _, table = self._models.known(head)
            return _Own(lambda: self._listed.answer(table, path))
        if self._watched is not None and self._watched.has(path):
            caller, _ = self._models.known(head)
            if caller.kind == SANDBOX_TOKEN:
                raise ModelNotAuthorized("a sandbox's token may call models, and nothing else; use a key")
            return Look(self._watched, path, query, caller.account)
        return self._dispatcher.admit(head)

    async def serve(self, admitted: object, request: Request, client: ClientConnection) -> None:
        """Answer one request."""
        if not isinstance(admitted, _Own | Look):
            await self._dispatcher.serve(admitted, request, client)
            return
        method, more = request.head.method, b""
        if method in ("GET", "HEAD"):
            if isinstance(admitted, Look):
                await admitted.paths.serve(admitted, request, client, own_lines(self._dispatcher.new_request_id(), 0))
                return
            status, body = await admitted.answer()
        else:
            message = "this path is read with GET"
            status, body, more = 405, openai_error_body(405, message, "method_not_allowed"), b"allow: GET, HEAD\r\n"
        own = own_lines(self._dispatcher.new_request_id(), 0) + more
        answer = json_answer(status, body, own, keep_alive=client.keep_alive)
        client.write(without_body(answer) if method == "HEAD" else answer)

    async def _health_answer(self) -> tuple[int, bytes]:
        if await self._health.ask():
            return 200, msgspec.json.encode({"status": "ok", "version": VERSION})
        return 503, msgspec.json.encode({"status": "degraded", "version": VERSION})

    def refused(self, error: RouterError, head: RequestHead | None) -> bytes:
        """Note a request that was never served, and answer it."""
        return self._dispatcher.refused(error, head)

    def refused_connection(self, error: RouterError, peer: object) -> bytes:
        """Note a client that was not let in, and answer it."""
        return self._dispatcher.refused_connection(error, peer)

    def handshake_failed(self, reason: str, peer: object) -> None:
        """Note a client whose TLS did not come about."""
        word, _ = explain_handshake(reason)  # the sentence is about the door
        self._log.append(
            failed_handshake(self._dispatcher.new_request_id(), self._log.now, word, reason, peer_of(peer))
        )
