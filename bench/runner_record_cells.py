"""Cells of the runners' fault campaign about what a gateway keeps, about clocks, and about a crowd of runners."""

import asyncio
import contextlib
import http.client
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.gateway_cells import start_again
from bench.runner_callers import WELL
from bench.runner_cells import SHORT, RunnerCell
from bench.runner_world import CUT_OFFLINE, OFFLINE, RunnerWorld, Seen

from pointsman.core.gateway_address import GatewayAddress
from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.secret import Secret
from pointsman.runner.app import Runner
from pointsman.runner.state import RunnerState

_CROWD = 200
_BACK_SECONDS = 40.0
"""For a crowd to be connected again."""


def _store_locked(world: RunnerWorld) -> Seen:
    """For 10 s, in which a runner dials in; lines that exist go on."""
    seen = Seen(0.0, ends=(OFFLINE, CUT_OFFLINE), bound=SHORT)
    with contextlib.closing(sqlite3.connect(world.api.directory / "pointsman.db", isolation_level=None)) as other:
        other.execute("PRAGMA busy_timeout = 5000")
        other.execute("BEGIN EXCLUSIVE")
        _dial_again(world, seen)
        time.sleep(8)
        _only_others_were_cut(world, seen)
        other.execute("ROLLBACK")
    seen.mended = time.monotonic()
    return seen


def _store_stopped(world: RunnerWorld) -> Seen:
    """PostgreSQL, for 10 s, in which a runner dials in; lines that exist go on."""
    assert world.server is not None
    seen = Seen(0.0, ends=(OFFLINE, CUT_OFFLINE), bound=SHORT)
    world.server.stop(signal.SIGQUIT)
    _dial_again(world, seen)
    time.sleep(8)
    _only_others_were_cut(world, seen)
    start_again(world.server)
    seen.mended = time.monotonic()
    return seen


def _dial_again(world: RunnerWorld, seen: Seen) -> None:
    runner = world.machines[0].runner
    runner.end()
    runner.start()
    time.sleep(2)
    seen.told.append(f"a runner that dials in: {runner.lines[-1]}")


def _only_others_were_cut(world: RunnerWorld, seen: Seen) -> None:
    """The second machine's callers must not have noticed anything."""
    ends = {call.end for call in world.calls[-200:] if call.model == world.models[1] and call.end != WELL}
    if ends:
        seen.wrong.append(f"an existing line: {sorted(ends)}")
    if not world.machines[0].runner.runs:
        seen.wrong.append(f"the runner ended: {world.machines[0].runner.lines[-1]}")


def clocks_differ(world: RunnerWorld) -> Seen:
    """A data worker's clock is stepped under load: 5 minutes and a day, either way, and back."""
    assert world.clock is not None
    for offset in ("+300", "-300", "+86400", "-86400", "+0"):
        world.clock.write_text(f"{offset}\n")
        began = time.monotonic()
        time.sleep(4)
        ends = {call.end for call in world.calls[-300:] if call.began > began}
        if ends != {WELL}:
            return Seen(time.monotonic(), wrong=[f"{offset} s: {sorted(ends)}"])
    return Seen(time.monotonic(), ["±5 minutes, ±1 day, and back: nobody noticed"], bound=SHORT)


def _crowd(world: RunnerWorld) -> Seen:
    """200 runners beside those of the callers; the API process is killed, and all come back at once."""
    seen = Seen(0.0, ends=(OFFLINE, CUT_OFFLINE), bound=SHORT)
    with tempfile.TemporaryDirectory() as directory:
        before = len(world.api.lines)
        states = [_registered(world, number) for number in range(_CROWD)]
        runners = world.loop.run(_stay(states, Path(directory)))
        try:
            everybody = _CROWD + len(world.models)
            world.until(lambda: _connected(world, before) >= _CROWD, "not everybody is connected")
            world.api.end(signal.SIGKILL)
            since = len(world.api.lines)
            world.api.start()
            seen.mended = time.monotonic()
            times = _answer_times(world, lambda: _connected(world, since) >= everybody)
            back = _connected(world, since)
            seen.told.append(f"{back} of {everybody} are back after {time.monotonic() - seen.mended:.1f} s")
            seen.told.append(f"GET /health meanwhile: {_summary(times)}")
            if back < everybody:
                seen.wrong.append(f"not everybody is back after {_BACK_SECONDS:g} s")
            steady = _answer_times(world, lambda: False, 5)
            seen.told.append(f"GET /health afterwards: {_summary(steady)}")
            world.recovered(seen.mended)
        finally:
            world.loop.run(_leave(runners))
    return seen


def _registered(world: RunnerWorld, number: int) -> RunnerState:
    status, answer = world.rest("POST", "/runners/register", {"name": f"crowd-{number}"})
    if status != 201:
        raise RuntimeError(f"register: {status} {answer}")
    address = GatewayAddress("127.0.0.1", world.api.ports["control"], False, "")
    return RunnerState(answer["id"], answer["name"], Secret(answer["token"]), address)


async def _stay(states: list[RunnerState], directory: Path) -> list["asyncio.Task[None]"]:
    made = [Runner(state, directory, _quiet, DEFAULT_RUNNER_LIMITS) for state in states]
    loop = asyncio.get_running_loop()
    return [loop.create_task(each.stay_connected(random.SystemRandom())) for each in made]


async def _leave(runners: list["asyncio.Task[None]"]) -> None:
    for each in runners:
        each.cancel()
    await asyncio.gather(*runners, return_exceptions=True)


def _quiet(_: str) -> None:
    """What 200 runners say."""


def _connected(world: RunnerWorld, since: int) -> int:
    return sum("is connected" in line for line in world.api.lines[since:])


def _answer_times(world: RunnerWorld, is_over: Callable[[], bool], seconds: float = _BACK_SECONDS) -> list[float]:
    """Of questions to the API process, one after the other, in seconds."""
    times, until = [], time.monotonic() + seconds
    while not is_over() and time.monotonic() < until:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", world.api.ports["control"], timeout=20)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()
        times.append(time.monotonic() - began)
        time.sleep(0.01)
    return sorted(times)


def _summary(times: list[float]) -> str:
    return f"p50 {1000 * times[len(times) // 2]:.0f} ms, slowest {1000 * times[-1]:.0f} ms of {len(times)}"


RECORD_CELLS = (
    RunnerCell("store locked for 10 s while a runner dials in", _store_locked),
    RunnerCell("200 runners come back at once", _crowd, 240),
    RunnerCell("PostgreSQL stopped for 10 s while a runner dials in", _store_stopped, world="postgresql"),
    RunnerCell("a data worker's clock stepped", clocks_differ, world="clock"),
)
