"""An engine's socket goes a moment before its process does: who asks in between waits, and is answered by the next."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.endpoint import Endpoint
from pointsman.core.errors import UpstreamUnavailable
from pointsman.core.secret import Secret
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.backends.http import EngineLine
from pointsman.proxy.router import Router

CHAT = "openai_chat_completions"
ENGINE = Candidate("sandbox-system", Endpoint("gguf", "", 0, "/models/small.gguf"), "small", (CHAT,))
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b'"messages":[]}')
    writer.write(ANSWER)
    await writer.drain()
    writer.close()


class Dying:
    """An engine that nobody listens for; its process has gone when it was waited for, or does not go."""

    def __init__(self, directory: Path, *, goes: bool) -> None:
        self.directory = directory
        self.goes = goes
        self.waited = 0
        self.asked = 0

    async def find(self, candidate: Candidate) -> EngineLine:
        self.asked += 1
        name = "next" if self.waited and self.goes else "dying"
        return EngineLine(str(self.directory / name), Secret("key"), lambda: 0.0, self.until_dead)

    async def until_dead(self) -> None:
        self.waited += 1

    async def ask(self) -> bytes:
        """Through a router. Raises UpstreamUnavailable."""
        dead = await asyncio.start_unix_server(answer, self.directory / "dying")
        dead.close()  # what is left is a name that refuses connections
        await dead.wait_closed()
        served = await asyncio.start_unix_server(answer, self.directory / "next")
        log = OperationLog(lines=None, wall_clock=time.time)
        router = Router(make_bundle((ENGINE,)), log, find_engine=self.find)
        try:
            body = json.dumps({"model": "any", "messages": []}, separators=(",", ":")).encode()
            path, fields = "/v1/chat/completions", [("Content-Type", "application/json")]
            return (await router.system_inference(CHAT, "POST", path, fields, body)).body
        finally:
            await router.close()
            served.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return factory


def test_a_request_that_meets_a_dying_engine_is_answered_by_the_next(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    engine = Dying(tmp_path, goes=True)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(engine.ask()) == b'{"ok":true}'
    assert (engine.asked, engine.waited) == (2, 1)


def test_an_engine_that_refuses_and_does_not_die_is_unavailable_after_one_more_try(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    engine = Dying(tmp_path, goes=False)
    with asyncio.Runner(loop_factory=loop_factory) as runner, pytest.raises(UpstreamUnavailable, match="refused"):
        runner.run(engine.ask())
    assert (engine.asked, engine.waited) == (2, 1)
