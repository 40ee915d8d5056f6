"""The engine: a real model file, a real child, the whole router in front of it."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.endpoint import Endpoint
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.engine.supervisor import Engine, EngineState, EngineUnavailable
from pointsman.sandbox.app import open_router
from pointsman.testing import FakeClock
from tests.support.llama_server import model_path

PROTOCOLS = (
    "openai_chat_completions",
    "openai_completions",
    "openai_responses",
    "anthropic_messages",
    "model_discovery",
)
ASK = {"messages": [{"role": "user", "content": "Count from one to one hundred."}], "model": "whatever"}


def run(main: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())  # type: ignore[arg-type]  # tests pass coroutine functions


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@contextlib.asynccontextmanager
async def engine(path: Path | None = None) -> AsyncIterator[Engine]:
    made = Engine(path or model_path(), clock=time.monotonic)
    try:
        yield made
    finally:
        await made.close()


def test_fifty_callers_start_one_child_and_a_cancelled_one_harms_nobody() -> None:
    async def main() -> None:
        async with engine() as made:
            states = [made.state]
            tasks = [asyncio.ensure_future(made.address()) for _ in range(50)]
            await asyncio.sleep(0)
            states.append(made.state)
            tasks[0].cancel()
            addresses = await asyncio.gather(*tasks[1:])
            assert len({address.socket_path for address in addresses}) == 1
            states.append(made.state)
            assert states == [EngineState.IDLE, EngineState.LOADING, EngineState.READY]
            assert oct(os.stat(addresses[0].socket_path).st_mode & 0o777) == "0o600"
            pid = made.pid
        assert pid is not None
        assert not is_running(pid)
        assert not Path(addresses[0].socket_path).parent.exists()

    run(main)


def test_the_event_loop_stays_free_while_a_model_loads() -> None:
    async def main() -> None:
        async with engine() as made:
            start = asyncio.ensure_future(made.address())
            worst = 0.0
            while not start.done():
                before = time.monotonic()
                await asyncio.sleep(0.005)
                worst = max(worst, time.monotonic() - before - 0.005)
            await start
            assert worst < 0.1

    run(main)


def test_a_dead_child_is_started_again() -> None:
    async def main() -> None:
        async with engine() as made:
            first = await made.address()
            pid = made.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while made.pid is not None:
                await asyncio.sleep(0.01)
            second = await made.address()
            assert second.socket_path != first.socket_path
            assert made.pid != pid

    run(main)


@pytest.mark.parametrize("content", [None, b"", b"not a model", b"GGUF\x03\x00\x00\x00truncated"])
def test_a_bad_model_file_is_a_clear_error_and_is_not_tried_again_at_once(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    clock = FakeClock()

    async def main() -> None:
        made = Engine(path, clock=clock)
        with pytest.raises(EngineUnavailable, match=r"model\.gguf"):
            await made.address()
        assert made.state is EngineState.FAILED
        path.unlink(missing_ok=True)
        with pytest.raises(EngineUnavailable):
            await made.address()
        clock.advance(1.0)
        with pytest.raises(EngineUnavailable, match="cannot be read"):
            await made.address()
        await made.close()

    run(main)


def test_the_child_has_no_keys_no_network_and_cannot_be_dumped() -> None:
    async def main() -> None:
        os.environ["CANARY_API_KEY"] = "sk-canary"
        async with engine() as made:
            await made.address()
            assert made.pid is not None
            process = Path(f"/proc/{made.pid}")
            assert b"canary" not in (process / "environ").read_bytes().lower()
            assert os.readlink(process / "ns/net") != os.readlink("/proc/self/ns/net")
            limits = (process / "limits").read_text()
            assert [line.split()[4] for line in limits.splitlines() if line.startswith("Max core")] == ["0"]
        del os.environ["CANARY_API_KEY"]

    run(main)


@pytest.fixture(scope="module")
def routes() -> Candidate:
    return Candidate("sandbox-system", Endpoint("gguf", "", 0, str(model_path())), "smollm2", PROTOCOLS)


def ask(candidate: Candidate, protocol: str, path: str, body: object) -> tuple[int, bytes]:
    found: list[tuple[int, bytes]] = []

    async def main() -> None:
        async with open_router(make_bundle((candidate,))) as router:
            content = json.dumps(body).encode()
            answer = await router.system_inference(
                protocol, "POST", path, [("Content-Type", "application/json")], content
            )
            found.append((answer.status, answer.body))

    run(main)
    return found[0]


def test_a_chat_streams_with_usage_and_without_the_path_of_the_file(routes: Candidate) -> None:
    body = {**ASK, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    status, answer = ask(routes, PROTOCOLS[0], "/v1/chat/completions", body)
    assert status == 200
    assert answer.endswith(b"data: [DONE]\n\n")
    assert b'"usage":{' in answer
    assert str(model_path().parent).encode() not in answer


@pytest.mark.parametrize(
    ("protocol", "path", "body"),
    [
        (PROTOCOLS[0], "/v1/chat/completions", {**ASK, "max_tokens": 5}),
        (PROTOCOLS[1], "/v1/completions", {"prompt": "The sky", "max_tokens": 5}),
        (PROTOCOLS[2], "/v1/responses", {"input": "The sky", "max_output_tokens": 5}),
        (PROTOCOLS[3], "/v1/messages", {**ASK, "max_tokens": 5}),
        (PROTOCOLS[3], "/v1/messages/count_tokens", ASK),
    ],
)
def test_every_dialect_is_answered(routes: Candidate, protocol: str, path: str, body: object) -> None:
    status, answer = ask(routes, protocol, path, body)
    assert status == 200
    assert json.loads(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit_is_400(routes: Candidate, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 9000}], "stream": stream}
    status, answer = ask(routes, PROTOCOLS[0], "/v1/chat/completions", body)
    assert status == 400
    assert b"context" in answer


@pytest.mark.parametrize("phase", ["prompt", "answer"])
def test_a_cancelled_request_stops_the_engine(routes: Candidate, phase: str) -> None:
    long_prompt = {"messages": [{"role": "user", "content": "word " * 6000}], "max_tokens": 5}
    long_answer = {**ASK, "max_tokens": 4000, "ignore_eos": True}
    body = json.dumps({**(long_prompt if phase == "prompt" else long_answer), "stream": True}).encode()

    async def main() -> None:
        async with engine() as made:
            address = await made.address()
            reader, writer = await asyncio.open_unix_connection(address.socket_path)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {address.key.reveal()}\r\n"
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            if phase == "answer":
                await reader.readuntil(b'"content":"')
            before = made.cpu_seconds()
            while made.cpu_seconds() < before + 0.3:
                await asyncio.sleep(0.01)
            writer.close()
            deadline = time.monotonic() + 5
            idle_since, seen = time.monotonic(), made.cpu_seconds()
            while time.monotonic() - idle_since < 0.5:
                assert time.monotonic() < deadline, "the engine goes on for nobody"
                await asyncio.sleep(0.05)
                if made.cpu_seconds() > seen + 0.02:
                    idle_since, seen = time.monotonic(), made.cpu_seconds()

    run(main)


def test_a_long_prompt_is_waited_for_as_long_as_the_engine_works_on_it(routes: Candidate) -> None:
    limits = replace(DEFAULT_LIMITS, response_header_seconds=0.3, sweep_seconds=0.05)
    body = json.dumps({"messages": [{"role": "user", "content": "word " * 250}], "max_tokens": 2}).encode()

    async def main() -> None:
        async with open_router(make_bundle((routes,)), limits=limits) as router:
            started = time.monotonic()
            answer = await router.system_inference(PROTOCOLS[0], "POST", "/v1/chat/completions", [], body)
            assert answer.status == 200
            assert time.monotonic() - started > 1.0

    run(main)
