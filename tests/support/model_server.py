"""A model's server that a test plays: each connection is handed over, and what to answer is the test's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Answer = Callable[["Visit"], Awaitable[None]]


class Visit:
    """One connection, and the request that came over it."""

    def __init__(self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = head
        self.body = body
        self.writer = writer
        self._reader = reader

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Until the other side has closed."""
        with contextlib.suppress(OSError):
            while await self._reader.read(65536):
                pass


class ModelServer:
    """Listens on loopback until its block ends; every request is kept."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.visits: list[Visit] = []
        self.closed = 0
        """Connections whose other side has gone, as far as `answer` waited for it."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                visit = Visit(head, body, reader, writer)
                self.visits.append(visit)
                await self.answer(visit)
        finally:
            self.closed += 1
            writer.close()


@contextlib.asynccontextmanager
async def model_server(answer: Answer, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[ModelServer]:
    """Serve on `host`, which is a loopback address."""
    made = ModelServer(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(made.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, port)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def whole(body: bytes, status: bytes = b"200 OK", more: bytes = b"content-type: application/json\r\n") -> bytes:
    """A response with a body of known length."""
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, more, len(body), body)


def answering(*pieces: bytes) -> Answer:
    """Sends these, then closes."""

    async def answer(visit: Visit) -> None:
        for piece in pieces:
            await visit.send(piece)

    return answer
