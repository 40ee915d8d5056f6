"""Kept connections, by origin."""

import asyncio
import socket
import ssl
import weakref
from dataclasses import dataclass

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.limits import Limits
from pointsman.core.secret import Secret
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.tls_transport import TlsTransport
from pointsman.proxy.upstream.connection import UpstreamConnection
from pointsman.proxy.upstream.resolve import Resolver


class ConnectionRefused(UpstreamUnavailable):
    """Nobody listens at a local engine's socket."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a connection is kept for: two requests share one only when all of this is equal."""

    host: str
    port: int
    tls: bool = False
    ca_bundle: str = ""
    unix_socket: str = ""
    key: Secret | None = None
    """Requests with different keys may be different accounts', and a key that was replaced must not live on here."""
    is_confined: bool = False
    """Whether it is dialled under the stricter rule (`Candidate.is_confined`). What was dialled under the other one is
    never lent to it, even if both are the same server."""


class OriginPool:
    """Connections to one origin; the one used last is used next.

    It never waits for one to become free: concurrency is the client's.
    """

    def __init__(self, pool: "Pool", origin: Origin) -> None:
        self._pool = pool
        self._origin = origin
        self._keep_seconds = pool.limits.idle_tls_seconds if origin.tls else pool.limits.idle_clear_seconds
        self._idle: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()

    def add(self, connection: UpstreamConnection) -> None:
        """Know of a connection that has been made."""
        self._open.add(connection)

    def put(self, connection: UpstreamConnection) -> None:
        """Keep a connection for the next request."""
        connection.idle_since = self._pool.now()
        self._idle.append(connection)

    def remove(self, connection: UpstreamConnection) -> None:
        """Forget a connection that is gone."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def take(self) -> UpstreamConnection | None:
        """A kept connection that looks alive."""
        oldest = self._pool.now() - self._keep_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            connection.close()
        return None

    def close_idle(self, now: float) -> None:
        """Close connections that have been idle for too long at `now`."""
        oldest = now - self._keep_seconds
        for connection in [kept for kept in self._idle if kept.idle_since < oldest]:
            connection.close()

    def close(self) -> None:
        """Close every connection, whatever it is doing."""
        for connection in tuple(self._open):
            connection.close()

    async def dial(self) -> UpstreamConnection:
        """A new connection. Raises UpstreamUnavailable, after `Limits.connect_seconds` at the latest."""
        origin = self._origin
        connection = UpstreamConnection(self)
        try:
            async with asyncio.timeout(self._pool.limits.connect_seconds):
                if origin.unix_socket:
                    await asyncio.get_running_loop().create_unix_connection(lambda: connection, origin.unix_socket)
                elif origin.tls:
                    await self._dial_tls(connection)
                else:
                    sock = await self._connect()
                    await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock)
        except TimeoutError:
            raise UpstreamUnavailable(f"no connection to {origin.host}:{origin.port} in time") from None
        except ConnectionRefusedError as error:  # resolved addresses have an error of their own
            raise ConnectionRefused(f"cannot connect: {error.strerror or error}") from None
        except OSError as error:
            raise UpstreamUnavailable(f"cannot connect: {error.strerror or error}") from None
        except BaseException:
            # Given up while it is being made, a transport closes without telling: it would be kept here for ever.
            connection.close()
            self.remove(connection)
            raise
        return connection

    async def _connect(self) -> socket.socket:
        """Judged by the rule that this origin is under, whatever its name leads to now."""
        resolver = self._pool.confined if self._origin.is_confined else self._pool.resolver
        if resolver is None:
            raise UpstreamUnavailable("what an account's user has named is not dialled here")
        return await resolver.connect(self._origin.host, self._origin.port)

    async def _dial_tls(self, connection: UpstreamConnection) -> None:
        origin, loop = self._origin, asyncio.get_running_loop()
        settled: asyncio.Future[str] = loop.create_future()

        def on_settled(reason: str) -> None:
            if not settled.done():
                settled.set_result(reason)

        context = self._pool.tls_context(origin.ca_bundle)
        sock = await self._connect()
        transport, _ = await loop.create_connection(
            lambda: TlsTransport(
                context, connection, server_side=False, server_hostname=origin.host, on_settled=on_settled
            ),
            sock=sock,
        )
        try:
            reason = await settled
        except asyncio.CancelledError:
            transport.abort()
            raise
        if reason:
            raise UpstreamUnavailable(f"{origin.host}:{origin.port}: {reason}")


class Pool:
    """The connections of every origin, as long as somebody uses it or a connection is open."""

    def __init__(self, limits: Limits, sweep: Sweep, resolver: Resolver, confined: Resolver | None = None) -> None:
        """`confined` dials for confined origins, by its own rule and in its own threads: names that users have chosen
        may be slow to resolve, and the operator's must not wait behind them. None: such origins are not dialled."""
        self.limits = limits
        self.resolver = resolver
        self.confined = confined
        self.now = sweep.now
        self._sweep = sweep
        # Whoever calls an origin holds its pool, and so do its connections, which the loop holds.
        self._origins: weakref.WeakValueDictionary[Origin, OriginPool] = weakref.WeakValueDictionary()
        self._contexts: dict[str, ssl.SSLContext] = {}
        sweep.add(self)

    @property
    def known_origins(self) -> int:
        """Origins that are used, or have a connection."""
        return len(self._origins)

    def origin(self, origin: Origin) -> OriginPool:
        """The connections of one origin."""
        pool = self._origins.get(origin)
        if pool is None:
            pool = self._origins[origin] = OriginPool(self, origin)
        return pool

    def tls_context(self, ca_bundle: str) -> ssl.SSLContext:
        """How an upstream's certificate is verified: against a bundle file, or the system's store."""
        context = self._contexts.get(ca_bundle)
        if context is None:
            # Not create_default_context: it obeys SSLKEYLOGFILE, which would hand every session's keys to a file.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if ca_bundle:
                context.load_verify_locations(cafile=ca_bundle)
            else:
                context.load_default_certs()
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[ca_bundle] = context
        return context

    def sweep(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        for pool in tuple(self._origins.values()):
            pool.close_idle(now)

    def close(self) -> None:
        """Close every connection."""
        self._sweep.discard(self)
        for pool in tuple(self._origins.values()):
            pool.close()
