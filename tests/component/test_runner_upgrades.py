"""What runners' websockets may cost the control listener, before they are let in and after."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from pointsman.bus.memory import MemoryBus
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.gateway.rest.runner_socket import add_runner_socket
from pointsman.gateway.rest.server import ControlServer, ListenerLimits
from pointsman.gateway.runner_hub import RunnerHub
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.proxy.background import running
from pointsman.wire.unasked_frames import MOST_UNASKED
from tests.component.test_runner_exchanges import run

TOKEN = "a-runners-own-token"
HEAD = "GET /api/v1/runners/one/ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
KEY = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
HEARTBEAT = b'{"type":"heartbeat"}'


class Place:
    """A control listener where any runner that has the token is let in."""

    def __init__(self, hub: RunnerHub, port: int, server: ControlServer) -> None:
        self.hub = hub
        self.port = port
        self.server = server

    def connect(self, runner_id: str = "one") -> connect:
        url = f"ws://127.0.0.1:{self.port}/api/v1/runners/{runner_id}/ws"
        return connect(url, additional_headers={"X-Runner-Token": TOKEN}, compression=None, proxy=None)

    async def answer(self, data: bytes) -> bytes:
        """What comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def place(limits: ListenerLimits | None = None) -> AsyncIterator[Place]:
    said: list[str] = []
    bus = MemoryBus(said.append)
    hub = RunnerHub(bus, said.append, time.time, DEFAULT_RUNNER_LIMITS)
    api = FastAPI(openapi_url=None)

    async def authenticate(runner_id: str, token: str) -> RunnerIdentity | None:
        return RunnerIdentity("team", runner_id) if token == TOKEN else None

    async def health() -> str:
        return "well"

    add_runner_socket(api, hub, authenticate)
    api.router.add_api_route("/health", health)
    listener = socket.create_server(("127.0.0.1", 0))
    server = ControlServer(api, listener, limits=limits)
    async with running(server.serve(), "control"):
        try:
            yield Place(hub, listener.getsockname()[1], server)
        finally:
            await server.close()
            await bus.close()


_NO_UPGRADES = {
    "a body": HEAD + KEY + "content-length: 5\r\n\r\nhello",
    "chunks": HEAD + KEY + "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a request behind a body": HEAD + KEY + "content-length: 27\r\n\r\nGET /health HTTP/1.1\r\nhost:x\r\n\r\n",
    "a field that is too long": HEAD + KEY + f"x-runner-token: {'a' * 9000}\r\n\r\n",
    "too many fields": HEAD + KEY + "".join(f"x-{number}: 1\r\n" for number in range(200)) + "\r\n",
    "a path that is too long": HEAD.replace("one", "1" * 9000) + KEY + "\r\n",
    "another method": HEAD.replace("GET", "POST") + KEY + "\r\n",
    "no key": HEAD + "\r\n",
    "two keys": HEAD + KEY + KEY + "\r\n",
    "another version": HEAD + KEY.replace("13", "12") + "\r\n",
    "another path": HEAD.replace("/api/v1/runners/one/ws", "/api/v1/routes") + KEY + "\r\n",
    "an upgrade and nothing else": HEAD.replace("/api/v1/runners/one/ws", "/health") + "\r\n",
}


@pytest.mark.parametrize("how", _NO_UPGRADES)
@pytest.mark.guarantee("N1")
def test_what_is_no_runners_upgrade_is_refused_and_keeps_no_connection(how: str) -> None:
    async def work() -> None:
        async with place() as made:
            answer = await made.answer(_NO_UPGRADES[how].encode())
            assert answer.startswith(b"HTTP/1.1 4")
            assert answer.count(b"HTTP/1.1") == 1
            assert b"well" not in answer
            async with asyncio.timeout(10):
                while made.server.connections:
                    await asyncio.sleep(0.005)

    run(work)


async def _is_served(made: Place) -> bool:
    return (await made.answer(b"GET /health HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


def test_runners_have_a_bound_of_their_own_and_keep_nobody_out_of_rest() -> None:
    async def work() -> None:
        async with place(ListenerLimits(connections=2, lines=3)) as made, contextlib.AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(made.connect(str(number))) for number in range(3)]
            with pytest.raises(InvalidStatus) as refused:
                await stack.enter_async_context(made.connect("more"))
            assert refused.value.response.status_code == 503
            opened = [await asyncio.open_connection("127.0.0.1", made.port) for _ in range(2)]
            assert (await made.answer(b"")).startswith(b"HTTP/1.1 503 ")
            for _, writer in opened:
                writer.close()
            await lines[0].close()
            async with asyncio.timeout(20):
                while made.server.connections > 2:
                    await asyncio.sleep(0.005)
            await stack.enter_async_context(made.connect("more"))

    run(work)


def test_rest_is_served_beside_as_many_runners_as_there_may_be() -> None:
    async def work() -> None:
        async with place(ListenerLimits(connections=1, lines=5)) as made, contextlib.AsyncExitStack() as stack:
            for number in range(5):
                await stack.enter_async_context(made.connect(str(number)))
            assert await _is_served(made)

    run(work)


async def _greeted(line: ClientConnection) -> None:
    await line.send('{"type":"hello","runner_id":"one","model_proxy_version":1}')


def _piece(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@pytest.mark.parametrize("kind", ["pings", "pongs", "pieces of a message"])
@pytest.mark.parametrize("more", [0, 1])
def test_what_is_no_message_is_counted(kind: str, more: int) -> None:
    async def work() -> None:
        async with place() as made, made.connect() as line:
            await _greeted(line)
            piece = {"pings": _piece(Opcode.PING), "pongs": _piece(Opcode.PONG)}.get(
                kind, _piece(Opcode.CONT, fin=False)
            )
            first = _piece(Opcode.TEXT, HEARTBEAT, fin=False) if kind == "pieces of a message" else b""
            last = _piece(Opcode.CONT) if first else _piece(Opcode.TEXT, HEARTBEAT)
            allowed = 127 if first else 128
            line.transport.write(first + piece * (allowed + more) + last)
            if more:
                await asyncio.wait_for(line.wait_closed(), 20)
                return
            line.transport.write(first + piece * allowed + last)  # a whole message begins the count anew
            async with asyncio.timeout(20):
                await (await line.ping())
            assert made.hub.active_requests("team", "one") is not None

    run(work)


def test_a_runner_that_pings_and_reads_nothing_fills_no_memory() -> None:
    async def work() -> None:
        async with place() as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port, limit=1024)
            writer.write((HEAD + KEY + f"x-runner-token: {TOKEN}\r\n\r\n").encode())
            hello = b'{"type":"hello","runner_id":"one","model_proxy_version":1}'
            await reader.readuntil(b"\r\n\r\n")
            cast(asyncio.Transport, writer.transport).pause_reading()
            writer.write(_piece(Opcode.TEXT, hello))
            flood = (_piece(Opcode.PING, b"x" * 125) * 100 + _piece(Opcode.TEXT, HEARTBEAT)) * 10
            with pytest.raises(OSError):
                await _send_much(writer, flood)
            writer.close()

    run(work)


async def _send_much(writer: asyncio.StreamWriter, data: bytes) -> None:
    for _ in range((1 << 26) // len(data)):
        writer.write(data)
        await asyncio.wait_for(writer.drain(), 2)  # an OSError as well: what is not read is not taken


@pytest.mark.parametrize("frame", [HEARTBEAT, b'{"type":"model_response","request_id":"nobodys"}'])
@pytest.mark.guarantee("N4")
def test_a_runner_that_sends_what_nobody_waits_for_without_an_end_loses_its_line(frame: bytes) -> None:
    async def work() -> None:
        async with place() as made, made.connect() as line:
            await _greeted(line)
            line.transport.write(_piece(Opcode.TEXT, frame) * (2 * MOST_UNASKED))
            await asyncio.wait_for(line.wait_closed(), 20)
            assert line.close_code in (1008, 1006)  # it may be cut before it has read why
            assert made.hub.active_requests("team", "one") is None

    run(work)


@pytest.mark.parametrize("more", [0, 1])
def test_what_still_comes_when_a_line_was_closed_is_counted(more: int) -> None:
    async def work() -> None:
        async with place() as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            writer.write((HEAD + KEY + f"x-runner-token: {TOKEN}\r\n\r\n").encode() + _piece(Opcode.TEXT, b"rubbish"))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_piece(Opcode.TEXT, b"rubbish"))
            assert (await reader.readexactly(4))[:1] == b"\x88"
            writer.write(_piece(Opcode.TEXT, b"x") * (128 + more))
            ended = asyncio.ensure_future(reader.read())
            await asyncio.wait([ended], timeout=3 if more else 0.5)  # after 5 s it would be cut in any case
            assert ended.done() == bool(more)
            ended.cancel()
            writer.close()

    run(work)
