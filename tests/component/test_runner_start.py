"""`pointsman runner start` as a process: beside a real llama.cpp server, killed, ended, and refused."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest

from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve
from pointsman.runner.discovery import probe
from pointsman.runner.state import write_state
from tests.component.test_runner_connection import run, stays, until_closed
from tests.support import canary, evidence
from tests.support.model_server import model_server
from tests.support.processes import POINTSMAN, llama_server
from tests.support.runner_gateway import (
    MODEL_ID,
    Line,
    ScriptedGateway,
    approve_model,
    refusal,
    scripted_gateway,
    start_frame,
)


@contextlib.asynccontextmanager
async def started(gateway: ScriptedGateway, directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process; it is ended with the block, and what it printed is searched."""
    write_state(directory, gateway.state())
    process = await asyncio.create_subprocess_exec(
        POINTSMAN,
        "runner",
        "start",
        "--config-dir",
        str(directory),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdout is not None
        printed = (await process.stdout.read()).decode()
        await process.wait()
        evidence.keep("cli", printed)
        assert canary.TOKEN not in printed
        assert canary.PROMPT not in printed
        assert "Traceback" not in printed, printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_and_lets_every_server_go(tmp_path: Path, number: signal.Signals) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with started(gateway, tmp_path) as process:
                line = await gateway.line()
                await line.ask(start_frame(server.url))
                await line.frame()
                process.send_signal(number)
                assert await asyncio.wait_for(process.wait(), 20) == 0
                await until_closed(server, 1)
                assert (await line.closed())[0] in (1000, 1001)

    run(main())


def test_a_revoked_runner_exits_with_1_and_says_the_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with scripted_gateway() as gateway:
            gateway.refuse = refusal(HTTPStatus.UNAUTHORIZED)
            async with started(gateway, tmp_path) as process:
                assert await asyncio.wait_for(process.wait(), 20) == 1
                assert process.stdout is not None
                printed = (await process.stdout.read()).decode()
                assert "no model is approved yet" in printed
                assert "run 'pointsman runner register', then start again" in printed

    run(main())


async def _answer(line: Line, url: str, request_id: str, body: dict[str, object]) -> list[str]:
    await line.ask(start_frame(url, request_id, json.dumps(body).encode()))
    frame = await line.frame()
    found = [frame.data]
    while not frame.ends:
        frame = await line.next(request_id)
        found.append(frame.data)
    assert (frame.error, frame.status) == ("", 200)
    return found


def test_a_real_models_tokens_stream_through_the_line_to_done(tmp_path: Path) -> None:
    async def main(port: int) -> None:
        endpoint = parse_runner_endpoint(f"http://localhost:{port}/v1")
        while not (probed := await probe(endpoint)).models:  # it listens before it has read its model
            await asyncio.sleep(0.1)
        identifier = probed.models[0]
        approve(tmp_path / FILE_NAME, ApprovedModel(MODEL_ID, endpoint, identifier))
        messages = [{"role": "user", "content": "Count to five."}]
        body = {"model": identifier, "messages": messages, "max_tokens": 8, "seed": 1, "temperature": 0}
        async with scripted_gateway() as gateway, started(gateway, tmp_path):
            line = await gateway.line()
            lines = await _answer(line, endpoint.url, "stream", {**body, "stream": True})
            assert lines[-1] == "data: [DONE]"
            chunks = [json.loads(each.removeprefix("data: "))["choices"][0]["delta"] for each in lines[:-1]]
            streamed = "".join(chunk.get("content") or "" for chunk in chunks)
            (whole,) = await _answer(line, endpoint.url, "whole", body)
            assert json.loads(whole)["choices"][0]["message"]["content"] == streamed
            assert streamed.strip()

    with llama_server() as port:
        run(main(port))
