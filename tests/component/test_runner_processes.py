"""A runner's line and the data listener as separate processes would have them: with a NATS server in between."""

import asyncio
import contextlib
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pointsman.bus.memory import MemoryBus
from pointsman.bus.nats import open_nats_bus
from pointsman.bus.subjects import runner_subject
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.secret import Secret
from pointsman.wire.runner_envelope import pack_request
from pointsman.wire.runner_frames import START, ModelRequest
from tests.component.test_runner_exchanges import run
from tests.support.nats_server import nats_server
from tests.support.runner_bench import ACCOUNT, MODEL, RUNNER, bench, told
from tests.support.waiting import until

SHORT = replace(DEFAULT_RUNNER_LIMITS, idle_seconds=0.4)


@pytest.mark.guarantee("N11", "S4")
def test_a_broker_that_dies_ends_what_runs_at_once_and_nothing_is_sent_again_when_it_is_back(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[str] = []
        with nats_server(tmp_path) as server:
            asking = await open_nats_bus(Secret(server.url), said.append)
            serving = await open_nats_bus(Secret(server.url), said.append)
            async with bench(buses=(asking, serving)) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
                reader, _ = await made.send(b'{"model":"alias","stream":true}')
                request = await runner.receive()
                await runner.answer(request, "data: {}")
                await reader.readuntil(b"data: {}\n\n")
                await runner.receive()
                server.kill()
                rest = await asyncio.wait_for(reader.read(), 10)
                assert rest.count(b"data: ") == 1
                assert b"response truncated: runner_offline" in rest
                assert (await made.ask()).code == "runner_offline"
                cancel = await runner.receive()  # while the broker is away: who asked cannot say it
                assert (cancel["operation"], cancel["request_id"]) == ("cancel", request["request_id"])
                assert made.active == 0
                server.start()
                await until(lambda: len([line for line in said if "connected again" in line]) == 2)
                await runner.answer(request, "data: late")
                asked = tasks.create_task(made.ask(stream=False))
                frames = [await runner.receive()]
                while frames[-1]["operation"] != "start":
                    frames.append(await runner.receive())
                assert {each["operation"] for each in frames[:-1]} <= {"cancel"}
                await runner.answer(frames[-1], "{}", done=True)
                assert (await asked).body == b"{}"
            await asking.close()
            await serving.close()

    run(work)


def test_a_newer_socket_at_another_process_replaces_the_older_over_nats(tmp_path: Path) -> None:
    async def work() -> None:
        with nats_server(tmp_path) as server:
            buses = [await open_nats_bus(Secret(server.url), print) for _ in range(2)]
            async with (
                bench(buses=(buses[1], buses[0])) as one,
                bench(buses=(buses[0], buses[1])) as two,
                one.runner() as older,
                two.runner() as newer,
                asyncio.TaskGroup() as tasks,
            ):
                assert await older.closed() == 4001
                assert one.hub.active_requests(ACCOUNT, RUNNER) is None
                asked = [tasks.create_task(each.ask()) for each in (one, two)]
                for _ in asked:
                    await newer.answer(await newer.receive(), "{}", done=True)
                assert [(await each).status for each in asked] == [200, 200]
            for bus in buses:
                await bus.close()

    run(work)


def test_a_slot_is_free_at_once_when_a_broker_dies_within_a_stream(tmp_path: Path) -> None:
    async def work() -> None:
        with nats_server(tmp_path) as server:
            buses = [await open_nats_bus(Secret(server.url), print) for _ in range(2)]
            async with bench(buses=(buses[0], buses[1])) as made, made.runner() as runner:
                reader, _ = await made.send(b'{"model":"alias","stream":true}')
                await runner.receive()
                server.kill()
                await asyncio.wait_for(reader.read(), 10)
                assert (await runner.receive())["operation"] == "cancel"
                assert made.active == 0
                server.start()
            for bus in buses:
                await bus.close()

    run(work)


@pytest.mark.guarantee("N11")
def test_a_process_that_dies_with_a_runners_line_is_noticed_although_it_says_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        with nats_server(tmp_path) as server:
            buses = [await open_nats_bus(Secret(server.url), print) for _ in range(2)]
            async with bench(buses=(buses[0], buses[1])) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(made.ask())
                await runner.receive()
                await buses[1].close()
                assert (await asked).code == "runner_offline"
            await buses[0].close()

    run(work)


def test_a_runner_that_is_only_slow_is_waited_for() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            slow = tasks.create_task(made.ask())
            request = await runner.receive()
            await asyncio.sleep(2.5)  # longer than two looks at whether it lives
            assert not slow.done()
            await runner.answer(request, "{}", done=True)
            assert (await slow).body == b"{}"

    run(work)


@pytest.mark.guarantee("N12", "S6")
def test_a_client_that_does_not_read_is_cancelled_and_another_is_served_meanwhile() -> None:
    async def work() -> None:
        async with bench(SHORT) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            await made.send(b'{"model":"alias","stream":true}')
            request = slow = await runner.receive()
            lines = 0
            while request["operation"] != "cancel":
                lines += 1
                await runner.answer(slow, "data: " + "x" * 60_000)
                request = await runner.receive()
            assert lines * 60_000 < SHORT.response_bytes - 100_000
            asked = tasks.create_task(made.ask())
            await runner.answer(await runner.receive(), "{}", done=True)
            answer = await asked
            assert (answer.status, answer.body) == (200, b"{}")
            await until(lambda: made.active == 0)

    run(work)


@pytest.mark.guarantee("S5")
def test_four_streams_at_once_get_each_its_own_lines() -> None:
    async def work() -> None:
        async with bench() as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            readers = [(await made.send(b'{"model":"alias","stream":true,"n":%d}' % each))[0] for each in range(4)]
            reading = [tasks.create_task(reader.read()) for reader in readers]
            numbers: dict[str, tuple[int, int]] = {}
            ended = 0
            while ended < 4:
                request = await runner.receive()
                if request["operation"] == "start":
                    numbers[request["request_id"]] = (request["body"]["n"], 0)
                which, count = numbers[request["request_id"]]
                numbers[request["request_id"]] = (which, count + 1)
                is_last = count == 50
                ended += is_last
                line = "data: [DONE]" if is_last else f"data: {which} {count}"
                await runner.answer(request, line, done=is_last)
            for number, each in enumerate(reading):
                lines = [f"data: {number} {count}" for count in range(50)] + ["data: [DONE]"]
                assert told(await each).body.decode() == "".join(f"{line}\n\n" for line in lines)

    run(work)


@pytest.mark.guarantee("N12")
@pytest.mark.limit("runner.unasked_seconds")
def test_a_process_that_dies_while_it_asks_leaves_no_slot_taken_and_one_with_a_slow_client_keeps_its_own() -> None:
    limits = replace(DEFAULT_RUNNER_LIMITS, unasked_seconds=2.5)

    async def work() -> None:
        bus = MemoryBus(print)
        async with bench(limits, buses=(bus, bus)) as made, made.runner() as runner:
            reader, _ = await made.send(b'{"model":"alias","stream":true}')
            slow = await runner.receive()
            with contextlib.suppress(TimeoutError):
                while True:  # until its connection is full
                    await runner.answer(slow, "data: " + "x" * 60_000)
                    await asyncio.wait_for(runner.receive(), 0.5)
            start = ModelRequest("dead", START, MODEL.model_id, MODEL.base_url, msgspec.Raw(b'{"stream":true}'))
            payload = pack_request(start, time.time() + 60)
            asked = asyncio.ensure_future(bus.request(runner_subject(ACCOUNT, RUNNER), payload, 60))
            dead = await runner.receive()
            began = time.monotonic()
            await runner.answer(dead, "data: 1")
            await asked
            cancel = await runner.receive()
            assert (cancel["operation"], cancel["request_id"]) == ("cancel", "dead")
            assert 2 < time.monotonic() - began < 20
            await asyncio.sleep(1.5)
            assert made.active == 1, "a client that reads slowly has lost its answer"
            await asyncio.wait_for(reader.readuntil(b"x\n"), 10)
        await bus.close()

    run(work)


def test_a_process_that_stood_still_hears_what_came_meanwhile_before_it_takes_whoever_asks_for_dead() -> None:
    limits = replace(DEFAULT_RUNNER_LIMITS, unasked_seconds=2.5)

    async def work() -> None:
        async with bench(limits) as made, made.runner() as runner, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(made.ask())
            request = await runner.receive()
            time.sleep(3.5)  # the whole process
            await asyncio.sleep(1)
            await runner.answer(request, "{}", done=True)
            assert (await asked).body == b"{}"

    run(work)
