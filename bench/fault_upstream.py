"""The upstream of the fault matrix: does to each request what the cell in its nonce says.

It notes how often a nonce came and whether the exchange is over on this side: answered, or given up by the router.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections import Counter

from bench.fault_cells import STATUSES, Cell, block, body, cell_of

_LONGEST = 60.0
_STATUS_LINES = {"429": "429 Too Many Requests", "500": "500 Oops", "401": "401 Unauthorized", "302": "302 Found"}


class FaultUpstream:
    """Its `serve` is the callback of a stream server."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.crossed: list[str] = []
        self._active: dict[str, asyncio.Event] = {}

    @property
    def active(self) -> list[str]:
        """Exchanges that are not over yet."""
        return list(self._active)

    async def over(self, nonce: str) -> None:
        """Until this exchange, if it ever came here, is over."""
        event = self._active.get(nonce)
        if event is not None:
            await event.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, RuntimeError, asyncio.IncompleteReadError):  # RuntimeError: written after a close
            pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        nonce = head.split()[1].partition("?n=")[2]
        _, _, length = head.lower().partition("content-length: ")
        sent = await reader.readexactly(int(length.split()[0])) if length else b""
        if sent and nonce and json.loads(sent) != {"nonce": nonce, "model": "real-model"}:
            self.crossed.append(f"{nonce}: its request was {sent!r}")
        if not nonce:  # not of the matrix: the client that finds out the router's level
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            return True
        self.seen[nonce] += 1
        event = self._active[nonce] = asyncio.Event()
        try:
            return await self._answer(nonce, reader, writer)
        finally:
            self._active.pop(nonce, None)
            event.set()

    async def _answer(self, nonce: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        cell = cell_of(nonce)
        if cell.fault == "accept-mute":
            await self._until_closed(reader)
            return False
        if cell.fault == "rst-before-head":
            return reset(writer)
        if cell.fault == "garbage":
            writer.write(b"\x00\xffhello " + nonce.encode() + b"\r\n\r\n")
            await self._until_closed(reader)
            return False
        writer.write(_head(cell, nonce))
        await writer.drain()
        return await self._body(cell, nonce, reader, writer)

    async def _body(self, cell: Cell, nonce: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        data = body(nonce)
        if cell.fault == "head-mute":
            await self._until_closed(reader)
            return False
        if cell.fault == "rst-after-head":
            return reset(writer)
        if cell.fault == "endless":
            await self._endless(nonce, writer)
        elif cell.fault in ("slow-bytes", "one-byte-slices"):
            wire = _chunk(data) + b"0\r\n\r\n"
            for at in range(len(wire)):
                writer.write(wire[at : at + 1])
                await asyncio.sleep(0.002 if cell.fault == "slow-bytes" else 0)
        elif cell.fault in ("rst-mid-body", "fin-mid-chunk"):
            writer.write(_chunk(data)[: len(data) // 2 + 4])
            await writer.drain()
            return reset(writer) if cell.fault == "rst-mid-body" else False
        elif cell.fault == "short-length":
            writer.write(data[: len(data) * 2 // 3])
            await _finish(writer)
            return False
        elif cell.fault == "long-length":
            writer.write(data + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        else:
            writer.write(data if cell.fault in STATUSES else _chunk(data) + b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _endless(self, nonce: str, writer: asyncio.StreamWriter) -> None:
        chunk = _chunk(block(nonce)) * 4
        async with asyncio.timeout(_LONGEST):
            while True:
                writer.write(chunk)
                await writer.drain()
                if writer.is_closing():
                    raise ConnectionResetError

    async def _until_closed(self, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(_LONGEST):
            await reader.read(1)


def reset(writer: asyncio.StreamWriter) -> bool:
    """End a connection with RST; False, for it carries nothing more."""
    sock = writer.get_extra_info("socket")
    if sock is not None:  # it has not gone already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


async def _finish(writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    writer.write_eof()
    await asyncio.sleep(0)


def _head(cell: Cell, nonce: str) -> bytes:
    lines = [f"HTTP/1.1 {_STATUS_LINES.get(cell.fault, '200 OK')}", f"x-nonce: {nonce}"]
    stream = cell.is_stream and cell.fault not in STATUSES
    lines.append(f"content-type: {'text/event-stream' if stream else 'application/json'}")
    if cell.fault in ("short-length", "long-length", *STATUSES):
        lines.append(f"content-length: {len(body(nonce))}")
    else:
        lines.append("transfer-encoding: chunked")
    if cell.fault == "429":
        lines.append("retry-after: 7")
    if cell.fault == "302":
        lines.append("location: http://127.0.0.1:9/elsewhere")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def untrusted_context(leaf: str, key: str) -> ssl.SSLContext:
    """TLS with a certificate that nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf, key)
    return context
