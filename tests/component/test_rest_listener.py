"""What a client may cost the control listener, and how it stops. The application behind it is a few lines."""

import asyncio
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from starlette.types import Message, Receive, Scope, Send

from pointsman.config.tls_files import Tls
from pointsman.gateway.listeners import ssl_context
from pointsman.gateway.rest import ControlServer
from pointsman.gateway.rest.server import ListenerLimits
from pointsman.gateway.rest.strict_request import BodyLimits
from tests.support.rest import BEARER, rest_api

GET = b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n"
LARGE = 64 << 20


class Application:
    """`/small`, `/large`, and `/stuck`, which ends when it is cancelled."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.is_cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.set()
        if scope["path"] == "/stuck":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
        body = b"x" * (LARGE if scope["path"] == "/large" else 2)
        start: Message = {"type": "http.response.start", "status": 200, "headers": []}
        start["headers"] = [(b"content-length", str(len(body)).encode())]
        await send(start)
        await send({"type": "http.response.body", "body": body})


class Listener:
    """One that runs."""

    def __init__(self, limits: ListenerLimits, tls: Tls | None) -> None:
        self.application = Application()
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        self.port: int = sock.getsockname()[1]
        self.server = ControlServer(self.application, sock, ssl_context(tls), limits)

    async def connect(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "127.0.0.1" if context else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)

    async def answer(self, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """What comes back until the server closes."""
        reader, writer = await self.connect(context)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()


@asynccontextmanager
async def listener(limits: ListenerLimits | None = None, tls: Tls | None = None) -> AsyncIterator[Listener]:
    running = Listener(limits or ListenerLimits(), tls)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.server.serve())
        try:
            yield running
        finally:
            await running.server.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 40))


def test_a_request_is_answered_and_the_connection_kept() -> None:
    async def test() -> None:
        async with listener() as running:
            answer = await running.answer(GET + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
            assert answer.count(b"HTTP/1.1 200 ") == 2
            assert b"\r\nserver:" not in answer.lower()

    run(test)


def test_nothing_is_printed_and_no_signal_taken(capfd: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    async def test() -> None:
        async with listener() as running:
            await running.answer(b"rubbish\r\n\r\n")
            await running.answer(GET.replace(b"\r\n\r\n", b"\r\nupgrade: h2c\r\nconnection: upgrade, close\r\n\r\n"))
            # asyncio.run has SIGINT itself; what matters is that the listener has neither.
            assert signal.getsignal(signal.SIGTERM) is before[1]
            assert "uvicorn" not in repr(signal.getsignal(signal.SIGINT))

    run(test)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "data",
    [
        b"rubbish\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nname : value\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_in_our_shape(data: bytes) -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=1)) as running:
            answer = await running.answer(data + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b'{"error": {"code": "invalid_argument"' in answer
            assert not running.application.entered.is_set()

    run(test)


@pytest.mark.parametrize(("beyond", "is_refused"), [(0, False), (1, True)])
def test_a_head_has_a_bound(beyond: int, is_refused: bool) -> None:
    unfinished = b"GET /small HTTP/1.1\r\nhost: a\r\nname: "

    async def test() -> None:
        async with listener(ListenerLimits(head_bytes=1000, idle_seconds=1)) as running:
            answer = await running.answer(unfinished + b"v" * (1000 - len(unfinished) + beyond))
            assert answer.startswith(b"HTTP/1.1 400 ") is is_refused
            assert bool(answer) is is_refused

    run(test)


def test_connections_have_a_bound() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(connections=3)) as running:
            opened = [await running.connect() for _ in range(3)]
            for reader, writer in opened:
                writer.write(GET)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            refused = await running.answer(b"")
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b'{"error": {"code": "unavailable"' in refused
            opened[0][1].close()
            await opened[0][1].wait_closed()
            async with asyncio.timeout(10):
                while not (await running.answer(b"GET /small HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 "):
                    pass  # the server has not heard yet that there is a place again
            for _, writer in opened[1:]:
                writer.close()

    run(test)


@pytest.mark.parametrize("first", [b"", b"GET /sm", GET], ids=["nothing", "half a head", "a whole request"])
def test_a_connection_without_a_request_ends(first: bytes) -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=0.3)) as running:
            began = asyncio.get_running_loop().time()
            answer = await running.answer(first)
            assert asyncio.get_running_loop().time() - began >= 0.29
            assert answer.startswith(b"HTTP/1.1 200 ") is (first == GET)

    run(test)


def test_a_head_that_drips_gains_no_time() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=0.5)) as running:
            reader, writer = await running.connect()
            writer.write(GET[:10])
            ended = asyncio.ensure_future(asyncio.gather(reader.read(), return_exceptions=True))
            while not ended.done():
                writer.write(b"v")
                await asyncio.wait([ended], timeout=0.05)
            [end] = ended.result()
            assert end == b"" or isinstance(end, ConnectionError)
            writer.close()

    run(test)


def test_a_request_that_runs_longer_than_the_idle_time_is_not_cut() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=0.2, stop_seconds=1)) as running:
            reader, writer = await running.connect()
            writer.write(GET.replace(b"small", b"stuck"))
            await running.application.entered.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(), 1)
            writer.close()

    run(test)


def test_a_client_that_takes_nothing_of_its_answer_is_cut() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=0.3)) as running:
            reader, writer = await running.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
            writer.write(GET.replace(b"small", b"large"))
            await running.application.entered.wait()
            async with asyncio.timeout(20):
                while running.server.connections:
                    await asyncio.sleep(0.02)
            writer.transport.abort()
            assert len(reader._buffer) < LARGE  # type: ignore[attr-defined]

    run(test)


def test_a_client_that_takes_its_answer_slowly_gets_it_all() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(idle_seconds=0.3)) as running:
            reader, writer = await running.connect()
            writer.write(GET.replace(b"small", b"large"))
            received = 0
            while piece := await reader.read(8 << 20):
                received += len(piece)
                if received < LARGE:
                    await asyncio.sleep(0.003)
            assert received > LARGE
            writer.close()

    run(test)


def test_stopping_waits_for_a_request_but_not_for_ever() -> None:
    async def test() -> None:
        async with listener(ListenerLimits(stop_seconds=1)) as running:
            idle = await running.connect()
            _, writer = await running.connect()
            writer.write(GET.replace(b"small", b"stuck"))
            await running.application.entered.wait()
            began = asyncio.get_running_loop().time()
            await running.server.close()
            assert 0.9 < asyncio.get_running_loop().time() - began < 15
            assert running.application.is_cancelled
            assert not running.server.connections
            with pytest.raises(OSError):
                await running.connect()
            for each in (idle[1], writer):
                each.close()

    run(test)


def test_closing_twice_or_before_it_serves_does_no_harm() -> None:
    async def test() -> None:
        running = Listener(ListenerLimits(), None)
        await running.server.close()
        await running.server.serve()
        await running.server.close()
        with pytest.raises(OSError):
            await running.connect()

    run(test)


def test_a_client_that_comes_before_it_serves_waits() -> None:
    async def test() -> None:
        running = Listener(ListenerLimits(), None)
        reader, writer = await running.connect()
        writer.write(GET)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(running.server.serve())
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await running.server.close()

    run(test)


def test_cancelling_it_closes_it() -> None:
    async def test() -> None:
        running = Listener(ListenerLimits(), None)
        serving = asyncio.ensure_future(running.server.serve())
        reader, writer = await running.connect()
        writer.write(GET)
        await reader.readline()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with pytest.raises(OSError):
            await running.connect()
        writer.close()
        await running.server.close()

    run(test)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Tls]:
    directory, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    leaf.private_key_pem.write_to_path(str(directory / "key"))
    for blob in leaf.cert_chain_pems:
        blob.write_to_path(str(directory / "cert"), append=True)
    authority.cert_pem.write_to_path(str(directory / "ca"))
    return authority, Tls(directory / "cert", directory / "key", directory / "ca")


def test_tls_asks_for_a_clients_certificate_when_told_so(certificates: tuple[trustme.CA, Tls]) -> None:
    authority, files = certificates
    bare, known = ssl.create_default_context(), ssl.create_default_context()
    for context in (bare, known):
        authority.configure_trust(context)
    authority.issue_cert("client").configure_cert(known)
    closing = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")

    async def test() -> None:
        async with listener(tls=Tls(files.cert, files.key)) as running:
            assert (await running.answer(closing, bare)).startswith(b"HTTP/1.1 200 ")
        async with listener(tls=files) as running:
            assert (await running.answer(closing, known)).startswith(b"HTTP/1.1 200 ")
            try:
                answer = await running.answer(closing, bare)
            except (ssl.SSLError, ConnectionError):
                answer = b""  # by when it is read, the handshake's end or the connection's
            assert not answer
            assert (await running.answer(closing))[:8] != b"HTTP/1.1"

    run(test)


def test_a_body_that_does_not_arrive_is_given_up(tmp_path: Path) -> None:
    with rest_api(tmp_path, body_limits=BodyLimits(body_seconds=0.3)) as api:
        fields = f"authorization: {BEARER['authorization']}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n"
        head = f"POST /api/v1/accounts HTTP/1.1\r\nhost: a\r\n{fields}\r\n"
        assert api.raw(head.encode() + b"{", until=b"}}").startswith(b"HTTP/1.1 408 ")
