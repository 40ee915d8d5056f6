"""A runner is told that it is served once it is, where both sides can say so; its log says `ready` then."""

import asyncio
from pathlib import Path

import pytest
from websockets.typing import Subprotocol

from pointsman.wire.runner_frames import SUBPROTOCOL
from tests.component.test_runner_connection import running
from tests.component.test_runner_exchanges import run
from tests.support.runner_bench import bench
from tests.support.runner_gateway import scripted_gateway
from tests.support.waiting import until

SERVED = '{"type":"served"}'


def test_a_runner_that_asks_for_it_is_told_first_that_it_is_served_and_then_is() -> None:
    async def work() -> None:
        async with (
            bench() as made,
            asyncio.TaskGroup() as tasks,
            made.runner(hello=False, subprotocols=[Subprotocol("other"), Subprotocol(SUBPROTOCOL)]) as runner,
        ):
            assert runner.line.subprotocol == SUBPROTOCOL
            assert (await made.ask()).code == "runner_offline"
            await runner.hello()
            assert await runner.receive() == {"type": "served"}
            asked = tasks.create_task(made.ask())
            await runner.answer(await runner.receive(), "{}", done=True)
            assert (await asked).body == b"{}"

    run(work)


def test_one_that_asks_for_another_protocol_or_none_is_told_nothing() -> None:
    async def work() -> None:
        async with bench() as made, asyncio.TaskGroup() as tasks:
            for offered in (None, [Subprotocol("other")]):
                async with made.runner(subprotocols=offered) as runner:
                    assert runner.line.subprotocol is None
                    asked = tasks.create_task(made.ask())
                    request = await runner.receive()
                    assert request["operation"] == "start"
                    await runner.answer(request, "{}", done=True)
                    assert (await asked).status == 200

    run(work)


def test_a_runner_is_ready_when_its_gateway_says_that_it_serves_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with scripted_gateway() as gateway:
            gateway.tells_served = True
            async with running(gateway, tmp_path) as said:
                line = await gateway.line()
                assert said == []
                await line.send(SERVED)
                await until(lambda: said)
                assert said == [f"ready gateway=http://127.0.0.1:{gateway.port} runner={gateway.state().runner_id}"]

    run(work)


@pytest.mark.parametrize("first", ['{"type":"model_request","request_id":"r","operation":"cancel"}', "{}", ""])
def test_a_gateway_that_agrees_and_says_something_else_is_closed_and_nobody_reads_ready(
    first: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with scripted_gateway() as gateway:
            gateway.tells_served = True
            async with running(gateway, tmp_path) as said:
                line = await gateway.line()
                await line.send(first)
                assert (await line.closed())[0] == 1008
                await gateway.line()
                assert len(said) == 1
                assert "ready" not in said[0]

    run(work)


def test_a_second_word_of_it_is_against_the_protocol(tmp_path: Path) -> None:
    async def work() -> None:
        async with scripted_gateway() as gateway:
            gateway.tells_served = True
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.send(SERVED)
                await line.send(SERVED)
                assert (await line.closed())[0] == 1008

    run(work)
