"""The control listener: uvicorn on a socket that is already bound, in a loop that already runs.

Owns what a client may cost: connections, heads, time without a request, time to stop. Signals, logging and the
socket's address are its caller's.
"""

import asyncio
import contextlib
import json
import math
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.gateway.rest.websocket import BoundedWebSocket


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of a control listener."""

    head_bytes: int = 64 * 1024
    """Request line and fields. Beyond it: 400, close."""
    connections: int = 256
    """At once, without runners' websockets; one runs one request. Beyond it: 503, close."""
    lines: int = 2048
    """Runners' websockets at once, with those whose token is still being judged. Beyond it: 503, close."""
    idle_seconds: float = 15.0
    """Without a complete head since the connection or its last answer, or without taking a byte of it: close."""
    stop_seconds: float = 5.0
    """For requests that run when the server is closed; then they are cancelled."""


class _Listening(Server):
    """uvicorn without its signal handlers: they are the process's, not one listener's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class ControlServer:
    """Serves an application until it is closed."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        context: ssl.SSLContext | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        """`sock` is bound, and the server's from now on. Raises OSError or ssl.SSLError for unusable files."""
        kept = limits or ListenerLimits()

        class Connection(_Connection):
            """Every connection of this server."""

            bounds = kept

        config = Config(
            app,
            http=Connection,
            ws=BoundedWebSocket,
            ws_max_size=DEFAULT_RUNNER_LIMITS.escaped_frame_bytes,
            ws_ping_interval=None,  # runners have their own heartbeat
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(kept.stop_seconds),
            timeout_keep_alive=math.ceil(kept.idle_seconds) + 1,
            h11_max_incomplete_event_size=kept.head_bytes,
        )
        config.load()
        # Given ready-made: uvicorn would read the files only when it starts to serve.
        config.ssl = context
        self._server = _Listening(config)
        # From here on a client that comes is kept waiting, not refused.
        sock.listen(config.backlog)
        self._sock = sock
        self._ended = asyncio.Event()
        self._is_serving = False

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    async def serve(self) -> None:
        """Serve until `close`. Cancelling it closes, too."""
        if self._server.should_exit:
            return
        self._is_serving = True
        try:
            await self._server.serve(sockets=[self._sock])
        finally:
            for server in getattr(self._server, "servers", ()):
                server.close()
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            self._sock.close()
            self._ended.set()

    async def close(self) -> None:
        """Stop accepting, let requests that run end within bounds, and return when all is closed."""
        self._server.should_exit = True
        if self._is_serving:
            await self._ended.wait()
        else:
            self._sock.close()


class _Connection(H11Protocol):
    """uvicorn's connection, with a bound on their number and on time without a request."""

    bounds: ListenerLimits
    _watch: asyncio.TimerHandle | None = None
    _unsent = 0
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # uvicorn's own override has this signature.
        super().connection_made(transport)
        # Counted apart: runners stay, and would keep the admin out.
        if len(self.connections) - self._lines() > self.bounds.connections:
            self._refuse(503, "Service Unavailable", "unavailable", "too many connections; try again later")
        self._arm()

    def _lines(self) -> int:
        return sum(isinstance(each, BoundedWebSocket) for each in self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._is_idle() or self.transport.get_protocol() is not self:
            self._disarm()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._disarm()
        if self._lines() >= self.bounds.lines:
            self._refuse(503, "Service Unavailable", "unavailable", "too many runners are connected; try again later")
            return
        super().handle_websocket_upgrade(event)
        line = self.transport.get_protocol()
        if isinstance(line, BoundedWebSocket) and not line.handshake_initiated:
            # Nobody would ever answer it, nor let it go.
            self._refuse(400, "Bad Request", "invalid_argument", "that is no runner's upgrade; see RFC 6455")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle():
            self._arm()

    def send_400_response(self, msg: str) -> None:
        """For bytes that are no request: our shape, and nothing glued into an answer that has begun."""
        running = None if self._is_idle() else self.cycle
        if running is None or not running.response_started:
            self.transport.write(_plain(400, "Bad Request", "invalid_argument", "that is not HTTP/1.1; see RFC 9112"))
        if running is not None:
            # Whoever reads the body is told that no more will come, and what it answers goes nowhere.
            running.disconnected = True
            running.message_event.set()
        self._is_refused = True
        self.transport.close()

    def _refuse(self, status: int, phrase: str, code: str, message: str) -> None:
        self._is_refused = True
        self.transport.write(_plain(status, phrase, code, message))
        self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _arm(self) -> None:
        self._disarm()
        self._unsent = self.transport.get_write_buffer_size()
        self._watch = self.loop.call_later(self.bounds.idle_seconds, self._look)

    def _disarm(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        """Time is up, unless the client is still taking an answer."""
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._arm()
        else:
            self.transport.abort()


def _plain(status: int, phrase: str, code: str, message: str) -> bytes:
    """An answer outside of any request."""
    error: dict[str, Any] = {"error": {"code": code, "message": message}}
    body = json.dumps(error).encode()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
