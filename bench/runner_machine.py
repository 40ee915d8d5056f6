"""A machine with a model, as the runners' fault campaign needs it: a server that records, and the way to the gateway.

Everything here runs on one loop in a thread of its own, so that cells can be written straight on.
"""

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, model_server, whole

T = TypeVar("T")
ERROR_CANARY = "what-an-upstream-says-of-itself"
"""In bodies of errors, which nobody but the runner may see."""
EVENT_SECONDS = 0.04
_LINE_BYTES = 60_000
_RESET = struct.pack("ii", 1, 0)


class Loop:
    """A loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 120) -> T:
        """Its result. Raises TimeoutError."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def close(self) -> None:
        """End it, and whatever runs on it."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def event(nonce: str, number: int) -> bytes:
    """One event of a stream, with the empty line."""
    return b'data: {"nonce":"%b","n":%d}\n\n' % (nonce.encode(), number)


def stream(nonce: str, events: int) -> bytes:
    """A whole stream."""
    return b"".join(event(nonce, number) for number in range(events)) + b"data: [DONE]\n\n"


def completion(nonce: str) -> bytes:
    """An answer that is no stream."""
    return b'{"nonce":"%b"}' % nonce.encode()


class RecordingModel:
    """A model's server that keeps its port; each request says by its `mode` how it is to be answered."""

    def __init__(self, name: str, loop: Loop) -> None:
        self.name = name
        self.asked: Counter[str] = Counter()
        """Requests, by their nonce."""
        self.at_work: set[str] = set()
        """Nonces of requests whose connection is open."""
        self.port = 0
        self._loop = loop
        self._stack = contextlib.AsyncExitStack()
        self._server: ModelServer | None = None

    @property
    def url(self) -> str:
        """As it is registered."""
        return f"http://localhost:{self.port}/v1"

    def start(self) -> None:
        """Listen, on the port of before."""
        self._loop.run(self._start())

    def stop(self) -> None:
        """As if it was killed: connections are reset."""
        self._loop.run(self._stop())

    async def _start(self) -> None:
        self._server = await self._stack.enter_async_context(model_server(self._answer, port=self.port))
        self.port = self._server.port

    async def _stop(self) -> None:
        for visit in self._server.visits if self._server is not None else ():
            with contextlib.suppress(OSError):
                reset(visit.writer)
        await self._stack.aclose()
        self._server = None

    async def _answer(self, visit: Visit) -> None:
        if visit.head.startswith(b"GET "):
            await visit.send(whole(json.dumps({"object": "list", "data": [{"id": self.name}]}).encode()))
            return
        wanted = json.loads(visit.body)
        nonce = wanted["nonce"]
        self.asked[nonce] += 1
        self.at_work.add(nonce)
        try:
            mode = wanted.get("mode", "")
            await (MODES[mode](visit, nonce) if mode else _well(visit, wanted))
        finally:
            self.at_work.discard(nonce)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side gets an RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _well(visit: Visit, wanted: dict[str, Any]) -> None:
    nonce = wanted["nonce"]
    if not wanted.get("stream"):
        await asyncio.sleep(wanted["events"] * EVENT_SECONDS)
        await visit.send(whole(completion(nonce)))
    else:
        await visit.send(EVENT_STREAM)
        await _events(visit, nonce, wanted["events"])
        await visit.send(b"data: [DONE]\n\n")


async def _events(visit: Visit, nonce: str, count: int) -> None:
    for number in range(count):
        await visit.send(event(nonce, number))
        await asyncio.sleep(EVENT_SECONDS)


async def _hangs(visit: Visit, _: str) -> None:
    await visit.gone()


async def _drips(visit: Visit, nonce: str) -> None:
    await visit.send(EVENT_STREAM + event(nonce, 0))
    going = asyncio.ensure_future(visit.gone())
    while not going.done():
        await visit.send(b"d")
        await asyncio.wait((going,), timeout=1)


async def _long_line(visit: Visit, nonce: str) -> None:
    await visit.send(EVENT_STREAM + event(nonce, 0) + b"data: " + b"x" * (64 * 1024 - 5) + b"\n\n")
    await visit.gone()


async def _too_much(visit: Visit, _: str) -> None:
    await visit.send(EVENT_STREAM)
    line = b"data: " + b"x" * _LINE_BYTES + b"\n\n"
    for _number in range(16 * 1024 * 1024 // _LINE_BYTES + 2):
        await visit.send(line)
    await visit.gone()


async def _garbage(visit: Visit, _: str) -> None:
    await visit.send(b"\x16\x03\x01 garbage \xff\r\n\r\n")


async def _redirects(visit: Visit, _: str) -> None:
    place = b"content-length: 0\r\nlocation: http://127.0.0.1:9/v1/chat/completions\r\n\r\n"
    await visit.send(b"HTTP/1.1 302 Found\r\n" + place)


async def _refuses(visit: Visit, _: str) -> None:
    await visit.send(whole(json.dumps({"error": ERROR_CANARY}).encode(), b"401 Unauthorized"))


async def _fails(visit: Visit, _: str) -> None:
    await visit.send(whole(json.dumps({"error": ERROR_CANARY}).encode(), b"500 Oops"))


async def _ends_early(visit: Visit, nonce: str) -> None:
    await visit.send(EVENT_STREAM)
    await _events(visit, nonce, 3)


async def _resets(visit: Visit, nonce: str) -> None:
    await visit.send(EVENT_STREAM)
    await _events(visit, nonce, 3)
    reset(visit.writer)


MODES = {
    "hangs before its head": _hangs,
    "drips 1 byte a second": _drips,
    "a line of 64 KiB + 1": _long_line,
    "over 16 MiB": _too_much,
    "garbage": _garbage,
    "redirects": _redirects,
    "answers 401": _refuses,
    "answers 500": _fails,
    "ends without [DONE]": _ends_early,
    "resets mid-stream": _resets,
}


class Way:
    """A TCP proxy between a runner and its gateway, that can be broken."""

    def __init__(self, loop: Loop) -> None:
        self.target = 0
        """The port that it leads to."""
        self.port = 0
        self.latency = 0.0
        """Seconds, each way."""
        self.mute: set[str] = set()
        """Directions that swallow what comes: `up` is to the gateway."""
        self.breaks: set[str] = set()
        """Directions in which half of what comes next is passed on, and then everything is reset."""
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen."""
        self._loop.run(self._start())

    async def _start(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server

    def close(self) -> None:
        """Listen no more, and break what is open."""
        self._loop.run(self._close())

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._reset()

    def reset(self) -> None:
        """Break every connection, both ways, with an RST."""
        self._loop.run(self._reset())

    async def _reset(self) -> None:
        for writer in tuple(self._open):
            with contextlib.suppress(OSError):
                reset(writer)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            reset(writer)
            return
        self._open |= {writer, there_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, there_writer, "up"))
                group.create_task(self._pass(there_reader, writer, "down"))
        except* OSError:
            pass
        finally:
            for each in (writer, there_writer):
                self._open.discard(each)
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        while data := await reader.read(65536):
            if self.latency:
                await asyncio.sleep(self.latency)
            if direction in self.breaks:
                self.breaks.discard(direction)
                writer.write(data[: len(data) // 2])
                await writer.drain()
                await self._reset()
            elif direction not in self.mute:
                writer.write(data)
                await writer.drain()
        if direction not in self.mute:  # a machine that has gone says nothing, not even that
            writer.write_eof()
