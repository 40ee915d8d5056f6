"""A gateway that a test plays to a runner: the websocket's other end, with the gateway's half of the line or without.

Nothing here is a gateway's code but the rules of the line and its frames, so what a test says is what the runner gets.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.core.secret import Secret
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve
from pointsman.runner.state import RunnerState
from pointsman.wire.runner_frames import (
    CANCEL,
    NEXT,
    START,
    SUBPROTOCOL,
    Heartbeat,
    Hello,
    ModelRequest,
    ModelResponse,
    encode_frame,
    read_from_runner,
)
from pointsman.wire.runner_line import Delivery, RunnerLine
from tests.support import canary

RUNNER_ID = "5f" * 16
MODEL_ID = "a1" * 16
IDENTIFIER = "tiny"


def start_frame(url: str, request_id: str = "r", body: bytes = b"", model_id: str = MODEL_ID) -> ModelRequest:
    """A start that the allowlist approves of when `url` is that of the model's server."""
    text = (
        body or b'{"model":"tiny","stream":true,"messages":[{"role":"user","content":"%b"}]}' % canary.PROMPT.encode()
    )
    return ModelRequest(request_id, START, model_id, url, msgspec.Raw(text))


class Line:
    """One runner's websocket."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.head = socket.request
        self._rules = RunnerLine(DEFAULT_RUNNER_LIMITS)
        self.heartbeats = 0

    async def send(self, message: ModelRequest | str | bytes) -> None:
        """Without a look at the rules."""
        if isinstance(message, ModelRequest):
            message = encode_frame(message).decode()
        await self.socket.send(message)

    async def ask(self, request: ModelRequest) -> None:
        """As a gateway does."""
        self._rules.asked(request)
        await self.send(request)

    async def next(self, request_id: str = "r") -> ModelResponse:
        await self.ask(ModelRequest(request_id, NEXT))
        return await self.frame()

    async def cancel(self, request_id: str = "r") -> None:
        await self.ask(ModelRequest(request_id, CANCEL))

    async def frame(self) -> ModelResponse:
        """The next frame of an answer, which must be one that was asked for."""
        while True:
            frame = await self.received()
            if isinstance(frame, ModelResponse):
                delivery = self._rules.received(frame)
                assert isinstance(delivery, Delivery), "a frame came that nobody waits for"
                return delivery.response

    async def received(self) -> Hello | Heartbeat | ModelResponse:
        """Whatever comes next."""
        data = await asyncio.wait_for(self.socket.recv(), 20)
        assert isinstance(data, str), "frames are text"
        frame = read_from_runner(data)
        self.heartbeats += isinstance(frame, Heartbeat)
        return frame

    async def closed(self) -> tuple[int | None, str]:
        """The runner's reason to close."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.wait_for(self.socket.recv(), 20)
        return self.socket.close_code, self.socket.close_reason or ""


class ScriptedGateway:
    """Listens until its block ends."""

    def __init__(self) -> None:
        self.port = 0
        self.lines: asyncio.Queue[Line] = asyncio.Queue()
        self.requests: list[Request] = []
        self.refuse: Response | None = None
        """What the handshake is answered with instead."""
        self.scheme = "http"
        self.tells_served = False
        """Whether it agrees to say first that it serves a runner."""

    async def line(self) -> Line:
        """The next runner that dials in, its hello read."""
        line = await asyncio.wait_for(self.lines.get(), 20)
        assert await line.received() == Hello(RUNNER_ID, 1)
        return line

    async def accept(self, socket: ServerConnection) -> None:
        self.lines.put_nowait(Line(socket))
        await socket.wait_closed()

    def check(self, _: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request)
        return self.refuse

    def select(self, _: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return Subprotocol(SUBPROTOCOL) if self.tells_served and SUBPROTOCOL in offered else None

    def state(self, ca_file: str = "") -> RunnerState:
        """A runner that is registered here."""
        address = GatewayAddress("127.0.0.1", self.port, self.scheme == "https", ca_file)
        return RunnerState(RUNNER_ID, "laptop", Secret(canary.TOKEN), address)


@contextlib.asynccontextmanager
async def scripted_gateway(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedGateway]:
    gateway = ScriptedGateway()
    async with serve(
        gateway.accept,
        "127.0.0.1",
        0,
        process_request=gateway.check,
        select_subprotocol=gateway.select,
        ssl=tls,
        compression=None,
        close_timeout=2,
    ) as server:
        gateway.port = server.sockets[0].getsockname()[1]
        gateway.scheme = "https" if tls is not None else "http"
        yield gateway


def refusal(status: HTTPStatus, **fields: str) -> Response:
    """An answer to a handshake."""
    from websockets.datastructures import Headers

    return Response(status.value, status.phrase, Headers(fields), b"")


def approve_model(directory: Path, url: str) -> None:
    """As the operator does."""
    approve(directory / FILE_NAME, ApprovedModel(MODEL_ID, parse_runner_endpoint(url), IDENTIFIER))
