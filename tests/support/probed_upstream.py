"""An upstream on the caller's own loop, which answers one request after the other from a list."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

from tests.support.upstream import ReceivedRequest

Answer = bytes | Iterator[bytes | None] | None
"""A whole answer, one in pieces that may never end, or silence until the client leaves."""


def answer(status: int, body: bytes = b"", fields: bytes = b"") -> bytes:
    """A whole response with its Content-Length."""
    return b"HTTP/1.1 %d Whatever\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(body), body)


class ProbedUpstream:
    """What it was asked, and whether its clients have left."""

    def __init__(self, answers: tuple[Answer, ...]) -> None:
        self.url = ""
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.sent = 0
        """Bytes that answers in pieces came to."""
        self.asked = asyncio.Event()
        self._answers = iter(answers)
        self.open = 0
        self._all_left = asyncio.Event()
        self._all_left.set()

    async def all_left(self) -> None:
        """Wait for every client to end its connection. Raises TimeoutError when one has not after 5 s."""
        async with asyncio.timeout(5):
            await self._all_left.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self._all_left.clear()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    self.requests.append(await _request(reader))
                    self.asked.set()
                    if not await self._give(next(self._answers), reader, writer):
                        break
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
            self.open -= 1
            if not self.open:
                self._all_left.set()

    async def _give(self, given: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for piece in (given,) if given is None or isinstance(given, bytes) else given:
            if piece is None:
                await reader.read()
                return False
            writer.write(piece)
            await writer.drain()
            self.sent += len(piece)
            await asyncio.sleep(0)
        return isinstance(given, bytes) and b"Connection: close" not in given


async def _request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n")
    received = ReceivedRequest(head, b"")
    received.body = await reader.readexactly(int(received.value(b"content-length") or b"0"))
    return received


@asynccontextmanager
async def probed_upstream(*answers: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[ProbedUpstream]:
    """Listens on loopback. At the end every connection must have been ended by the client."""
    upstream = ProbedUpstream(answers)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    upstream.url = f"https://localhost:{port}/v1" if context else f"http://127.0.0.1:{port}/v1"
    try:
        yield upstream
        await upstream.all_left()
    finally:
        server.close()
