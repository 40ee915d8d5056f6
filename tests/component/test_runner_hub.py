"""Who may hold a runner's line, and what a hostile runner gets out of it."""

import asyncio
import json
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus

from pointsman.bus.memory import MemoryBus
from pointsman.core.control_errors import StoreUnavailable
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.gateway.runner_identity import RunnerIdentity
from tests.component.test_runner_exchanges import run
from tests.support.runner_bench import ACCOUNT, RUNNER, TOKEN, bench, told
from tests.support.waiting import until

QUIET = replace(DEFAULT_RUNNER_LIMITS, silence_seconds=0.3)


@pytest.mark.guarantee("N1", "S2")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"X-Runner-Token": ""}, 401),
        ({"X-Runner-Token": "another"}, 401),
        ({"X-Runner-Token": TOKEN, "Origin": "http://127.0.0.1"}, 403),
        ({"Authorization": f"Bearer {TOKEN}"}, 401),
    ],
)
def test_who_may_not_dial_in_is_answered_before_the_upgrade(headers: dict[str, str], status: int) -> None:
    async def work() -> None:
        async with bench() as made:
            with pytest.raises(InvalidStatus) as refused:
                async with made.runner(hello=False, headers=headers):
                    pass
            assert refused.value.response.status_code == status
            body = refused.value.response.body or b""
            assert set(json.loads(body)["error"]) == {"code", "message"}
            assert TOKEN.encode() not in body
            assert made.hub.active_requests(ACCOUNT, RUNNER) is None

    run(work)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"type": "hello", "runner_id": "another", "model_proxy_version": 1}, 1008),
        ({"type": "hello", "runner_id": RUNNER, "model_proxy_version": 2}, 1008),
        ({"type": "heartbeat"}, 1008),
        ("no JSON", 1008),
        ("x" * (DEFAULT_RUNNER_LIMITS.frame_bytes + 1), 1009),
    ],
)
def test_a_first_frame_that_is_no_hello_ends_the_line(first: object, code: int) -> None:
    async def work() -> None:
        async with bench() as made, made.runner(hello=False) as runner:
            await runner.send(first)
            assert await runner.closed() == code
            assert made.hub.active_requests(ACCOUNT, RUNNER) is None

    run(work)


@pytest.mark.guarantee("N2", "S6")
def test_a_newer_socket_replaces_the_older_whose_requests_end_at_once() -> None:
    async def work() -> None:
        async with bench() as made, asyncio.TaskGroup() as tasks, made.runner() as older:
            asked = tasks.create_task(made.ask())
            request = await older.receive()
            async with made.runner() as newer:
                assert await older.closed() == 4001
                assert (await asked).code == "runner_offline"
                again = tasks.create_task(made.ask())
                fresh = await newer.receive()
                assert fresh["request_id"] != request["request_id"]
                await newer.answer(request, '{"late": true}', done=True)
                await newer.answer(fresh, "{}", done=True)
                assert (await again).body == b"{}"

    run(work)


@pytest.mark.guarantee("N2")
def test_a_newer_socket_at_another_process_replaces_the_older_too() -> None:
    async def work() -> None:
        bus = MemoryBus(print)
        async with bench(buses=(bus, bus)) as one, bench(buses=(bus, bus)) as two, one.runner() as older:
            async with two.runner(), asyncio.timeout(10):
                assert await older.closed() == 4001
                assert one.hub.active_requests(ACCOUNT, RUNNER) is None
                assert two.hub.active_requests(ACCOUNT, RUNNER) is not None
            await bus.close()

    run(work)


@pytest.mark.guarantee("S6")
def test_a_rotated_token_ends_the_line_whichever_process_holds_it() -> None:
    async def work() -> None:
        bus = MemoryBus(print)
        async with bench(buses=(bus, bus)) as one, bench(buses=(bus, bus)) as two, asyncio.TaskGroup() as tasks:
            async with one.runner() as runner:
                asked = tasks.create_task(two.ask())
                await runner.receive()
                await two.hub.evict(ACCOUNT, RUNNER)
                assert await runner.closed() == 4003
                assert (await asked).code == "runner_offline"
            await bus.close()

    run(work)


def test_a_runner_that_is_silent_is_offline_and_one_that_says_that_it_lives_is_not() -> None:
    async def work() -> None:
        async with bench(QUIET) as made, made.runner() as runner:
            for _ in range(6):
                await runner.send({"type": "heartbeat"})
                await asyncio.sleep(QUIET.silence_seconds / 3)
            assert made.hub.active_requests(ACCOUNT, RUNNER) is not None
            assert await runner.closed() == 4002
            assert (await made.ask()).code == "runner_offline"

    run(work)


def test_a_store_that_goes_while_a_runner_dials_in_does_not_revoke_it_and_it_may_come_again() -> None:
    async def work() -> None:
        looks = iter((True, False, True, True))

        async def admit(runner_id: str, token: str) -> RunnerIdentity | None:
            if next(looks):
                return RunnerIdentity(ACCOUNT, runner_id)
            raise StoreUnavailable("the database is away")

        async with bench(admit=admit) as made:
            async with made.runner(hello=False) as runner:
                await runner.hello()
                assert await runner.closed() == 1013
            async with made.runner():
                assert made.hub.active_requests(ACCOUNT, RUNNER) is not None

    run(work)


@pytest.mark.guarantee("N13")
@pytest.mark.guarantee("N4")
@pytest.mark.parametrize("frame", ["hello", "rubbish", "double", "oversize", "deflated"])
def test_a_runner_that_breaks_the_protocol_loses_its_line_and_its_requests_end(frame: str) -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(made.ask(stream=True))
            request = await runner.receive()
            if frame == "hello":
                await runner.hello()
            elif frame == "rubbish":
                await runner.send({"type": "model_response", "request_id": request["request_id"], "status": "200"})
            elif frame == "oversize":
                await runner.send("x" * (DEFAULT_RUNNER_LIMITS.frame_bytes + 1))
            elif frame == "double":
                for _ in range(3):
                    await runner.answer(request, "data: {}")
            else:
                # A frame whose reserved bit claims compression, which nobody agreed on.
                runner.line.transport.write(b"\xc1\x82\0\0\0\0{}")
            code = await runner.closed()
            assert code == {"oversize": 1009, "deflated": 1002}.get(frame, 1008)
            answer = await asked
            assert answer.status in (200, 503)
            assert answer.status == 503 or b"response truncated" in answer.body

    run(work)


@pytest.mark.guarantee("N3")
def test_sprayed_and_late_frames_reach_nobody() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(made.ask())
            request = await runner.receive()
            for number in range(2000):
                await runner.answer({"request_id": f"{number:032x}"}, '{"sprayed": true}', done=True)
            await runner.answer(request, '{"right": true}', done=True)
            await runner.answer(request, '{"late": true}', done=True)
            assert (await asked).body == b'{"right": true}'
            again = tasks.create_task(made.ask())
            fresh = await runner.receive()
            await runner.answer(request, '{"late": true}', done=True)
            await runner.answer(fresh, "{}", done=True)
            assert (await again).body == b"{}"

    run(work)


@pytest.mark.limit("runner.response_bytes")
@pytest.mark.guarantee("S7")
def test_a_runner_that_does_not_stop_is_cut_at_the_sum_of_its_data() -> None:
    limits = replace(DEFAULT_RUNNER_LIMITS, response_bytes=1000)

    async def work() -> None:
        async with bench(limits) as made, made.runner() as runner:
            reader, _ = await made.send(b'{"model":"alias","stream":true}')
            request = await runner.receive()
            line = "data: " + "x" * 94
            for _ in range(10):
                await runner.answer(request, line)
                assert (await runner.receive())["operation"] == "next"
            await runner.answer(request, "x")
            assert (await runner.receive())["operation"] == "cancel"
            body = told(await reader.read()).body
            assert body.count(line.encode()) == 10
            assert b"response truncated: runner_response_limit" in body
            await until(lambda: made.active == 0)

    run(work)
