"""Streams whose events carry their number and the time of their writing: a scripted model's server, and its client.

Both belong in one process, so that one clock tells both times. A request says how many events it wants, and how fast.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%d %d"}}]}\n\n'
_STAMP = re.compile(rb'"content":"(\d+) (\d+)"')
STALL_MS = 100.0
"""A gap between two events that is longer, and was not there when they were written, is a stall."""
_REQUEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """One stream: so many events, one each so many seconds."""

    model: str
    events: int
    seconds: float


@dataclass(slots=True)
class Heard:
    """What a client got of one stream."""

    status: int = 0
    is_done: bool = False
    sent: list[int] = field(default_factory=list)
    """When each event was written, in nanoseconds."""
    got: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    answered_ms: float = 0.0
    """From the request to the first byte."""

    @property
    def late_ms(self) -> list[float]:
        """How much later than written each event came, the first ones left out: they share one with the head."""
        return [(got - sent) / 1e6 for sent, got in zip(self.sent[2:], self.got[2:], strict=True)]

    @property
    def stalls(self) -> int:
        """Gaps of more than STALL_MS that were none when the events were written."""
        gaps = zip(pairwise(self.sent), pairwise(self.got), strict=True)
        return sum(b - a <= STALL_MS * 1e6 < d - c for (a, b), (c, d) in gaps)

    def is_whole(self, wanted: Wanted) -> bool:
        """Whether every event came, once and in its turn, and the end."""
        return self.status == 200 and self.is_done and self.numbers == list(range(wanted.events))


class _Upstream(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # uvloop's transports are of no class of asyncio's.
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._received += data
        _, end, body = self._received.partition(b"\r\n\r\n")
        with contextlib.suppress(json.JSONDecodeError):
            if end:
                asked = json.loads(body)
                self._transport.write(_HEAD)
                self._beat(0, asked["max_tokens"], asked["seconds"], self._loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self, number: int, events: int, seconds: float, began: float) -> None:
        if number == events:
            self._transport.write(b"data: [DONE]\n\n")
            self._transport.close()
            return
        self._transport.write(_EVENT % (number, time.monotonic_ns()))
        due = began + (number + 1) * seconds
        self._timer = self._loop.call_at(due, self._beat, number + 1, events, seconds, began)


@contextlib.asynccontextmanager
async def stamped_upstream() -> AsyncIterator[int]:
    """It listens on loopback; its port."""
    server = await asyncio.get_running_loop().create_server(_Upstream, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = Heard()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flowing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the first byte."""
        self._began = time.monotonic_ns()
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        now, heard = time.monotonic_ns(), self.heard
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            stamp = _STAMP.search(line)
            if stamp is not None:
                heard.numbers.append(int(stamp[1]))
                heard.sent.append(int(stamp[2]))
                heard.got.append(now)
            elif line == b"data: [DONE]":
                heard.is_done = True
            elif line.startswith(b"HTTP/1."):
                heard.status = int(line.split()[1])
        if not self.flowing.done():
            heard.answered_ms = (now - self._began) / 1e6
            self.flowing.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self.flowing, self.ended):
            if not each.done():
                each.set_result(None)


class Asked:
    """A stream under way."""

    def __init__(self, client: _Client, transport: asyncio.Transport) -> None:
        self._client = client
        self._transport = transport

    async def flows(self) -> None:
        """Until its first byte."""
        await asyncio.wait_for(asyncio.shield(self._client.flowing), _REQUEST_SECONDS)

    @property
    def has_ended(self) -> bool:
        """Whether its last byte has come."""
        return self._client.ended.done()

    def leave(self) -> None:
        """Close, whatever is still to come."""
        self._transport.close()

    async def heard(self) -> Heard:
        """All of it."""
        try:
            await asyncio.wait_for(asyncio.shield(self._client.ended), _REQUEST_SECONDS)
        finally:
            self._transport.close()
        return self._client.heard


async def ask(port: int, wanted: Wanted) -> Asked:
    """Send a request to a model's server, or to whoever serves it."""
    asked = {"model": wanted.model, "stream": True, "max_tokens": wanted.events, "seconds": wanted.seconds}
    body = json.dumps({**asked, "messages": [{"role": "user", "content": "Say it."}]}).encode()
    transport, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    head = b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    transport.write(head % len(body) + b"\r\n" + body)
    return Asked(client, transport)


async def heard(port: int, wanted: Wanted) -> Heard:
    """Ask, and take all of it."""
    return await (await ask(port, wanted)).heard()
