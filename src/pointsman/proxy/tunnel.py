"""The proxy's door: TLS, then HTTP on the same connection; before it CONNECT, where the client uses a proxy."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import cast

from pointsman.core.errors import NotInference, RequestTimeout, RouterError
from pointsman.core.limits import Limits
from pointsman.events.printable import told_authority
from pointsman.proxy.client_connection import LINGER_SECONDS, Application, ClientConnection, without_body
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.tls_transport import TlsTransport
from pointsman.proxy.turns import Steps
from pointsman.routing.pattern import is_door
from pointsman.wire.connect import ESTABLISHED, read_connect
from pointsman.wire.handshake import HANDSHAKE_TIMEOUT


class Handshake:
    """The deadline of a connection's TLS handshake, and what is told of its failure."""

    def __init__(self, transport: asyncio.Transport, inner: ClientConnection, doorway: "Doorway") -> None:
        self._transport = transport
        self._inner = inner
        self._application = doorway.application
        self._sweep = doorway.sweep
        self._deadline = self._sweep.now() + doorway.limits.tls_handshake_seconds
        self._overdue = False
        self._sweep.add(self)

    def settled(self, failure: str) -> None:
        """The handshake is over, one way or the other: its deadline is not ours any more."""
        self._sweep.discard(self)
        if failure:
            # Never made, so TLS does not tell it that it is lost; the router would keep it for ever.
            self._inner.connection_lost(None)
            reason = HANDSHAKE_TIMEOUT if self._overdue else failure
            self._application.handshake_failed(reason, self._transport.get_extra_info("peername"))

    def sweep(self, now: float) -> None:
        """Close what has not become a TLS connection in time."""
        if now >= self._deadline:
            self._overdue = True
            self._sweep.discard(self)
            self._transport.abort()


@dataclass(frozen=True, slots=True)
class Doorway:
    """How a connection goes on once TLS may begin on it, whatever came before."""

    application: Application
    connection: Callable[[], ClientConnection]
    """Raises Overloaded when there are too many."""
    tls_context: Callable[[], ssl.SSLContext]
    limits: Limits
    sweep: Sweep
    handshakes: Steps
    """Of all connections of the listeners, in turns."""

    def start_tls(self, transport: asyncio.Transport, inner: ClientConnection, received: bytes = b"") -> None:
        """Hand the transport to TLS, and to `inner` behind it; `received` is what has been read of it already."""
        handshake = Handshake(transport, inner, self)
        tls = TlsTransport(
            self.tls_context(),
            inner,
            server_side=True,
            on_settled=handshake.settled,
            take_turns=self.handshakes.add,
        )
        transport.set_protocol(tls)
        tls.connection_made(transport)
        if received:
            tls.data_received(received)


class DirectTls(asyncio.Protocol):
    """A connection that begins with TLS, from a client that was led here by name and not by proxy variables."""

    def __init__(self, doorway: Doorway) -> None:
        self._doorway = doorway

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        try:
            inner = self._doorway.connection()
        except RouterError as error:
            # In clear nothing can be said to a client that expects TLS.
            self._doorway.application.refused_connection(error, raw.get_extra_info("peername"))
            raw.abort()
            return
        self._doorway.start_tls(raw, inner)


class Plain(asyncio.Protocol):
    """A connection in clear text; only where nothing but this machine can reach it, or TLS ends before us."""

    def __init__(self, doorway: Doorway) -> None:
        self._application = doorway.application
        self._connection = doorway.connection
        self._sweep = doorway.sweep
        self._transport: asyncio.Transport | None = None
        self._deadline = inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        try:
            inner = self._connection()
        except RouterError as error:
            raw.write(self._application.refused_connection(error, raw.get_extra_info("peername")))
            # Closed for writing only: a reset, for bytes on the way to us, could overtake the answer.
            raw.write_eof()
            self._transport = raw
            self._deadline = self._sweep.now() + LINGER_SECONDS
            self._sweep.add(self)
            return
        raw.set_protocol(inner)
        inner.connection_made(raw)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sweep.discard(self)
        self._transport = None

    def sweep(self, now: float) -> None:
        """Close what was refused and lingers."""
        if now >= self._deadline and self._transport is not None:
            self._sweep.discard(self)
            self._transport.abort()


class Tunnel(asyncio.Protocol):
    """Reads CONNECT in clear, refuses what is not the door, and hands the connection to TLS."""

    def __init__(self, doorway: Doorway) -> None:
        self._doorway = doorway
        self._application = doorway.application
        self._limits = doorway.limits
        self._sweep = doorway.sweep
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
                raise NotInference(_denied(host, port), f"{host}:{port}")
            inner = self._doorway.connection()
        except RouterError as error:
            self._refused = True
            answer = self._application.refused_connection(error, self._peer())
            self._transport.write(without_body(answer) if self._buffer.startswith(b"HEAD ") else answer)
            # Closed for writing only: a reset, for bytes still on the way to us, could overtake the answer.
            self._transport.write_eof()
            self._deadline = self._sweep.now() + LINGER_SECONDS
            return
        self._buffer = b""
        self._sweep.discard(self)
        self._transport.write(ESTABLISHED)
        self._doorway.start_tls(self._transport, inner, rest)

    def sweep(self, now: float) -> None:
        """Close what has not asked for the door in time, and what was refused and lingers."""
        if now >= self._deadline and self._transport is not None:
            self._sweep.discard(self)
            if self._buffer and not self._refused:
                self._application.refused_connection(RequestTimeout("no complete CONNECT in time"), self._peer())
            self._transport.abort()

    def _peer(self) -> object:
        return self._transport.get_extra_info("peername") if self._transport is not None else None


def _denied(host: str, port: str) -> str:
    host, port = told_authority(f"{host}:{port}")
    return f"CONNECT to {host[:100]!r} port {port!r}; only inference.local:443 is served"
