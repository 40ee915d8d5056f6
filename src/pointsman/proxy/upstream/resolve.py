"""Names to addresses, in threads of our own, checked where the connection is made.

Checking the address that is dialled, not the name, is what keeps a rebinding name server from steering a request
with a key in it to the metadata service.
"""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aiohappyeyeballs import start_connection

from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.reach import refused_address

_THREADS = 4
_STAGGER_SECONDS = 0.25  # RFC 8305 section 5

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]]


class Resolver:
    """Opens TCP connections by host name, to permitted addresses only."""

    def __init__(self, refused: Callable[[str], str | None] = refused_address) -> None:
        """`refused` says why an address must not be dialled; for models of accounts' users: `DirectReach.refused`."""
        self._refused = refused
        self._threads: ThreadPoolExecutor | None = None

    async def connect(self, host: str, port: int) -> socket.socket:
        """A connected, non-blocking socket. Raises UpstreamUnavailable; has no deadline of its own."""
        addresses = [info for info in await self._lookup(host, port) if not self._refused(str(info[4][0]))]
        if not addresses:
            raise UpstreamUnavailable(f"{host} has no address that may be dialled")
        loop = asyncio.get_running_loop()
        try:
            return await start_connection(
                addresses,
                happy_eyeballs_delay=_STAGGER_SECONDS if len(addresses) > 1 else None,
                loop=loop,
            )
        except OSError as error:
            # Event loops write "Connect call failed" and the address where the system's reason belongs.
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise UpstreamUnavailable(f"cannot connect to {host}:{port}: {reason}") from None

    async def _lookup(self, host: str, port: int) -> list[AddressInfo]:
        try:
            version = ipaddress.ip_address(host).version
        except ValueError:
            return await self._ask_system(host, port)
        if version == 4:
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        return [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0))]

    async def _ask_system(self, host: str, port: int) -> list[AddressInfo]:
        if self._threads is None:
            # The loop's own executor may be full of slow work; names must not wait behind it.
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="resolve")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
        except OSError as error:
            raise UpstreamUnavailable(f"cannot resolve {host}: {error.strerror or error}") from None
        return list(dict.fromkeys(found))  # type: ignore[arg-type]  # typeshed allows str ports

    def close(self) -> None:
        """Let the threads go; a look-up under way is abandoned."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
