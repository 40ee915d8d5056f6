"""An upstream that says which path and model it was asked for, in an answer or in every event of a stream."""

import asyncio
import json
import threading
from types import TracebackType
from typing import Any

_EVENTS = 4
_EVENT_SECONDS = 0.01
"""Between two events, so that a stream lasts for a while."""


class ModelEcho:
    """Serves from a thread; below `/busy/` everything is 429. `connections` counts those that were made."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """Path and model of each request."""
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model echo")
        self._open: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> "ModelEcho":
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=256)

    def url(self, name: str) -> str:
        """A base URL of its own for each name."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{name}/v1"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0.01)  # a turn for closed transports to say goodbye

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while True:
                await self._one(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        body = json.loads(await reader.readexactly(int(length.split(b"\r\n")[0]))) if length else {}
        path = head.split(b" ")[1].decode()
        self.asked.append((path, body.get("model", "")))
        said = json.dumps({"path": path, "model": body.get("model")}).encode()
        if path.startswith("/busy/"):
            writer.write(b"HTTP/1.1 429 Busy\r\nContent-Length: 2\r\n\r\n{}")
        elif not body.get("stream"):
            kind = b"Content-Type: application/json\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (kind, len(said), said))
        else:
            kind = b"Content-Type: text/event-stream\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % kind)
            for event in (*[said] * _EVENTS, b"[DONE]"):
                await asyncio.sleep(_EVENT_SECONDS)
                line = b"data: " + event + b"\n\n"
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            writer.write(b"0\r\n\r\n")
        await writer.drain()
