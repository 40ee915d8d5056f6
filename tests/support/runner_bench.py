"""A gateway's data listener and hub with a bus between them, and scripted runners that dial in. On one loop."""

import asyncio
import contextlib
import io
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TextIO

from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from pointsman.bus.interface import Bus
from pointsman.bus.memory import MemoryBus
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.core.model_table import ModelAccess, ModelTable
from pointsman.core.runner_model import RunnerModel
from pointsman.events.operation_log import OperationLog
from pointsman.gateway.data_listener import DataListener, Served
from pointsman.gateway.rest.runner_socket import Authenticate, add_runner_socket
from pointsman.gateway.rest.server import ControlServer
from pointsman.gateway.runner_hub import RunnerHub
from pointsman.gateway.runner_identity import RunnerIdentity
from pointsman.proxy.background import running
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.proxy.model_reception import Models
from tests.support.waiting import until

TOKEN = "a-runners-own-token"
ACCOUNT, RUNNER, OTHER = "team.a", "laptop", "desk"
MODEL = RunnerModel(
    ACCOUNT,
    RUNNER,
    "model-1",
    "http://localhost:11434/v1",
    Candidate("alias", Endpoint("runner", "", 0, ""), "qwen:7b", ("openai_chat_completions",), "runner"),
)

OTHER_MODEL = replace(MODEL, runner_id=OTHER, model_id="model-2", candidate=replace(MODEL.candidate, route="other"))
"""Of another runner, reached as `other`."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a client got, to the end of its connection."""

    status: int
    head: str
    body: bytes

    @property
    def code(self) -> str:
        code: str = json.loads(self.body)["error"]["code"]
        return code


class Runner:
    """One socket, driven frame by frame."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line

    async def hello(self, runner_id: str = RUNNER) -> None:
        await self.send({"type": "hello", "runner_id": runner_id, "model_proxy_version": 1})

    async def send(self, frame: object) -> None:
        await self.line.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(10):  # wait_for would lose a cancellation that comes with the frame
            frame: dict[str, Any] = json.loads(await self.line.recv())
        return frame

    async def answer(self, request: dict[str, Any], data: str = "", **more: Any) -> None:
        await self.send({"type": "model_response", "request_id": request["request_id"], "data": data, **more})

    async def closed(self) -> int | None:
        await asyncio.wait_for(self.line.wait_closed(), 20)
        return self.line.close_code


@dataclass
class Bench:
    """`hub` and `control` are one process's, `data` another's."""

    hub: RunnerHub
    control: int
    data: int
    said: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    """Of all clients, closed in the end."""

    @contextlib.asynccontextmanager
    async def runner(
        self,
        *,
        hello: bool = True,
        headers: dict[str, str] | None = None,
        runner_id: str = RUNNER,
        subprotocols: Sequence[Subprotocol] | None = None,
    ) -> AsyncIterator[Runner]:
        """A runner whose line is in force, unless it says no hello."""
        url = f"ws://127.0.0.1:{self.control}/api/v1/runners/{runner_id}/ws"
        fields = {"X-Runner-Token": TOKEN} if headers is None else headers
        options: dict[str, Any] = {"subprotocols": subprotocols, "compression": None, "max_size": None, "proxy": None}
        async with connect(url, additional_headers=fields, **options) as line:
            runner = Runner(line)
            if hello:
                connected = f"runner {runner_id} of {ACCOUNT} is connected"
                before = self.said.count(connected)
                await runner.hello(runner_id)
                await until(lambda: self.said.count(connected) > before)
            yield runner

    async def ask(self, *, stream: bool = False, path: str = "/v1/chat/completions", **more: Any) -> Told:
        """One request, its answer read to the end."""
        reader, writer = await self.send(json.dumps({"model": "alias", "stream": stream, **more}).encode(), path)
        try:
            return told(await asyncio.wait_for(reader.read(), 20))
        finally:
            writer.close()

    async def send(
        self, body: bytes, path: str = "/v1/chat/completions"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request that goes out; whoever sent it reads, or leaves."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.data)
        head = f"POST {path} HTTP/1.0\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.writers.append(writer)
        writer.write(head.encode() + b"\r\n" + body)
        return reader, writer

    @property
    def active(self) -> int:
        active = self.hub.active_requests(ACCOUNT, RUNNER)
        return -1 if active is None else active


def told(raw: bytes) -> Told:
    head, _, body = raw.partition(b"\r\n\r\n")
    return Told(int(head.split(b" ")[1]), head.decode().lower(), body)


async def _healthy() -> bool:
    return True


@contextlib.asynccontextmanager
async def bench(
    limits: RunnerLimits = DEFAULT_RUNNER_LIMITS,
    buses: tuple[Bus, Bus] | None = None,
    models: Mapping[str, RunnerModel] = MappingProxyType({"alias": MODEL}),
    lines: TextIO | None = None,
    *,
    hub_clock: Callable[[], float] = time.time,
    admit: Authenticate | None = None,
) -> AsyncIterator[Bench]:
    """Everything listens. `buses`: the data side's and the hub's; `models`, by alias, name the runners that there are.

    `lines` gets the operation log.
    """
    said: list[str] = []
    runners = {model.runner_id for model in models.values()}

    async def authenticate(runner_id: str, token: str) -> RunnerIdentity | None:
        return RunnerIdentity(ACCOUNT, runner_id) if token == TOKEN and runner_id in runners else None

    asking, serving = buses or (MemoryBus(said.append),) * 2
    hub = RunnerHub(serving, said.append, hub_clock, limits)
    api = FastAPI(openapi_url=None)
    add_runner_socket(api, hub, admit or authenticate)
    control, data = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    made = Bench(hub, control.getsockname()[1], data.getsockname()[1], said)
    server = ControlServer(api, control)
    access = ModelAccess({"default": ModelTable(models)})
    reception = Models(lambda: access, time.time, is_open=True)
    log = OperationLog(lines=lines or io.StringIO(), wall_clock=time.time)
    served = Served(reception, MemoryLedger(), runner_bus=asking, runner_limits=limits)
    listener = DataListener(log, _healthy, served)
    async with running(server.serve(), "control"):
        await listener.serve(data, None)
        try:
            yield made
        finally:
            for writer in made.writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            await listener.close()
            await server.close()
            if buses is None:
                await asking.close()
