"""The proxy's door: CONNECT, then TLS, then HTTP on the same connection."""

import asyncio
import ssl
from collections.abc import Callable
from math import inf
from typing import cast

from pointsman.core.errors import NotInference, RouterError
from pointsman.core.limits import Limits
from pointsman.proxy.client_connection import LINGER_SECONDS, Application, ClientConnection
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.tls_transport import TlsTransport
from pointsman.routing.pattern import is_door
from pointsman.wire.connect import ESTABLISHED, read_connect
from pointsman.wire.response import error_answer


class Tunnel(asyncio.Protocol):
    """Reads CONNECT in clear, refuses what is not the door, and hands the connection to TLS."""

    def __init__(
        self,
        connection: Callable[[], ClientConnection],
        tls_context: Callable[[], ssl.SSLContext],
        application: Application,
        limits: Limits,
        sweep: Sweep,
    ) -> None:
        self._connection = connection
        self._tls_context = tls_context
        self._application = application
        self._limits = limits
        self._sweep = sweep
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._deadline = inf
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = self._sweep.now() + self._limits.connect_head_seconds
        self._sweep.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sweep.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._refused or self._transport is None:
            return
        self._buffer += data
        try:
            connect = read_connect(self._buffer, self._limits)
            if connect is None:
                return
            host, port, rest = connect
            if not is_door(host, port):
                raise NotInference(f"CONNECT to {host[:100]!r} port {port[:10]!r}; only inference.local:443 is served")
        except RouterError as error:
            self._refused = True
            own = self._application.refused(error, None)
            self._transport.write(error_answer(error, own, keep_alive=False))
            # Closed for writing only: a reset, for bytes still on the way to us, could overtake the answer.
            self._transport.write_eof()
            self._deadline = self._sweep.now() + LINGER_SECONDS
            return
        self._buffer = b""
        self._start_tls(self._transport, rest)

    def _start_tls(self, transport: asyncio.Transport, rest: bytes) -> None:
        transport.write(ESTABLISHED)
        self._deadline = self._sweep.now() + self._limits.tls_handshake_seconds
        inner = self._connection()
        tls = TlsTransport(self._tls_context(), inner, server_side=True, on_settled=self._settled)
        transport.set_protocol(tls)
        tls.connection_made(transport)
        if rest:
            tls.data_received(rest)

    def _settled(self, _: str) -> None:
        """The handshake is over, one way or the other: its deadline is not ours any more."""
        self._sweep.discard(self)

    def sweep(self, now: float) -> None:
        """Close what has not become a TLS connection in time."""
        if now >= self._deadline and self._transport is not None:
            self._sweep.discard(self)
            self._transport.abort()
