"""The gateway's data listener: the data plane of the door, for clients that come without a tunnel.

Owns its paths and the shape of its own answers. This version serves `/health`; sockets, grammar, deadlines and bounds
are `proxy.server`'s.
"""

import asyncio
import itertools
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from pointsman.core.errors import MalformedRequest, RouterError
from pointsman.core.limits import DEFAULT_LIMITS, Limits
from pointsman.core.version import VERSION
from pointsman.events.operation_log import OperationLog
from pointsman.events.record import Refusal, failed_handshake, peer_of, reason_of, refusal_kind
from pointsman.proxy.client_connection import ClientConnection, without_body
from pointsman.proxy.server import Server
from pointsman.proxy.sweep import Sweep
from pointsman.wire.handshake import explain_handshake
from pointsman.wire.openai_error import openai_error_body, openai_error_of
from pointsman.wire.request import Request, RequestHead
from pointsman.wire.response import json_answer

_HEALTH = "/health"
_CHECK_SECONDS = 2.0
"""A store that takes longer is as good as gone; what asks for health often waits for 3 s or more."""
_CHECK_KEEPS = 1.0
"""Seconds; anybody who reaches the listener may ask, and must not load the store by it."""


class DataListener:
    """Make it inside a running event loop; close it there.

    `is_healthy` tells whether the store answers; that it raises counts as no. Deadlines are told by `clock`, the loop's
    by default.
    """

    def __init__(
        self,
        log: OperationLog,
        is_healthy: Callable[[], Awaitable[bool]],
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = Sweep(loop, limits.sweep_seconds, clock or loop.time)
        prefix, numbers = secrets.token_hex(6), itertools.count(1)
        application = _Paths(log, _Health(is_healthy, self._sweep.now), lambda: f"{prefix}-{next(numbers):x}")
        self._server = Server(application, limits, self._sweep)

    async def serve(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a listening socket, in clear text if there is no context, until `close`."""
        if context is None:
            await self._server.serve_plain(listener)
        else:
            await self._server.serve_tls(listener, lambda: context)

    def enforce_deadlines(self) -> None:
        """Act on what is overdue now, without waiting for the next sweep."""
        self._sweep.ask()

    async def close(self) -> None:
        """Stop listening, give requests in progress half a second, then cut what is left."""
        await self._server.close()
        self._sweep.close()


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


class _Paths:
    """What is served: an `Application` of the data plane."""

    def __init__(self, log: OperationLog, health: _Health, request_ids: Callable[[], str]) -> None:
        self._log = log
        self._health = health
        self._request_ids = request_ids

    def admit(self, head: RequestHead) -> str:
        """The path. Raises MalformedRequest for a target that has none."""
        path = head.target.partition("?")[0]
        if not path.startswith("/"):
            raise MalformedRequest("request target is not a path")
        return path

    async def serve(self, admitted: object, request: Request, client: ClientConnection) -> None:
        """Answer one request."""
        method, more = request.head.method, b""
        if admitted != _HEALTH:
            message = "there is no such path; this version serves GET /health here"
            status, body = 404, openai_error_body(404, message, "unknown_url")
        elif method not in ("GET", "HEAD"):
            message = f"{_HEALTH} is read with GET"
            status, body, more = 405, openai_error_body(405, message, "method_not_allowed"), b"allow: GET, HEAD\r\n"
        elif await self._health.ask():
            status, body = 200, msgspec.json.encode({"status": "ok", "version": VERSION})
        else:
            status, body = 503, msgspec.json.encode({"status": "degraded", "version": VERSION})
        answer = json_answer(status, body, _own_lines(self._request_ids()) + more, keep_alive=client.keep_alive)
        client.write(without_body(answer) if method == "HEAD" else answer)

    def refused(self, error: RouterError, head: RequestHead | None) -> bytes:
        """Note a request that was never served, and answer it."""
        refusal = self._refusal(error, inside=True)
        if head is not None:
            refusal.method, refusal.path = head.method, head.target
        return self._answer(error, refusal)

    def refused_connection(self, error: RouterError, peer: object) -> bytes:
        """Note a client that was not let in, and answer it."""
        refusal = self._refusal(error, inside=False)
        refusal.peer = peer_of(peer)
        return self._answer(error, refusal)

    def _refusal(self, error: RouterError, *, inside: bool) -> Refusal:
        kind, reason = refusal_kind(error, inside=inside), reason_of(error)
        refusal = Refusal(kind, self._request_ids(), self._log.now, reason, error.detail)
        refusal.status = error.status
        return refusal

    def _answer(self, error: RouterError, refusal: Refusal) -> bytes:
        self._log.append(refusal)
        return json_answer(error.status, openai_error_of(error), _own_lines(refusal.request_id), keep_alive=False)

    def handshake_failed(self, reason: str, peer: object) -> None:
        """Note a client whose TLS did not come about."""
        word, _ = explain_handshake(reason)  # the sentence is about the door
        self._log.append(failed_handshake(self._request_ids(), self._log.now, word, reason, peer_of(peer)))


def _own_lines(request_id: str) -> bytes:
    return b"x-pointsman-request-id: %b\r\n" % request_id.encode("ascii")
