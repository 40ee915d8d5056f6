"""The scripted providers of the chain soak: each answers with its request's nonce, or fails as a seeded die says.

Owns what a provider does to a request and what it counts; whether a client's answer is right is `chain_callers`'.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

FALLBACK = "last"
PROVIDERS = ("p0", "p1", "p2", FALLBACK)
OUTCOMES = {
    "ok": 56,
    "slow": 12,
    "429": 1,
    "500": 8,
    "401": 2,
    "404": 2,
    "cut_before": 6,
    "cut_after": 7,
    "error_first": 6,
}
"""By weight, of a provider; none of them makes the gateway say something else than the provider itself counts."""
CALM = {"ok": 70, "slow": 20, "500": 4, "cut_after": 6}
"""Of the fallback: where it fails too, the client is told 503."""
_SLOWEST = 0.6
_EVENT_PAUSES = (0.0, 0.0, 0.002, 0.02)
_CLOSED_SECONDS = (0.2, 0.6)
_OPEN_SECONDS = (0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants of its answer; the whole of its request, but for the model."""

    nonce: str
    stream: bool
    events: int
    """Of a stream, or parts of another answer."""
    leaves: str
    """`before` the answer, `after` its first event, or empty: it stays."""


def event(nonce: str, provider: str, number: int) -> bytes:
    """One of an answer."""
    pad = nonce * (1 + number % 40)
    return b"data: " + json.dumps({"nonce": nonce, "by": provider, "n": number, "pad": pad}).encode() + b"\n\n"


def whole(nonce: str, provider: str, parts: int) -> bytes:
    """A buffered answer."""
    return json.dumps({"nonce": nonce, "by": provider, "parts": [nonce] * parts}).encode()


class Upstreams:
    """All providers, each with a port of its own that is the same for as long as they live."""

    def __init__(self, seed: int) -> None:
        self.succeeded: Counter[str] = Counter()
        """Answers by provider that are successes to the gateway, as far as the provider can tell."""
        self.played: Counter[str] = Counter()
        self.reached: dict[str, asyncio.Event] = {}
        """By nonce: a provider has the request."""
        self.wrong: list[str] = []
        self.ports: dict[str, int] = {}
        self._rng = random.Random(seed)
        self._servers: dict[str, asyncio.Server] = {}
        self._idle: dict[str, set[asyncio.StreamWriter]] = {name: set() for name in PROVIDERS}

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve them all; meanwhile one after the other refuses connections for a while, but the fallback."""
        for name in PROVIDERS:
            await self._listen(name)
        refusing = asyncio.get_running_loop().create_task(self._refuse_in_turn(), name="refusals")
        try:
            yield
        finally:
            refusing.cancel()
            for server in self._servers.values():
                server.close()

    async def _listen(self, name: str) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(name, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", self.ports.get(name, 0), backlog=1024)
        self._servers[name] = server
        self.ports[name] = server.sockets[0].getsockname()[1]

    async def _refuse_in_turn(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(*_OPEN_SECONDS))
            name = self._rng.choice(PROVIDERS[:-1])
            self._servers[name].close()
            for writer in self._idle[name]:
                writer.close()
            self.played["refused"] += 1
            await asyncio.sleep(self._rng.uniform(*_CLOSED_SECONDS))
            await self._listen(name)

    async def _serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        idle = self._idle[name]
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    idle.add(writer)
                    head = await reader.readuntil(b"\r\n\r\n")
                    idle.discard(writer)
                    if head.startswith(b"GET "):  # a gateway that starts asks whether anybody is there
                        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                        continue
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    told = json.loads(await reader.readexactly(length))
                    if told.pop("model") != f"model-{name}":
                        self.wrong.append(f"{name} was asked for another's model: {told}")
                    if not await self._answer(name, Asked(**told), reader, writer):
                        return
                    await writer.drain()
        finally:
            idle.discard(writer)
            writer.close()

    async def _answer(
        self, name: str, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        self.reached[asked.nonce].set()
        if asked.leaves == "before":
            self.played["left before"] += 1
            await reader.read()
            return False
        weights = CALM if name == FALLBACK else OUTCOMES
        outcome = "ok" if asked.leaves else self._rng.choices([*weights], [*weights.values()])[0]
        self.played[outcome if not asked.leaves else "left after"] += 1
        if outcome.isdecimal():
            writer.write(b"HTTP/1.1 %b No\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}" % outcome.encode())
            return True
        if outcome == "slow":
            await asyncio.sleep(self._rng.uniform(0.05, _SLOWEST))
        if asked.stream:
            return await self._stream(name, asked, outcome, reader, writer)
        if outcome in ("cut_before", "error_first"):
            return False
        self.succeeded[name] += 1
        body = whole(asked.nonce, name, asked.events)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
        cut = outcome == "cut_after"
        writer.write(body[: len(body) // 2] if cut else body)
        return not cut

    async def _stream(
        self, name: str, asked: Asked, outcome: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if outcome == "cut_before":
            return False
        if outcome == "error_first":
            writer.write(_chunk(b'data: {"error": {"message": "overloaded"}}\n\n') + b"0\r\n\r\n")
            return True
        self.succeeded[name] += 1
        stop = self._rng.randrange(1, asked.events + 1) if outcome == "cut_after" else asked.events
        pause = self._rng.choice(_EVENT_PAUSES)
        for number in range(stop):
            writer.write(_chunk(event(asked.nonce, name, number)))
            await writer.drain()
            if asked.leaves:
                await reader.read()
                return False
            await asyncio.sleep(pause)
        if outcome == "cut_after":
            # FIN, since RST may take what was sent before it along: in the middle of an event, or right behind one.
            writer.write(_chunk(event(asked.nonce, name, stop)[: self._rng.choice((0, 9, 40))]))
            return False
        writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
