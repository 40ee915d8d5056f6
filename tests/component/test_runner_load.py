"""What runners' lines carry, in small and with generous limits: `make bench-runners` measures it."""

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from bench.runner_gateway import UPSTREAM_MODEL, models
from bench.stamped_streams import Wanted, ask, heard, stamped_upstream

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.core.secret import Secret
from pointsman.proxy.process import run as run_process
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve
from pointsman.runner.app import Runner
from pointsman.runner.state import RunnerState
from tests.support.descriptors import open_sockets
from tests.support.loop_watch import LoopWatch
from tests.support.runner_bench import ACCOUNT, RUNNER, TOKEN, Bench, bench
from tests.support.waiting import until

FOUR = DEFAULT_RUNNER_LIMITS.active_requests


def run(main: Coroutine[Any, Any, None]) -> None:
    async def work() -> int:
        await main
        return 0

    run_process(work())


@contextlib.asynccontextmanager
async def real_runner(made: Bench, directory: Path, port: int) -> AsyncIterator[None]:
    """One whose line is in force."""
    endpoint = parse_runner_endpoint(f"http://127.0.0.1:{port}/v1")
    approve(directory / FILE_NAME, ApprovedModel("m0", endpoint, UPSTREAM_MODEL))
    state = RunnerState("r0", "laptop", Secret(TOKEN), GatewayAddress("127.0.0.1", made.control))
    runner = Runner(state, directory, lambda _: None, DEFAULT_RUNNER_LIMITS)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(runner.stay_connected(random.Random(1)))
        await until(lambda: made.hub.active_requests(ACCOUNT, "r0") is not None)
        yield
        serving.cancel()


@pytest.mark.alone
def test_four_streams_of_two_hundred_events_a_second_leave_a_runners_gateway_time_and_a_fifth_does_not_wait(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with stamped_upstream() as port, bench(models=models(1, port)) as made:
            async with real_runner(made, tmp_path, port):
                watch, wanted = LoopWatch(asyncio.get_running_loop()), Wanted("m0", 400, 1 / 200)
                asked = [await ask(made.data, wanted) for _ in range(FOUR)]
                for each in asked:
                    await each.flows()
                refused = await heard(made.data, wanted)
                assert refused.status == 429
                assert not any(each.has_ended for each in asked)
                began = time.thread_time()
                streams = [await each.heard() for each in asked]
                spent = time.thread_time() - began
                lag = watch.percentile_ms(0.99)
                watch.close()
            assert all(each.is_whole(wanted) for each in streams)
            # Gateway, runner, model's server and clients share this loop: 800 events in a second leave it time.
            assert spent < FOUR * wanted.events / 800
            assert lag < 50

    run(work())


@pytest.mark.alone
def test_a_runner_that_comes_and_goes_leaves_no_task_no_descriptor_and_no_object() -> None:
    async def cycles(made: Bench, times: int) -> tuple[int, int, int]:
        for _ in range(times):
            async with made.runner():
                pass
        await until(lambda: made.hub.active_requests(ACCOUNT, RUNNER) is None)
        await until(lambda: made.said.count(f"runner {RUNNER} of {ACCOUNT} has gone") == times)
        made.said.clear()
        await asyncio.sleep(0)
        gc.collect()
        return len(asyncio.all_tasks()), open_sockets(), len(gc.get_objects())

    async def work() -> None:
        async with bench() as made:
            before = await cycles(made, 20)
            after = await cycles(made, 200)
            assert after[0] <= before[0]
            assert after[1] <= before[1]
            assert after[2] < before[2] + 200, "an object is left of each time"

    run(work())
