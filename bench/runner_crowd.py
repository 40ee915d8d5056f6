"""Runners as a process: real ones, which serve their model, and light ones, which only say that they live.

    python -m bench.runner_crowd DIRECTORY UPSTREAM_PORT

Runner `r7` approves the model `m7`, which the scripted upstream serves.
"""

import asyncio
import contextlib
import os
import random
import sys
import time
from pathlib import Path

from bench.obeying import obey
from bench.processes import resident_kib
from bench.runner_gateway import UPSTREAM_MODEL
from tests.support.runner_bench import TOKEN
from websockets.asyncio.client import ClientConnection, connect

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.runner_endpoint import parse_runner_endpoint
from pointsman.core.secret import Secret
from pointsman.proxy.process import run
from pointsman.runner.allowlist import FILE_NAME, ApprovedModel, approve
from pointsman.runner.app import Runner
from pointsman.runner.state import RunnerState
from pointsman.wire.runner_frames import VERSION, Heartbeat, Hello, encode_frame

_EVERY = DEFAULT_RUNNER_LIMITS.heartbeat_seconds


class _Crowd:
    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._endpoint = parse_runner_endpoint(f"http://127.0.0.1:{port}/v1")
        self._tasks: list[asyncio.Task[None]] = []

    async def real(self, control: int, first: int, count: int) -> None:
        """Runners as users start them. They dial in the background."""
        for number in range(first, first + count):
            directory = self._directory / f"r{number}"
            directory.mkdir(mode=0o700, exist_ok=True)
            approve(directory / FILE_NAME, ApprovedModel(f"m{number}", self._endpoint, UPSTREAM_MODEL))
            gateway = GatewayAddress("127.0.0.1", control)
            state = RunnerState(f"r{number}", f"r{number}", Secret(TOKEN), gateway)
            runner = Runner(state, directory, lambda _: None, DEFAULT_RUNNER_LIMITS)
            self._tasks.append(asyncio.create_task(runner.stay_connected(random.Random(number))))

    async def light(self, control: int, first: int, count: int) -> None:
        """Websockets with a heartbeat."""
        for number in range(first, first + count):
            self._tasks.append(asyncio.create_task(_lives(control, f"r{number}")))

    async def drop(self) -> None:
        """All of them leave."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def cycle(self, control: int, runner_id: str, times: int) -> float:
        """One runner comes and goes, every other time without a word; seconds it took."""
        began = time.monotonic()
        for turn in range(times):
            line = await _dialled(control, runner_id)
            await (await line.ping())
            if turn % 2:
                line.transport.abort()
                await line.wait_closed()
            else:
                await line.close()
        return time.monotonic() - began

    async def usage(self) -> dict[str, float]:
        return {"cpu_ns": time.process_time_ns(), "rss_kib": resident_kib(os.getpid())}


async def _dialled(control: int, runner_id: str) -> ClientConnection:
    url = f"ws://127.0.0.1:{control}/api/v1/runners/{runner_id}/ws"
    line = await connect(
        url, additional_headers={"X-Runner-Token": TOKEN}, compression=None, ping_interval=None, proxy=None
    )
    await line.send(encode_frame(Hello(runner_id, VERSION)), text=True)
    return line


async def _lives(control: int, runner_id: str) -> None:
    line = await _dialled(control, runner_id)
    try:
        await asyncio.sleep(random.uniform(0.0, _EVERY))  # they did not start together
        while True:
            await line.send(encode_frame(Heartbeat()), text=True)
            await asyncio.sleep(_EVERY)
    finally:
        await line.close()


async def main(directory: Path, port: int) -> int:
    """Until standard input ends."""
    crowd = _Crowd(directory, port)
    commands = (crowd.real, crowd.light, crowd.drop, crowd.cycle, crowd.usage)
    with contextlib.suppress(asyncio.CancelledError):
        await obey({each.__name__: each for each in commands})
    await crowd.drop()
    return 0


if __name__ == "__main__":
    sys.exit(run(main(Path(sys.argv[1]), int(sys.argv[2]))))
