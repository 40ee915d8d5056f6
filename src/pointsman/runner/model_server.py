"""One request to a server on this machine, and its response, read only when it is asked for.

No name server, no proxy, no redirect, no kept connection. Nothing is read ahead: what nobody asked for stays with the
server, which notices, because its socket fills up.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from pointsman.core.errors import UpstreamProtocol
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.runner_endpoint import RunnerEndpoint
from pointsman.wire.response import ResponseHead, ResponseReader

_READ_BYTES = 16 * 1024
_ADDRESSES = {"127.0.0.1": ("127.0.0.1",), "[::1]": ("::1",), "localhost": ("127.0.0.1", "::1")}


class Unavailable(Exception):
    """Nobody listens there, or not in time."""


class Broken(Exception):
    """The server broke its response off, or it is none."""


class ModelServer:
    """A connection for one request. Whoever dialled it closes it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = ResponseReader(DEFAULT_LIMITS)
        self._loop = asyncio.get_running_loop()

    async def ask(self, request: bytes) -> ResponseHead:
        """Send a request; the head of its response. Raises Broken."""
        with contextlib.suppress(OSError):  # it may answer before it has read everything, and close
            await self._loop.sock_sendall(self._socket, request)
        while self._reader.head is None:
            await self._receive()
        return self._reader.head

    async def read(self) -> bytes:
        """More of the body; nothing at its end. Raises Broken."""
        while True:
            body = self._reader.take_body()
            if body or self._reader.complete:
                return body
            await self._receive()

    async def _receive(self) -> None:
        try:
            data = await self._loop.sock_recv(self._socket, _READ_BYTES)
            if data:
                self._reader.receive(data)
                return
        except (OSError, UpstreamProtocol) as error:
            raise Broken(str(error)) from None
        if not self._reader.end_of_connection():
            raise Broken("it closed the connection before the end of its response")

    def close(self) -> None:
        """Let go at once, whatever it still sends."""
        self._reader.detach()
        self._socket.close()


async def dial(endpoint: RunnerEndpoint, seconds: float) -> ModelServer:
    """Connect within `seconds`. Raises Unavailable. Both loopback addresses are tried for `localhost`."""
    addresses = _ADDRESSES[endpoint.host]
    for address in addresses:
        try:
            async with asyncio.timeout(seconds / len(addresses)):
                return ModelServer(await _connected(address, endpoint.port))
        except (OSError, TimeoutError):
            continue
    raise Unavailable


async def _connected(address: str, port: int) -> socket.socket:
    with _socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as made:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
        if made.getsockname()[:2] == made.getpeername()[:2]:
            raise ConnectionRefusedError  # nobody listens, and by chance we got the very port as our own
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


@contextlib.contextmanager
def _socket(family: socket.AddressFamily) -> Iterator[socket.socket]:
    """One that is closed unless the block is left well."""
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        yield made
    except BaseException:
        made.close()
        raise
