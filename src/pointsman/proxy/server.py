"""Listening sockets with one application behind them, and one bound over all their connections.

What the application answers is its own; how a connection begins is `tunnel`'s and how it goes on
`client_connection`'s.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from pointsman.core.errors import Overloaded
from pointsman.core.limits import Limits
from pointsman.proxy.client_connection import Application, ClientConnection
from pointsman.proxy.held_bodies import HeldBodies
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.tunnel import DirectTls, Doorway, Plain, Tunnel
from pointsman.proxy.turns import Steps

_DRAIN_SECONDS = 0.5
_CLIENT_RECEIVE_BUFFER = 256 * 1024


class Server:
    """Make it inside a running event loop; close it there."""

    def __init__(self, application: Application, limits: Limits, sweep: Sweep) -> None:
        self._application = application
        self._limits = limits
        self._sweep = sweep
        self._handshakes = Steps(sweep.loop)
        self._servers: list[asyncio.Server] = []
        self._bodies = HeldBodies(limits.held_body_bytes)
        self._connections: set[ClientConnection] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()

    async def serve_tunnel(self, listener: socket.socket, tls_context: Callable[[], ssl.SSLContext]) -> None:
        """Serve CONNECT to the door, then TLS."""
        doorway = self._doorway(listener, tls_context)
        await self._listen(listener, lambda: Tunnel(doorway))

    async def serve_tls(self, listener: socket.socket, tls_context: Callable[[], ssl.SSLContext]) -> None:
        """Serve connections that begin with TLS."""
        doorway = self._doorway(listener, tls_context)
        await self._listen(listener, lambda: DirectTls(doorway))

    async def serve_plain(self, listener: socket.socket) -> None:
        """Serve HTTP in clear text."""
        doorway = self._doorway(listener, _no_tls)
        await self._listen(listener, lambda: Plain(doorway))

    def _doorway(self, listener: socket.socket, tls_context: Callable[[], ssl.SSLContext]) -> Doorway:
        # Accepted sockets inherit it. Left to itself it grows to 6 MiB: so much that one client can make the loop
        # decrypt in a single turn, and that the kernel holds for each of them.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CLIENT_RECEIVE_BUFFER)
        return Doorway(self._application, self._enter, tls_context, self._limits, self._sweep, self._handshakes)

    async def _listen(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(protocol, sock=listener, backlog=1024))

    def _enter(self) -> ClientConnection:
        """A connection through the door. Raises Overloaded."""
        if len(self._connections) >= self._limits.connections:
            raise Overloaded(f"there are {self._limits.connections} connections already")
        connection = ClientConnection(
            self._application, self._limits, self._sweep, bodies=self._bodies, on_lost=self._forget
        )
        self._connections.add(connection)
        self._none_left.clear()
        return connection

    def _forget(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._none_left.set()

    @property
    def held_body_bytes(self) -> int:
        """Bytes of bodies that are held now."""
        return self._bodies.total

    @property
    def open_connections(self) -> int:
        """Clients that are connected now."""
        return len(self._connections)

    def stop_requests_of(self, account: str, because: str) -> None:
        """End those that are being served, each with an error for its client. Looks at every connection: it is rare."""
        for connection in tuple(self._connections):
            connection.stop(account, because)

    async def close(self) -> None:
        """Stop listening, give requests in progress half a second, then cut what is left."""
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._none_left.wait()
        for connection in tuple(self._connections):
            connection.abort("shutting_down")
        await asyncio.sleep(0)


def _no_tls() -> ssl.SSLContext:
    raise RuntimeError("this listener speaks no TLS")
