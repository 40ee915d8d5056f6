"""The clients of the fault matrix: one that stays and judges its answer, and those that leave or never read."""

import asyncio
import json
import random
import socket
import time
from collections import Counter

from bench.fault_cells import PATHS, Answer, Cell, WrongAnswer, cell_of, judge
from bench.fault_upstream import FaultUpstream, reset
from tests.support.watched import CONNECT, WatchedRouter

LIMITS = {
    "connect_seconds": 2.0,
    "response_header_seconds": 2.0,
    "chunk_idle_seconds": 2.0,
    "client_stall_seconds": 2.0,
    "response_body_bytes": 6 * 1024 * 1024,
    "sweep_seconds": 0.1,
}
"""Of the router: deadlines that strike while one watches. An endless body must not fit into the kernel's buffers, or a
client that never reads would not be noticed."""
_LONGEST_DEADLINE = 2.0 + 2.0
_KEPT_SECONDS = 30.0
"""Well below the router's 75 s, after which it may close a connection just as the next request is sent."""
_SLACK = 10.0
"""Seconds beyond the longest deadline until an exchange counts as lost: the machine may be busy with others."""


class FaultClient:
    """One client after the other over the same place; connections are kept where the router keeps them."""

    def __init__(self, router: WatchedRouter, upstream: FaultUpstream, rng: random.Random, *, tunnel: bool) -> None:
        self._router, self._upstream, self._rng, self._tunnel = router, upstream, rng, tunnel
        self._kept: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = {}
        self.slowest: Counter[str] = Counter()
        """Longest exchange by fault, in milliseconds."""

    async def one(self, nonce: str) -> str:
        """One exchange; the class of its end. Raises WrongAnswer for an end that it must not have."""
        cell = cell_of(nonce)
        started = time.monotonic()
        try:
            async with asyncio.timeout(_LONGEST_DEADLINE + _SLACK):
                if cell.client == "stays":
                    return await self._stay(cell, nonce)
                await self._leave(cell, nonce)
                return cell.client
        except TimeoutError:
            raise WrongAnswer(f"{nonce} {cell}: no end within {_LONGEST_DEADLINE + _SLACK:.0f} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WrongAnswer(f"{nonce} {cell}: {error!r} instead of an answer") from None
        finally:
            took = int(1000 * (time.monotonic() - started))
            self.slowest[cell.fault] = max(self.slowest[cell.fault], took)

    async def _connect(self, door: str, *, small: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        sock.setblocking(False)
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        port = self._router.ports[door]["tunnel" if self._tunnel else "plain"]
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=16 * 1024 if small else 256 * 1024)
        if self._tunnel:
            writer.write(CONNECT)
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(self._router.context, server_hostname="inference.local")
        return reader, writer

    async def _take(self, door: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if door in self._kept:
            reader, writer, since = self._kept.pop(door)
            if time.monotonic() - since < _KEPT_SECONDS:
                return reader, writer
            writer.transport.abort()
        return await self._connect(door)

    async def _stay(self, cell: Cell, nonce: str) -> str:
        reader, writer = await self._take(cell.door)
        writer.write(_request(cell, nonce))
        answer = await read_answer(reader)
        if answer.complete and answer.fields.get("connection") != "close":
            self._kept[cell.door] = reader, writer, time.monotonic()
        else:
            writer.transport.abort()
        return judge(nonce, answer)

    async def _leave(self, cell: Cell, nonce: str) -> None:
        reader, writer = await self._connect(cell.door, small=True)
        try:
            writer.write(_request(cell, nonce))
            if cell.client == "never-reads":
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # transports of sockets have it
                await asyncio.sleep(0.05)
            else:
                await asyncio.sleep(self._rng.choice((0, 0.001, 0.02, 0.1)))
                if cell.client == "rst":
                    reset(writer)
                elif self._tunnel:
                    writer.close()
                else:
                    writer.write_eof()  # half closed: the other half is read to its end
                    await _read_to_end(reader)
            await self._upstream.over(nonce)
        finally:
            writer.transport.abort()

    def close(self) -> None:
        """Drop what is kept."""
        for _, writer, _ in self._kept.values():
            writer.transport.abort()
        self._kept.clear()


def _request(cell: Cell, nonce: str) -> bytes:
    target = f"{PATHS[cell.kind]}?n={nonce}"
    if cell.kind == "models":
        return f"GET {target} HTTP/1.1\r\nHost: inference.local\r\n\r\n".encode()
    body = json.dumps({"nonce": nonce, "model": "x"}).encode()
    return f"POST {target} HTTP/1.1\r\nHost: inference.local\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(65536):
            pass
    except OSError:
        pass


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Its head and its body, as far as that came."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    status, nonce = int(lines[0].split()[1]), fields.get("x-nonce", "")
    if "content-length" in fields:
        return Answer(status, nonce, fields, await reader.readexactly(int(fields["content-length"])), complete=True)
    pieces: list[bytes] = []
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
    except (asyncio.IncompleteReadError, OSError):
        return Answer(status, nonce, fields, b"".join(pieces), complete=False)
    return Answer(status, nonce, fields, b"".join(pieces), complete=True)
