"""An upstream that answers many connections by itself, from a thread: well, or as the request's query asks."""

import asyncio
import functools
import gzip
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from types import TracebackType

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON_CHUNKS = EVENT_STREAM.replace(b"text/event-stream", b"application/json")
_EVENT = b"data: " + b"x" * 8000 + b"\n\n"
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
FAT_ANSWER = b"a" * 40_000
_SHORT_BODY = 4096


@functools.cache
def gzip_bomb() -> bytes:
    """64 KiB of gzip that would be 64 MiB. Made by whoever asks: every process of the tests imports this."""
    return gzip.compress(bytes(64 * 1024 * 1024), 9, mtime=0)


def _for_ever(first: bytes, then: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield first
        block = then * (1 + 60_000 // len(then))
        while True:
            yield block

    return pieces


FLOODS: dict[bytes, Callable[[], Iterator[bytes]]] = {
    b"events": _for_ever(EVENT_STREAM, _CHUNK),
    b"json": _for_ever(JSON_CHUNKS, _CHUNK),
    b"fields": _for_ever(b"HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n"),
    b"value": _for_ever(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
    b"reason": _for_ever(b"HTTP/1.1 200 ", b"a"),
    b"interim": _for_ever(b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"),
    b"trailers": _for_ever(JSON_CHUNKS + b"2\r\n{}\r\n0\r\n", b"X-A: 1\r\n"),
    b"trailer-value": _for_ever(JSON_CHUNKS + b"2\r\n{}\r\n0\r\nX-A: ", b"a"),
    b"trailer-name": _for_ever(JSON_CHUNKS + b"2\r\n{}\r\n0\r\n", b"a"),
    b"extension": _for_ever(JSON_CHUNKS + b"2;a=", b"a"),
    b"event-trailer-value": _for_ever(EVENT_STREAM + b"9\r\ndata: 1\n\n\r\n0\r\nX-A: ", b"a"),
}
"""Answers without an end, by name."""


class AnsweringUpstream:
    """`?flood=NAME` gives one of FLOODS, `?gzip` the bomb, `?fat` a large answer, anything else a small one."""

    def __init__(self) -> None:
        self.answered: Counter[bytes] = Counter()
        self.keys: list[bytes] = []
        """The Bearer token of each request; empty for one without."""
        self.bodies: list[bytes] = []
        """What was sent to it, as far as it is short."""
        self.longest_body = 0
        self.flooded = 0
        """Bytes that were taken of all floods."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="upstream")

    def __enter__(self) -> "AnsweringUpstream":
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return self

    async def _listen(self) -> asyncio.Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        return self._server

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        size = int(length.split(b"\r\n")[0]) if length else 0
        _, _, key = head.partition(b"uthorization: Bearer ")
        self.keys.append(key.split(b"\r\n")[0])
        for at in range(0, size, 65536):
            piece = await reader.readexactly(min(size - at, 65536))
            if size <= _SHORT_BODY:
                self.bodies.append(piece)
        self.longest_body = max(self.longest_body, size)
        query = head.split(b" ")[1].partition(b"?")[2]
        self.answered[query] += 1
        if query.startswith(b"flood="):
            for piece in FLOODS[query[6:]]():
                writer.write(piece)
                await writer.drain()
                self.flooded += len(piece)
        fields, body = b"", b"{}"
        if query == b"gzip":
            fields, body = b"Content-Encoding: gzip\r\n", gzip_bomb()
        elif query == b"fat":
            body = FAT_ANSWER
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (fields, len(body), body)
        )
        await writer.drain()
        return True


def inflated_size(data: bytes) -> int:
    """What gzip data amounts to, counted in pieces."""
    decoder, size = zlib.decompressobj(31), 0
    while data and not decoder.eof:
        size += len(decoder.decompress(data, 1024 * 1024))
        data = decoder.unconsumed_tail
    return size
