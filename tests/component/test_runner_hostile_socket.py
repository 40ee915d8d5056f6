"""A gateway that speaks its websocket badly: the runner drops it, keeps little of it, and dials again."""

import asyncio
import base64
import contextlib
import hashlib
import json
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from websockets.frames import Frame, Opcode

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.gateway.rest.server import ControlServer, ListenerLimits
from pointsman.proxy.background import running as serving
from tests.component.test_runner_connection import run, running
from tests.support import canary
from tests.support.runner_gateway import ScriptedGateway

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Visit:
    """One dial of the runner."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    async def asked(self) -> bytes:
        """Its request; what a right answer would have to hold."""
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        (key,) = [
            line.split(b": ")[1] for line in self.head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        ]
        return base64.b64encode(hashlib.sha1(key + _GUID).digest())

    async def accept(self, more: bytes = b"") -> None:
        accept = await self.asked()
        fields = b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: " + accept + b"\r\n" + more
        self.writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        """Wait until the runner has gone."""
        with contextlib.suppress(OSError):
            while await self.reader.read(1 << 16):
                pass


Play = Callable[[Visit], Awaitable[None]]


class RawGateway(ScriptedGateway):
    """Plays to each dial, and counts them."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self._play = play
        self.visits = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.again = asyncio.Event()
        self.holds = False
        """Whether a connection stays when its play is over."""

    async def visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self.writers.append(writer)
        if self.visits > 1:
            self.again.set()
        with contextlib.suppress(OSError, EOFError):
            await self._play(Visit(reader, writer))
        if not self.holds:
            writer.close()


@contextlib.asynccontextmanager
async def raw_gateway(play: Play) -> AsyncIterator[RawGateway]:
    gateway = RawGateway(play)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # what it does not read is soon too much
    gateway.port = listener.getsockname()[1]
    server = await asyncio.start_server(gateway.visited, sock=listener, limit=1024)
    try:
        yield gateway
    finally:
        server.close()
        for writer in gateway.writers:
            writer.transport.abort()


def _answer(data: bytes) -> Play:
    async def play(visit: Visit) -> None:
        await visit.asked()
        await visit.send(data)

    return play


def _early(data: bytes, *, ends: bool = True) -> Play:
    """`ends`: close at once, as a gateway that has no room does."""

    async def play(visit: Visit) -> None:
        await visit.send(data)
        if not ends:
            await visit.end()

    return play


def _accepted(data: bytes, fields: bytes = b"") -> Play:
    async def play(visit: Visit) -> None:
        await visit.accept(fields)
        await visit.send(data)
        await visit.end()

    return play


def _frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True, mask: bool = False) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=mask)


_START = json.dumps({"type": "model_request", "request_id": "r", "operation": "next"}).encode()
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
_PLAYS: dict[str, Play] = {
    "nothing at all": _early(b""),
    "an answer before the request": _early(_REFUSAL),
    "an answer before the request, and no end": _early(_REFUSAL, ends=False),
    "an upgrade before the request": _early(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + _frame(Opcode.TEXT, _START)),
    "rubbish before the request": _early(b"\x00\xff" * 1000),
    "rubbish": _answer(b"\x16\x03\x01" * 100 + b"\r\n\r\n"),
    "another protocol": _answer(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a status that is none": _answer(b"HTTP/1.1 999999999999999999999 x\r\n\r\n"),
    "a field without a colon": _answer(b"HTTP/1.1 503 x\r\nfield\r\n\r\n"),
    "an endless field": _answer(b"HTTP/1.1 503 x\r\na: " + b"x" * (1 << 20)),
    "endless fields": _answer(b"HTTP/1.1 503 x\r\n" + b"a: b\r\n" * 100_000),
    "a length that is none": _answer(b"HTTP/1.1 503 x\r\ncontent-length: -1\r\n\r\n"),
    "a length of thousands of digits": _answer(b"HTTP/1.1 503 x\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n"),
    "a body that is too long": _answer(b"HTTP/1.1 503 x\r\n\r\n" + b"x" * (4 << 20)),
    "chunks that are none": _answer(b"HTTP/1.1 503 x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n"),
    "a coding that nobody knows": _answer(b"HTTP/1.1 503 x\r\ntransfer-encoding: gzip\r\n\r\n"),
    "bytes of no alphabet": _answer(b"HTTP/1.1 503 \xff\xfe\r\n\xff: \xff\r\n\r\n"),
    "another key": _answer(
        b"HTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n"
    ),
    "no key": _answer(b"HTTP/1.1 101 x\r\n\r\n"),
    "compression": _accepted(b"", b"sec-websocket-extensions: permessage-deflate\r\n"),
    "a protocol": _accepted(b"", b"sec-websocket-protocol: chat\r\n"),
    "bytes": _accepted(_frame(Opcode.BINARY, b"x")),
    "a masked frame": _accepted(_frame(Opcode.TEXT, _START, mask=True)),
    "a compressed frame": _accepted(b"\xc1\x02{}"),
    "an opcode that is none": _accepted(b"\x83\x00"),
    "a ping in pieces": _accepted(b"\x09\x00"),
    "a ping that is too long": _accepted(b"\x89\x7e\x00\x7e" + b"x" * 126),
    "a piece of nothing": _accepted(_frame(Opcode.CONT, b"x")),
    "a message within a message": _accepted(_frame(Opcode.TEXT, b"x", fin=False) + _frame(Opcode.TEXT, b"x")),
    "a length of 2^63": _accepted(b"\x81\x7f\x80" + b"\0" * 7),
    "a length of 2^62": _accepted(b"\x81\x7f\x40" + b"\0" * 7),
    "text that is none": _accepted(_frame(Opcode.TEXT, b"\xff\xfe")),
    "a close code that is none": _accepted(b"\x88\x02\x00\x01"),
    "a close of one byte": _accepted(b"\x88\x01\x03"),
    "a close whose reason is no text": _accepted(b"\x88\x04\x03\xe8\xff\xfe"),
    "a close, and more": _accepted(b"\x88\x02\x03\xe8" + _frame(Opcode.TEXT, _START) * 100),
    "thousands of empty pieces": _accepted(
        _frame(Opcode.TEXT, b"", fin=False) + _frame(Opcode.CONT, b"", fin=False) * 50_000
    ),
    "pings, and then rubbish": _accepted(_frame(Opcode.PING, b"x" * 125) * 1000 + b"\xff\xff"),
}


@pytest.mark.parametrize("how", _PLAYS)
@pytest.mark.guarantee("N4")
def test_a_gateway_that_speaks_badly_is_dropped_and_dialled_again(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with raw_gateway(_PLAYS[how]) as gateway, running(gateway, tmp_path) as said:
            await asyncio.wait_for(gateway.again.wait(), 25)
            assert said
            assert all(line.isprintable() and len(line) < 300 for line in said)

    run(main())


def test_a_gateway_that_takes_no_further_connection_is_dialled_again(tmp_path: Path) -> None:
    async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it has no room")

    async def main() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        gateway = ScriptedGateway()
        gateway.port = listener.getsockname()[1]
        server = ControlServer(nobody, listener, limits=ListenerLimits(connections=0))
        async with serving(server.serve(), "control"), running(gateway, tmp_path) as said:
            async with asyncio.timeout(25):
                while not said:
                    await asyncio.sleep(0.005)
            assert said[0].endswith(("trying again", "its log says why", "control listener?"))
            await server.close()
            async with asyncio.timeout(25):  # it is still there, and sees that the gateway is not
                while "refused" not in said[-1]:
                    await asyncio.sleep(0.005)

    run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_follows_no_redirect(tmp_path: Path, status: int) -> None:
    async def main() -> None:
        async with raw_gateway(_early(b"")) as other:
            place = f"ws://127.0.0.1:{other.port}/api/v1/runners/x/ws"
            answer = f"HTTP/1.1 {status} x\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n".encode()
            async with raw_gateway(_answer(answer)) as gateway, running(gateway, tmp_path):
                await asyncio.wait_for(gateway.again.wait(), 20)
                assert other.visits == 0

    run(main())


def test_a_gateway_that_pings_and_reads_nothing_fills_no_memory(tmp_path: Path) -> None:
    async def play(visit: Visit) -> None:
        await visit.accept()
        flood = _frame(Opcode.PING, b"x" * 125) * 1000
        for _ in range((64 << 20) // len(flood)):
            await visit.send(flood)

    async def main() -> None:
        async with raw_gateway(play) as gateway, running(gateway, tmp_path):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await asyncio.wait_for(gateway.again.wait(), 60)
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10

    run(main())


def test_a_proxy_of_the_environment_sees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with raw_gateway(_early(b"")) as proxy, raw_gateway(_answer(_REFUSAL)) as gateway:
            for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy", "wss_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            async with running(gateway, tmp_path) as said:
                await asyncio.wait_for(gateway.again.wait(), 20)
                assert proxy.visits == 0
                assert canary.TOKEN not in "".join(said)

    run(main())


async def _take_nothing(visit: Visit, stuck: asyncio.Event) -> None:
    """Ask so much, and read none of the refusals, that the runner cannot send any more."""
    await visit.accept()
    body = {"type": "model_request", "operation": "start", "model_id": "a", "base_url": "b", "body": {}}
    flood = b"".join(
        _frame(Opcode.TEXT, json.dumps({**body, "request_id": f"{number:0128d}"}).encode()) for number in range(500)
    )
    with contextlib.suppress(TimeoutError):
        for _ in range((1 << 28) // len(flood)):
            await asyncio.wait_for(visit.send(flood), 1)
    stuck.set()


def test_a_runner_ends_in_time_although_its_gateway_takes_none_of_its_answers(tmp_path: Path) -> None:
    stuck = asyncio.Event()

    async def play(visit: Visit) -> None:
        await _take_nothing(visit, stuck)
        await asyncio.Event().wait()

    async def main() -> None:
        async with raw_gateway(play) as gateway:
            async with running(gateway, tmp_path):
                await asyncio.wait_for(stuck.wait(), 40)
                began = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - began < 6

    run(main())


def test_a_gateway_that_takes_nothing_is_given_up_when_it_has_been_silent_for_its_time(tmp_path: Path) -> None:
    limits = replace(DEFAULT_RUNNER_LIMITS, silence_seconds=2.0, heartbeat_seconds=0.5)

    async def main() -> None:
        async with raw_gateway(lambda visit: _take_nothing(visit, asyncio.Event())) as gateway:
            gateway.holds = True
            async with running(gateway, tmp_path, limits):
                await asyncio.wait_for(gateway.again.wait(), 40)

    run(main())
