"""A model beside a runner, asked over real sockets: the client's, and the runner's."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import openai
import pytest
import uvloop

from pointsman.bus.subjects import runner_subject
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.wire.runner_envelope import pack_request
from pointsman.wire.runner_frames import ModelRequest
from tests.support.runner_bench import MODEL, Bench, Runner, bench, told
from tests.support.waiting import until

SHORT = replace(DEFAULT_RUNNER_LIMITS, idle_seconds=0.4)


def run(work: Callable[[], Awaitable[None]]) -> None:
    """On the loop that a gateway runs on."""

    async def awaited() -> None:
        await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(awaited())


async def stream(runner: Runner, lines: list[str], **last: Any) -> dict[str, Any]:
    """Answer one request, a line for each that is asked for."""
    request = start = await runner.receive()
    for number, line in enumerate(lines, 1):
        await runner.answer(start, line, **(last if number == len(lines) else {}))
        if number < len(lines):
            request = await runner.receive()
            assert request == {
                "type": request["type"],
                "request_id": start["request_id"],
                "operation": "next",
            }
    return start


@pytest.mark.guarantee("S5")
def test_a_stream_passes_line_by_line_with_comments_kept_and_only_the_model_is_replaced() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            body = b'{"messages":[{"content":"\\u00fc","role":"user"}],  "model":"alias", "x":1.50, "stream":true }'
            reader, _ = await made.send(body)
            lines = [": thinking", 'data: {"choices":[]}', "data: [DONE]"]
            started = tasks.create_task(stream(runner, lines, done=True))
            answer = told(await reader.read())
            start = await started
            assert answer.status == 200
            assert "content-type: text/event-stream" in answer.head
            assert "x-pointsman-model: qwen:7b" in answer.head
            assert answer.body == b': thinking\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n'
            assert (start["operation"], start["model_id"], start["base_url"]) == (
                "start",
                MODEL.model_id,
                MODEL.base_url,
            )
            assert start["body"] == {**json.loads(body), "model": "qwen:7b"}
            assert len(start["request_id"]) == 32
            assert made.active == 0

    run(work)


def test_a_whole_completion_passes_as_it_is() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(made.ask())
            request = await runner.receive()
            await runner.answer(request, '{"id":"ü", "choices":[]}', done=True)
            answer = await asked
            assert (answer.status, answer.body) == (200, '{"id":"ü", "choices":[]}'.encode())
            assert "content-type: application/json" in answer.head

    run(work)


@pytest.mark.parametrize(
    ("frame", "status", "code"),
    [
        ({"error": "runner_model_not_allowed", "status": 403}, 403, "runner_model_not_allowed"),
        ({"error": "runner_busy", "status": 429}, 429, "runner_busy"),
        ({"error": "runner_upstream_unavailable", "status": 502}, 502, "runner_upstream_unavailable"),
        ({"error": "runner_upstream_read_error", "status": 200}, 502, "runner_upstream_read_error"),
        ({"error": "runner_upstream_error", "status": 418, "data": "S3CRET"}, 418, "runner_upstream_error"),
        ({"error": "S3CRET", "status": 200}, 502, "runner_upstream_error"),
        ({"status": 404, "data": "S3CRET", "done": True}, 404, "runner_upstream_error"),
        ({"status": 307, "data": "S3CRET", "done": True}, 502, "runner_upstream_error"),
        ({"data": "S3CRET no JSON", "done": True}, 502, "runner_upstream_error"),
        ({"data": "x" * 65_537, "done": True}, 502, "runner_frame_too_large"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_fails_early_keeps_its_status_and_tells_nothing_that_a_runner_wrote(
    frame: dict[str, Any], status: int, code: str, streams: bool
) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(made.ask(stream=streams))
            await runner.answer(await runner.receive(), **frame)
            answer = await asked
            assert (answer.status, answer.code) == (status, code)
            assert b"S3CRET" not in answer.body
            await until(lambda: made.active == 0)

    if not (streams and "no JSON" in str(frame.get("data"))):
        run(work)


@pytest.mark.guarantee("N11", "S4")
def test_a_runner_that_is_not_there_is_offline_at_once_and_one_that_leaves_ends_its_requests() -> None:
    async def work() -> None:
        async with bench() as made, asyncio.TaskGroup() as tasks:
            answer = await made.ask()
            assert (answer.status, answer.code) == (503, "runner_offline")
            async with made.runner() as runner:
                asked = tasks.create_task(made.ask())
                await runner.receive()
            answer = await asked
            assert (answer.status, answer.code) == (503, "runner_offline")

    run(work)


@pytest.mark.limit("runner.active_requests")
@pytest.mark.guarantee("S7")
def test_the_fifth_request_at_once_is_told_that_the_runner_is_busy() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(made.ask()) for _ in range(4)]
            requests = [await runner.receive() for _ in range(4)]
            answer = await made.ask()
            assert (answer.status, answer.code) == (429, "runner_busy")
            for request in requests:
                await runner.answer(request, "{}", done=True)
            assert [(await each).status for each in asked] == [200] * 4

    run(work)


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
@pytest.mark.limit("runner.request_bytes")
@pytest.mark.guarantee("S7")
def test_a_request_of_the_largest_size_passes_and_a_byte_more_does_not(more: int, status: int) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            rest = len(b'{"model":"qwen:7b","x":""}')
            body = b'{"model":"alias","x":"%b"}' % (b"x" * (DEFAULT_RUNNER_LIMITS.request_bytes - rest + more))
            reader, _ = await made.send(body)
            read = tasks.create_task(reader.read())
            if status == 200:
                await runner.answer(await runner.receive(), "{}", done=True)
            assert told(await read).status == status

    run(work)


@pytest.mark.guarantee("N12", "S6")
def test_a_mute_runner_costs_one_request_its_time_and_no_slot() -> None:
    async def work() -> None:
        async with bench(SHORT) as made, made.runner() as runner:
            answer = await made.ask()
            assert (answer.status, answer.code) == (504, "runner_proxy_timeout")
            assert made.active == 0
            request, cancel = await runner.receive(), await runner.receive()
            assert (cancel["request_id"], cancel["operation"]) == (request["request_id"], "cancel")

    run(work)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.guarantee("S6")
def test_a_client_that_leaves_before_the_first_frame_cancels(streams: bool) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner:
            _, writer = await made.send(json.dumps({"model": "alias", "stream": streams}).encode())
            request = await runner.receive()
            writer.close()
            cancel = await runner.receive()
            assert (cancel["request_id"], cancel["operation"]) == (request["request_id"], "cancel")
            await until(lambda: made.active == 0)

    run(work)


@pytest.mark.guarantee("N12", "S6")
def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner:
            reader, writer = await made.send(b'{"model":"alias","stream":true}')
            request = await runner.receive()
            await runner.answer(request, "data: {}")
            await reader.readuntil(b"data: {}\n\n")
            assert (await runner.receive())["operation"] == "next"
            writer.close()
            assert (await runner.receive())["operation"] == "cancel"
            await until(lambda: made.active == 0)

    run(work)


@pytest.mark.parametrize(
    ("second", "told_of"),
    [
        ({"data": "", "done": True}, "upstream read error"),
        ({"error": "runner_upstream_read_error"}, "runner_upstream_read_error"),
        ({"data": "data: {}\n\ndata: [DONE]"}, "runner_proxy_error"),
        (None, "runner_proxy_timeout"),
    ],
)
@pytest.mark.guarantee("S5")
def test_a_stream_that_ends_without_done_ends_in_one_error_event(second: dict[str, Any] | None, told_of: str) -> None:
    async def work() -> None:
        async with bench(SHORT) as made, made.runner() as runner:
            reader, _ = await made.send(b'{"model":"alias","stream":true}')
            request = await runner.receive()
            await runner.answer(request, "data: {}")
            await runner.receive()
            if second is not None:
                await runner.answer(request, **second)
            events = told(await reader.read()).body.split(b"\n\n")
            error = json.loads(events[1].removeprefix(b"data: "))["error"]
            code = {"code": told_of} if told_of.startswith("runner_") else {}
            assert error == {"message": f"response truncated: {told_of}", "type": "proxy_stream_error", **code}
            assert events[2:] == [b""]
            await until(lambda: made.active == 0)

    run(work)


@pytest.mark.parametrize("streams", [False, True])
def test_a_model_that_is_too_slow_is_an_sdks_504_and_the_sdk_does_not_make_it_begin_anew(streams: bool) -> None:
    async def work() -> None:
        async with bench(SHORT) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{made.data}/v1", api_key="unused")
            async with client:
                with pytest.raises(openai.InternalServerError, match="did not answer in time") as caught:
                    await client.chat.completions.create(model="alias", messages=[], stream=streams)
            assert (caught.value.status_code, caught.value.code) == (504, "runner_proxy_timeout")
            assert [(await runner.receive())["operation"] for _ in range(2)] == ["start", "cancel"]
            asked = tasks.create_task(made.ask())  # what comes next is this one's
            await runner.answer(await runner.receive(), '{"id":"next"}', done=True)
            assert (await asked).body == b'{"id":"next"}'

    run(work)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/completions"])
def test_other_dialects_are_refused_and_reach_no_runner(path: str) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            assert (await made.ask(path=path, input="x")).status in (400, 404)
            asked = tasks.create_task(made.ask())
            assert (await runner.receive())["body"] == {"model": "qwen:7b", "stream": False}
            await runner.line.close()
            await asked

    run(work)


@pytest.mark.guarantee("S6")
def test_a_slot_that_a_dead_process_held_is_freed() -> None:
    async def work() -> None:
        async with bench(replace(SHORT, unasked_seconds=0.5)) as made, made.runner() as runner:
            await _start_and_die(made, runner)
            await until(lambda: made.active == 0)
            assert (await runner.receive())["operation"] == "cancel"

    run(work)


async def _start_and_die(made: Bench, runner: Runner) -> None:
    """What a data process that is killed between two frames leaves behind."""
    start = ModelRequest("0" * 32, "start", "m", "http://localhost:1/v1", msgspec.Raw(b"{}"))
    payload = pack_request(start, 4_102_444_800)
    asked = asyncio.ensure_future(made.hub.bus.request(runner_subject("team.a", "laptop"), payload, 10))
    await runner.answer(await runner.receive(), "data: {}")
    await asked
    assert made.active == 1
