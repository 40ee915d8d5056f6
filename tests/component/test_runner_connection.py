"""A runner and its gateway: a real websocket whose other end the test plays, and a model's server."""

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.runner.app import Runner
from pointsman.wire.runner_frames import ModelResponse
from tests.support import canary, evidence
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, answering, model_server, whole
from tests.support.runner_gateway import (
    RUNNER_ID,
    ScriptedGateway,
    approve_model,
    refusal,
    scripted_gateway,
    start_frame,
)

_TWO_TOKENS = EVENT_STREAM + b'data: {"a":1}\n\n: beat\n\ndata: [DONE]\n\n'


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


class Soon(random.Random):
    """Takes the shortest delay, so that a test need not wait a second for each dial."""

    def random(self) -> float:
        return 1.98


@contextlib.asynccontextmanager
async def running(
    gateway: ScriptedGateway, directory: Path, limits: RunnerLimits = DEFAULT_RUNNER_LIMITS, ca_file: str = ""
) -> AsyncIterator[list[str]]:
    """The runner, and what it says."""
    said: list[str] = []
    runner = Runner(gateway.state(ca_file), directory, said.append, limits)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(runner.stay_connected(Soon()))
        yield said
        task.cancel()
    evidence.keep("log", "\n".join(said))
    assert canary.TOKEN not in "".join(said)


async def until_closed(server: ModelServer, count: int) -> None:
    """Until so many connections have been let go by the runner."""
    async with asyncio.timeout(20):
        while server.closed < count:
            await asyncio.sleep(0.005)


async def stays(visit: Visit) -> None:
    """One line, then nothing until the other side goes."""
    await visit.send(EVENT_STREAM + b"data: 1\n\n")
    await visit.gone()


def test_a_runner_shows_its_token_before_the_upgrade_says_hello_and_beats(tmp_path: Path) -> None:
    async def main() -> None:
        limits = replace(DEFAULT_RUNNER_LIMITS, heartbeat_seconds=0.02)
        async with scripted_gateway() as gateway, running(gateway, tmp_path, limits) as said:
            line = await gateway.line()
            await line.received()
            await line.received()
            assert line.heartbeats == 2
            (request,) = gateway.requests
            assert request.path == f"/api/v1/runners/{RUNNER_ID}/ws"
            assert request.headers["X-Runner-Token"] == canary.TOKEN
            unwanted = ("Origin", "Authorization", "Cookie", "Sec-WebSocket-Extensions")
            assert [name for name in unwanted if name in request.headers] == []
            assert said == [f"ready gateway=http://127.0.0.1:{gateway.port} runner={RUNNER_ID}"]

    run(main())


@pytest.mark.guarantee("N4", "S5")
def test_a_stream_goes_frame_by_frame_in_order_each_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(answering(_TWO_TOKENS)) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.ask(start_frame(server.url))
                found = [await line.frame(), await line.next(), await line.next()]
                assert found == [
                    ModelResponse("r", data='data: {"a":1}'),
                    ModelResponse("r", data=": beat"),
                    ModelResponse("r", data="data: [DONE]", done=True),
                ]
                await line.ask(start_frame(server.url, "again"))  # the slot is free, the line is in order
                assert (await line.frame()).data == 'data: {"a":1}'

    run(main())


@pytest.mark.guarantee("N11")
def test_a_runner_that_stood_still_for_too_long_asks_its_model_nothing_that_waited_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        limits = replace(DEFAULT_RUNNER_LIMITS, heartbeat_seconds=0.1, silence_seconds=1.5)
        async with model_server(answering(_TWO_TOKENS)) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path, limits):
                line = await gateway.line()
                await line.ask(start_frame(server.url))
                time.sleep(2)  # this process, and so the runner, stands still
                line = await gateway.line()
                assert server.visits == []
                await line.ask(start_frame(server.url))
                assert (await line.frame()).data == 'data: {"a":1}'

    run(main())


@pytest.mark.guarantee("N12", "S6")
def test_cancel_closes_the_servers_connection_in_every_phase(tmp_path: Path) -> None:
    async def main() -> None:
        async def mute(visit: Visit) -> None:
            await visit.gone()

        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.ask(start_frame(server.url, "between"))
                await line.frame()
                await line.cancel("between")
                await until_closed(server, 1)
                await line.ask(start_frame(server.url, "reading"))
                await line.frame()
                await line.send('{"type":"model_request","request_id":"reading","operation":"next"}')
                await line.cancel("reading")
                await until_closed(server, 2)
                server.answer = mute
                await line.ask(start_frame(server.url, "before the head"))
                while len(server.visits) < 3:
                    await asyncio.sleep(0.005)
                await line.cancel("before the head")
                await line.send('{"type":"model_request","request_id":"before the head","operation":"cancel"}')
                await until_closed(server, 3)
                server.answer = answering(_TWO_TOKENS)
                await line.ask(start_frame(server.url, "after"))
                assert (await line.frame()).data == 'data: {"a":1}'

    run(main())


@pytest.mark.guarantee("N12", "S6")
def test_a_lost_websocket_lets_every_server_go_and_the_next_one_resumes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path) as said:
                line = await gateway.line()
                for request_id in ("a", "b"):
                    await line.ask(start_frame(server.url, request_id))
                    await line.frame()
                line.socket.transport.abort()
                await until_closed(server, 2)
                line = await gateway.line()
                await line.send('{"type":"model_request","request_id":"a","operation":"next"}')
                await line.ask(start_frame(server.url, "c"))
                assert (await line.frame()).request_id == "c"  # and no frame of "a" before it
                assert len(server.visits) == 3
                assert said[1] == "the connection to the gateway was lost"

    run(main())


@pytest.mark.guarantee("N5", "S7")
@pytest.mark.limit("runner.active_requests")
def test_four_requests_at_once_and_the_fifth_is_busy(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                for request_id in "abcd":
                    await line.ask(start_frame(server.url, request_id))
                    assert (await line.frame()).data == "data: 1"
                await line.send(start_frame(server.url, "e"))
                assert await line.received() == ModelResponse("e", 429, error="runner_busy", done=True)
                assert len(server.visits) == 4
                await line.cancel("a")
                await line.ask(start_frame(server.url, "f"))
                assert (await line.frame()).data == "data: 1"

    run(main())


@pytest.mark.guarantee("S7")
def test_a_lifetime_ends_an_answer_whether_or_not_a_frame_is_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        limits = replace(DEFAULT_RUNNER_LIMITS, lifetime_seconds=0.4)
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path, limits):
                line = await gateway.line()
                await line.ask(start_frame(server.url, "asked"))
                await line.frame()
                assert await line.next("asked") == ModelResponse("asked", 504, error="runner_proxy_timeout", done=True)
                await line.ask(start_frame(server.url, "idle"))
                await line.frame()
                await until_closed(server, 2)
                await line.send('{"type":"model_request","request_id":"idle","operation":"next"}')
                for request_id in "abcd":  # no slot is lost
                    await line.send(start_frame(server.url, request_id))
                    assert await line.received() == ModelResponse(request_id, data="data: 1")

    run(main())


def test_a_stalled_stream_leaves_others_and_heartbeats_as_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        limits = replace(DEFAULT_RUNNER_LIMITS, heartbeat_seconds=0.02)

        async def answer(visit: Visit) -> None:
            await (stays(visit) if b'"stall"' in visit.body else visit.send(_TWO_TOKENS))

        async with model_server(answer) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path, limits):
                line = await gateway.line()
                await line.ask(start_frame(server.url, "slow", b'{"model":"tiny","stream":true,"user":"stall"}'))
                await line.frame()
                await line.send('{"type":"model_request","request_id":"slow","operation":"next"}')
                await line.ask(start_frame(server.url, "quick"))
                assert (await line.frame()).request_id == "quick"
                before = line.heartbeats
                while line.heartbeats < before + 2:
                    await line.received()

    run(main())


def test_a_redirect_of_the_handshake_is_not_followed_so_the_token_stays_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with scripted_gateway() as gateway, scripted_gateway() as other:
            gateway.refuse = refusal(HTTPStatus.FOUND, Location=f"ws://127.0.0.1:{other.port}/")
            async with running(gateway, tmp_path) as said:
                while len(gateway.requests) < 2:  # it goes on trying
                    await asyncio.sleep(0.005)
            assert other.requests == []
            assert said == ["the gateway answered with status 302; its log says why"]

    run(main())


@pytest.mark.parametrize("code", [4001, 4003, None])
def test_a_revoked_or_replaced_runner_is_told_what_to_do_and_does_not_come_back(
    tmp_path: Path, code: int | None
) -> None:
    async def main() -> None:
        async with scripted_gateway() as gateway:
            if code is None:
                gateway.refuse = refusal(HTTPStatus.UNAUTHORIZED)
            said: list[str] = []
            runner = Runner(gateway.state(), tmp_path, said.append, DEFAULT_RUNNER_LIMITS)
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                group.create_task(runner.stay_connected(Soon()))
                if code is not None:
                    await (await gateway.line()).socket.close(code, canary.PROMPT)
            assert "pointsman runner register" in said[-1]
            assert canary.PROMPT not in "".join(said)
            assert len(gateway.requests) == 1

    run(main())


def test_a_certificate_is_verified_always(tmp_path: Path) -> None:
    async def main() -> None:
        right, wrong = trustme.CA(), trustme.CA()
        for ca, name in ((right, "right.pem"), (wrong, "wrong.pem")):
            ca.cert_pem.write_to_path(str(tmp_path / name))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        right.issue_cert("127.0.0.1").configure_cert(tls)
        async with scripted_gateway(tls) as gateway:
            for ca_file in (str(tmp_path / "wrong.pem"), ""):
                async with running(gateway, tmp_path, ca_file=ca_file) as said:
                    while not said:
                        await asyncio.sleep(0.005)
                assert "--gateway-ca" in said[0]
                assert gateway.requests == []
            async with running(gateway, tmp_path, ca_file=str(tmp_path / "right.pem")):
                await gateway.line()

    run(main())


def test_a_runner_comes_back_to_a_gateway_that_was_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with scripted_gateway() as gateway:
            state_port = gateway.port
        gateway.port = state_port
        async with running(gateway, tmp_path) as said:
            while not said:
                await asyncio.sleep(0.005)
            assert said == [
                f"cannot reach the gateway at http://127.0.0.1:{state_port}: connection refused; trying again"
            ]

    run(main())


def test_a_model_server_that_dies_is_one_requests_failure(tmp_path: Path) -> None:
    async def main() -> None:
        async with scripted_gateway() as gateway, running(gateway, tmp_path):
            line = await gateway.line()
            async with model_server(answering(EVENT_STREAM + b"data: 1\n\n")) as server:
                approve_model(tmp_path, server.url)
                await line.ask(start_frame(server.url, "cut"))
                await line.frame()
                failed = ModelResponse("cut", 502, error="runner_upstream_read_error", done=True)
                assert await line.next("cut") == failed
            await line.ask(start_frame(server.url, "gone"))
            failed = ModelResponse("gone", 502, error="runner_upstream_unavailable", done=True)
            assert await line.frame() == failed
            async with model_server(answering(whole(b"{}")), port=server.port):
                await line.ask(start_frame(server.url, "back", b'{"model":"tiny"}'))
                assert await line.frame() == ModelResponse("back", data="{}", done=True)

    run(main())
