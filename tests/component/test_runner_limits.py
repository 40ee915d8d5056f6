"""The bounds of what passes between a gateway and a runner, at each and beyond it, on both sides, over real sockets."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS, RunnerLimits
from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.core.secret import Secret
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve
from pointsman.runner.app import Runner as RunnerProgram
from pointsman.runner.state import RunnerState
from pointsman.wire.runner_frames import encode_frame
from tests.component.test_runner_connection import Soon, running
from tests.component.test_runner_exchanges import run
from tests.component.test_runner_fetcher import READ_ERROR, failed, frames, line
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, answering, model_server, whole
from tests.support.runner_bench import MODEL, RUNNER, TOKEN, Bench, Runner, bench, told
from tests.support.runner_gateway import scripted_gateway, start_frame
from tests.support.waiting import until

_LATE = 0.6
"""Seconds that something takes; a bound is well above or below it."""
_PATIENT, _SHORT = 20.0, 0.3
_KIB = 1024


def limited(**seconds: float) -> RunnerLimits:
    return replace(DEFAULT_RUNNER_LIMITS, **seconds)  # type: ignore[arg-type]  # all of them are floats


@contextlib.asynccontextmanager
async def whole_way(server: ModelServer, directory: Path) -> AsyncIterator[Bench]:
    """A gateway, and the real runner beside a model's server."""
    async with bench(models={"alias": replace(MODEL, base_url=server.url)}) as made:
        state = RunnerState(RUNNER, "laptop", Secret(TOKEN), GatewayAddress("127.0.0.1", made.control))
        approve(directory / FILE_NAME, ApprovedModel("model-1", parse_runner_endpoint(server.url), "qwen:7b"))
        said: list[str] = []
        program = RunnerProgram(state, directory, said.append, DEFAULT_RUNNER_LIMITS)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(program.stay_connected(Soon()))
            await until(lambda: made.active == 0)
            yield made
            task.cancel()
        assert len(said) == 1, "the runner lost its line"


_CHARACTERS = ("x", '"', "\\", "\x01", "\t", "\x7f", "é", "\u2028", "😀")


def line_of(character: str, size: int) -> str:
    count, rest = divmod(size - len("data: "), len(character.encode()))
    return "data: " + character * count + "x" * rest


@pytest.mark.guarantee("N15")
@pytest.mark.parametrize("character", _CHARACTERS)
@pytest.mark.limit("runner.data_bytes", "runner.frame_bytes")
def test_a_line_of_64_kib_passes_from_the_models_server_to_the_client_whatever_it_consists_of(
    tmp_path: Path, character: str
) -> None:
    async def work() -> None:
        text = line_of(character, 64 * _KIB).encode()
        assert len(text) == 64 * _KIB
        end = b"\n\ndata: [DONE]\n\n"
        async with model_server(answering(EVENT_STREAM, text + end)) as server, whole_way(server, tmp_path) as made:
            answer = await made.ask(stream=True)
            assert (answer.status, answer.body) == (200, text + end)
            server.answer = answering(EVENT_STREAM, text + b"x" + end)
            refused = await made.ask(stream=True)
            assert (refused.status, refused.code) == (502, "runner_frame_too_large")

    run(work)


@pytest.mark.guarantee("N15")
@pytest.mark.parametrize("character", ['\\"', "\\\\", "\\u0001", "é"])
def test_a_completion_of_64_kib_passes_from_the_models_server_to_the_client_whatever_it_consists_of(
    tmp_path: Path, character: str
) -> None:
    async def work() -> None:
        body = '{"x":"' + character * ((64 * _KIB - 8) // len(character.encode())) + '"}'
        text = body.encode().ljust(64 * _KIB, b" ")
        async with model_server(answering(whole(text))) as server, whole_way(server, tmp_path) as made:
            answer = await made.ask()
            assert (answer.status, answer.body) == (200, text)
            server.answer = answering(whole(text + b" "))
            refused = await made.ask()
            assert (refused.status, refused.code) == (502, "runner_frame_too_large")

    run(work)


@pytest.mark.guarantee("N15")
@pytest.mark.parametrize("spell", [lambda text: json.dumps(text), lambda text: '"' + "\\u0061" * len(text) + '"'])
@pytest.mark.limit("runner.data_bytes", "runner.escaped_frame_bytes")
def test_a_runner_may_spell_a_line_of_64_kib_as_it_likes_and_a_longer_one_is_one_requests_failure(spell: Any) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            for size, status in ((64 * _KIB, 200), (64 * _KIB + 1, 502)):
                asked = tasks.create_task(made.ask(stream=True))
                request = await runner.receive()
                frame = {"type": "model_response", "request_id": request["request_id"], "data": "@"}
                await runner.send(json.dumps(frame).replace('"@"', spell("a" * size)))
                assert (await runner.receive())["operation"] == ("next" if status == 200 else "cancel")
                if status == 200:
                    await runner.answer(request, "data: [DONE]", done=True)
                answer = await asked
                assert answer.status == status
                assert answer.body.startswith(b"a" * size if status == 200 else b"{")
            assert answer.code == "runner_frame_too_large"
            assert made.active == 0

    run(work)


@pytest.mark.guarantee("N13")
@pytest.mark.parametrize("escape", ["", "\\u0061"])
@pytest.mark.limit("runner.frame_bytes", "runner.escaped_frame_bytes")
def test_a_frame_of_the_largest_size_passes_and_a_byte_more_closes_the_line(escape: str) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner:
            frame = json.dumps({"type": "model_response", "request_id": "nobodys", "data": "@"})
            room = 72 * _KIB - len(frame) + 1
            if escape:  # 64 KiB of data, each byte as six; what is around it takes the rest
                frame = frame.replace("@", escape * (64 * _KIB)).ljust(392 * _KIB)
            else:
                frame = frame.replace("@", "x" * room)
            await runner.send(frame)
            await runner.send({"type": "heartbeat"})
            asked = asyncio.ensure_future(made.ask())
            await runner.answer(await runner.receive(), "{}", done=True)
            assert (await asked).status == 200
            await runner.send(frame + " ")
            assert await runner.closed() == 1009

    run(work)


@pytest.mark.parametrize(("more", "code"), [(0, None), (1, 1009)])
@pytest.mark.limit("runner.start_frame_bytes")
def test_a_start_of_the_largest_size_reaches_the_models_server_and_a_byte_more_closes_the_line(
    tmp_path: Path, more: int, code: int | None
) -> None:
    async def work() -> None:
        async with model_server(answering(whole(b"{}"))) as server, scripted_gateway() as gateway:
            approve(tmp_path / FILE_NAME, ApprovedModel("a1" * 16, parse_runner_endpoint(server.url), "tiny"))
            async with running(gateway, tmp_path):
                made = await gateway.line()
                pad = DEFAULT_RUNNER_LIMITS.request_bytes - len(b'{"model":"tiny","x":""}')
                body = b'{"model":"tiny","x":"%b"}' % (b"x" * pad)
                frame = encode_frame(start_frame(server.url, body=body))
                await made.send(frame.ljust(DEFAULT_RUNNER_LIMITS.start_frame_bytes + more).decode())
                if code is not None:
                    assert (await made.closed())[0] == code
                    return
                answer = await made.received()
                assert (getattr(answer, "data", ""), server.visits[0].body) == ("{}", body)

    run(work)


def _full_listener() -> tuple[socket.socket, list[socket.socket]]:
    """A server that takes no connection: its queue is full, and further ones wait."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = []
    for _ in range(4):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(listener.getsockname())
        waiting.append(each)
    return listener, waiting


@pytest.mark.guarantee("N5")
@pytest.mark.parametrize(("seconds", "code"), [(_PATIENT, "read_error"), (_SHORT, "unavailable")])
@pytest.mark.limit("runner.connect_seconds")
def test_a_models_server_has_its_time_to_take_the_connection(seconds: float, code: str) -> None:
    async def work() -> None:
        listener, waiting = _full_listener()
        with listener, contextlib.ExitStack() as open_sockets:
            for each in waiting:
                open_sockets.enter_context(each)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            asked = asyncio.ensure_future(frames(url, limits=limited(connect_seconds=seconds, idle_seconds=_PATIENT)))
            done, _ = await asyncio.wait((asked,), timeout=_LATE)
            assert bool(done) == (code == "unavailable")
            if code == "read_error":
                listener.setblocking(False)
                await until(lambda: _takes_and_closes(listener) or asked.done())
                while not asked.done():
                    _takes_and_closes(listener)
                    await asyncio.sleep(0.01)
                assert await asked == [READ_ERROR]  # it was connected, and then let go
            else:
                assert await asked == [failed(502, "runner_upstream_unavailable")]

    run(work)


def _takes_and_closes(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.guarantee("N5")
@pytest.mark.parametrize("seconds", [_PATIENT, _SHORT])
@pytest.mark.limit("runner.idle_seconds")
def test_a_models_server_has_its_time_for_the_first_line_and_between_two(seconds: float) -> None:
    async def slow(visit: Visit) -> None:
        await asyncio.sleep(_LATE)
        await visit.send(EVENT_STREAM + b"data: 1\n\n")
        await asyncio.sleep(_LATE)
        await visit.send(b"data: [DONE]\n\n")

    async def slow_between(visit: Visit) -> None:
        await visit.send(EVENT_STREAM + b"data: 1\n\n")
        await asyncio.sleep(_LATE)
        await visit.send(b"data: [DONE]\n\n")

    async def work() -> None:
        late = failed(504, "runner_proxy_timeout")
        for answer, cut in ((slow, [late]), (slow_between, [line("data: 1"), late])):
            async with model_server(answer) as server:
                found = await frames(server.url, limits=limited(idle_seconds=seconds))
                right = [line("data: 1"), (200, "data: [DONE]", True, "")]
                assert found == (right if seconds == _PATIENT else cut)

    run(work)


@pytest.mark.parametrize("seconds", [_PATIENT, _SHORT])
@pytest.mark.limit("runner.idle_seconds")
def test_a_runner_has_its_time_for_the_first_frame_and_between_two(seconds: float) -> None:
    async def work() -> None:
        async with bench(limited(idle_seconds=seconds)) as made, made.runner() as runner:
            whole_asked = asyncio.ensure_future(made.ask())
            request = await runner.receive()
            await asyncio.sleep(_LATE)
            await runner.answer(request, "{}", done=True)
            assert (await whole_asked).status == (200 if seconds == _PATIENT else 504)
            if seconds == _SHORT:
                assert (await runner.receive())["operation"] == "cancel"
            asked = asyncio.ensure_future(made.ask(stream=True))
            request = await runner.receive()
            await runner.answer(request, "data: 1")
            await runner.receive()
            await asyncio.sleep(_LATE)
            await runner.answer(request, "data: [DONE]", done=True)
            body = (await asked).body
            assert body.startswith(b"data: 1\n\n")
            assert (b"response truncated: runner_proxy_timeout" in body) == (seconds == _SHORT)
            assert (b"[DONE]" in body) == (seconds == _PATIENT)

    run(work)


async def _endless(runner: Runner) -> None:
    """One line per 50 ms for whoever asks."""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            request = await runner.receive()
            if request["operation"] != "cancel":
                await asyncio.sleep(0.05)
                await runner.answer(request, "data: 1")


@pytest.mark.limit("runner.lifetime_seconds")
def test_an_answer_that_never_ends_is_cut_when_its_lifetime_is_over_and_not_before() -> None:
    async def work() -> None:
        async with bench(limited(lifetime_seconds=1.0)) as made, made.runner() as runner:
            began = asyncio.get_running_loop().time()
            playing = asyncio.ensure_future(_endless(runner))
            answer = told(await (await made.send(b'{"model":"alias","stream":true}'))[0].read())
            assert asyncio.get_running_loop().time() - began > 0.95
            assert b"response truncated: runner_proxy_timeout" in answer.body
            assert answer.body.count(b"data: 1\n\n") >= 2
            await until(lambda: made.active == 0)
            playing.cancel()
            await playing

    run(work)


@pytest.mark.parametrize("beat", [0.1, 5.0])
@pytest.mark.limit("runner.heartbeat_seconds", "runner.silence_seconds")
def test_a_runner_whose_heart_beats_within_the_silence_that_is_allowed_stays_and_another_does_not(
    tmp_path: Path, beat: float
) -> None:
    async def work() -> None:
        async with bench(limited(silence_seconds=1.5)) as made, asyncio.TaskGroup() as tasks:
            state = RunnerState(RUNNER, "laptop", Secret(TOKEN), GatewayAddress("127.0.0.1", made.control))
            said: list[str] = []
            limits = limited(heartbeat_seconds=beat, silence_seconds=_PATIENT)
            task = tasks.create_task(RunnerProgram(state, tmp_path, said.append, limits).stay_connected(Soon()))
            gone = f"runner {RUNNER} of team.a has gone"
            await until(lambda: made.active == 0)
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() - began < 2.0 and gone not in made.said:
                await asyncio.sleep(0.02)
            assert (gone in made.said) == (beat > 1.5)
            if gone in made.said:
                assert asyncio.get_running_loop().time() - began > 1.3
            task.cancel()

    run(work)
