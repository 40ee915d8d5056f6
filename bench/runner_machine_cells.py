"""Cells of the runners' fault campaign about runners, the way to them, and the servers of their models."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from bench.gateway_cells import NotHere
from bench.runner_callers import WELL, Call, ask
from bench.runner_cells import SHORT, RunnerCell
from bench.runner_machine import MODES
from bench.runner_process import RunnerProcess
from bench.runner_world import ACTIVE, BUSY, CUT_OFFLINE, CUT_TIMEOUT, OFFLINE, TIMEOUT, Machine, RunnerWorld, Seen

_GONE = (OFFLINE, CUT_OFFLINE)
_AMID_SECONDS = 1.2
"""Until streams are under way."""
_SILENCE_SECONDS = 45.0
"""Until either side takes the other to be gone."""
_READ_ERROR, _UNAVAILABLE = "502 runner_upstream_read_error", "502 runner_upstream_unavailable"
_CUT_READ_ERROR = "cut: runner_upstream_read_error"
_WITH_EACH_MODE = {
    "hangs before its head": (TIMEOUT, TIMEOUT),
    "drips 1 byte a second": (CUT_TIMEOUT, _READ_ERROR),
    "a line of 64 KiB + 1": ("cut: runner_frame_too_large", _READ_ERROR),
    "over 16 MiB": ("cut: runner_response_limit", _READ_ERROR),
    "garbage": (_READ_ERROR, _READ_ERROR),
    "redirects": ("502 runner_upstream_error", "502 runner_upstream_error"),
    "answers 401": ("401 runner_upstream_error", "401 runner_upstream_error"),
    "answers 500": ("500 runner_upstream_error", "500 runner_upstream_error"),
    "ends without [DONE]": (_CUT_READ_ERROR, _READ_ERROR),
    "resets mid-stream": (_CUT_READ_ERROR, _READ_ERROR),
}
"""How a call ends, streaming and not."""


def _runner_stopped(world: RunnerWorld) -> Seen:
    """For so long that it is taken to be gone; the call that it had is told, and it comes back by itself."""
    runner = world.machines[0].runner
    since = len(runner.lines)
    time.sleep(_AMID_SECONDS)
    world.stop_for(runner.pid, _SILENCE_SECONDS + 10)
    mended = time.monotonic()
    runner.said("ready", since)
    return Seen(mended, ends=(*_GONE, BUSY), bound=_SILENCE_SECONDS + SHORT)


def _runner_paused(world: RunnerWorld) -> Seen:
    time.sleep(_AMID_SECONDS)
    world.stop_for(world.machines[0].runner.pid, 8)
    return Seen(time.monotonic(), bound=8 + SHORT)


def _ended_by(how: signal.Signals, world: RunnerWorld, seconds: float = 2.0) -> Seen:
    runner = world.machines[0].runner
    time.sleep(_AMID_SECONDS)
    began = time.monotonic()
    status = runner.end(how)
    told = [f"ended with {status} after {time.monotonic() - began:.1f} s"]
    time.sleep(seconds)
    runner.start()
    return Seen(time.monotonic(), told, ends=_GONE, bound=SHORT)


def _restarted(world: RunnerWorld) -> Seen:
    runner = world.machines[0].runner
    for number in range(20):
        runner.end(signal.SIGKILL if number % 2 else signal.SIGTERM)
        since = len(runner.lines)
        runner.start()
        runner.said("ready", since)
    return Seen(time.monotonic(), ends=_GONE, bound=SHORT)


def _mute(world: RunnerWorld) -> Seen:
    """One way loses what goes up, the other what comes down: half-open, both of them."""
    sinces = [len(machine.runner.lines) for machine in world.machines]
    time.sleep(_AMID_SECONDS)
    for machine, direction in zip(world.machines, ("up", "down"), strict=False):
        machine.way.mute.add(direction)
    time.sleep(_SILENCE_SECONDS + 5)
    for machine in world.machines:
        machine.way.mute.clear()
    mended = time.monotonic()
    for machine, since in zip(world.machines, sinces, strict=False):
        machine.runner.said("ready", since)
    return Seen(mended, ends=(*_GONE, TIMEOUT, CUT_TIMEOUT, BUSY), bound=_SILENCE_SECONDS + 15)


def _reset(world: RunnerWorld) -> Seen:
    """Within frames that go up and within frames that come down, in turn."""
    runner, way = world.machines[0].runner, world.machines[0].way
    for direction in ("up", "down") * 2:
        since = len(runner.lines)
        world.recovered(time.monotonic() - 5)
        way.breaks.add(direction)
        runner.said("ready", since)
    return Seen(time.monotonic(), ends=_GONE, bound=SHORT)


def _slow(world: RunnerWorld) -> Seen:
    """A stream has a turn for each of its lines."""
    world.machines[0].way.latency = 0.2
    time.sleep(15)
    world.machines[0].way.latency = 0.0
    return Seen(time.monotonic(), bound=21 * 0.4 + SHORT)


def _model_killed(world: RunnerWorld) -> Seen:
    model = world.machines[0].model
    time.sleep(_AMID_SECONDS)
    model.stop()
    time.sleep(3)
    model.start()
    return Seen(time.monotonic(), ends=(_READ_ERROR, _UNAVAILABLE, _CUT_READ_ERROR), bound=SHORT)


def _model_misbehaves(world: RunnerWorld) -> Seen:
    """In every way, streaming and not; the other machine's callers go on."""
    seen = Seen(0.0)
    with ExitStack() as stack:
        guest = world.add_machine("odd", stack)
        calls = world.loop.run(_in_every_mode(world, guest), 300)
        for mode, streams, call in calls:
            wanted = _WITH_EACH_MODE[mode][0 if streams else 1]
            told = f"{mode}, {'streaming' if streams else 'whole'}: {call.end} after {call.ended - call.began:.1f} s"
            seen.told.append(told)
            if call.end != wanted:
                seen.wrong.append(f"{told}, and {wanted} was wanted")
        _leave(world, guest)
    seen.mended = time.monotonic()
    return seen


async def _in_every_mode(world: RunnerWorld, guest: Machine) -> list[tuple[str, bool, Call]]:
    places = asyncio.Semaphore(ACTIVE)

    async def one(mode: str, *, streams: bool) -> tuple[str, bool, Call]:
        async with places:
            nonce = world.callers.nonce(guest.model.name)
            return mode, streams, await ask(world.ports[0], guest.model.name, nonce, streams=streams, mode=mode)

    return list(await asyncio.gather(*(one(mode, streams=each) for mode in MODES for each in (True, False))))


def _leave(world: RunnerWorld, guest: Machine) -> None:
    """A guest has gone; what it said stays to be looked at."""
    if guest.runner.process is not None:
        guest.runner.end()
    guest.model.stop()


def _streams(world: RunnerWorld, guest: Machine, count: int = 2) -> "asyncio.Future[list[Call]]":
    """Long ones, under way when this returns."""
    name = guest.model.name
    nonces = [world.callers.nonce(name) for _ in range(count)]

    async def begin() -> "asyncio.Future[list[Call]]":
        port = world.ports[0]
        return asyncio.gather(*(ask(port, name, nonce, streams=True, events=200) for nonce in nonces))

    made = world.loop.run(begin())
    world.until(lambda: all(nonce in guest.model.asked for nonce in nonces), "nobody asks the guest")
    time.sleep(0.2)
    return made


def _ends(world: RunnerWorld, streams: "asyncio.Future[list[Call]]") -> list[Call]:
    async def awaited() -> list[Call]:
        return await streams

    return world.loop.run(awaited())


def _must_be_cut(seen: Seen, calls: list[Call]) -> None:
    for call in calls:
        seen.told.append(f"a stream: {call.end} after {call.ended - call.began:.1f} s")
        if call.end != CUT_OFFLINE:
            seen.wrong.append(f"{call.end} instead of {CUT_OFFLINE}")


def _rotated(world: RunnerWorld) -> Seen:
    """The token, by REST; the runner ends, and is registered again with its models."""
    seen, machine = Seen(0.0, ends=_GONE, bound=SHORT), world.machines[0]
    runner = machine.runner
    streams = _streams(world, machine, 1)
    since = len(runner.lines)
    status, _ = world.rest("POST", f"/runners/{runner.id}/token")
    if status != 200:
        seen.wrong.append(f"rotating: {status}")
    _must_be_cut(seen, _ends(world, streams))
    seen.told.append(runner.said("token", since))
    world.until(lambda: not runner.runs, "the runner goes on with a token that was replaced")
    runner.end()
    runner.register()
    runner.start()
    runner.said("ready", since)
    seen.mended = time.monotonic()
    return seen


def _deleted(world: RunnerWorld) -> Seen:
    seen = Seen(0.0)
    with ExitStack() as stack:
        guest = world.add_machine("brief", stack)
        streams = _streams(world, guest)
        since = len(guest.runner.lines)
        refused, answer = world.rest("DELETE", f"/runners/{guest.runner.id}")
        seen.told.append(f"delete: {refused} {answer['error']['message']}")
        status, _ = world.rest("DELETE", f"/runners/{guest.runner.id}?force=true")
        if (refused, status) != (409, 200):
            seen.wrong.append(f"deleting: {refused}, forced: {status}")
        _must_be_cut(seen, _ends(world, streams))
        seen.told.append(guest.runner.said("deleted", since))
        world.until(lambda: not guest.runner.runs, "the runner goes on")
        call = world.loop.run(ask(world.ports[0], "brief", world.callers.nonce("brief"), streams=True))
        seen.told.append(f"the next call: {call.end}")
        _leave(world, guest)
    seen.mended = time.monotonic()
    return seen


def replaced(world: RunnerWorld) -> Seen:
    """A second process with the same token: it takes over, the first one ends, and there is peace."""
    seen = Seen(0.0)
    with ExitStack() as stack:
        guest = world.add_machine("twice", stack)
        streams = _streams(world, guest)
        first, since = guest.runner, len(guest.runner.lines)
        second = RunnerProcess("second", first.directory, first.gateway, first.key_file)
        stack.callback(second.close)
        second.start()
        second.said("ready")
        _must_be_cut(seen, _ends(world, streams))
        seen.told.append(first.said("run one of them", since))
        world.until(lambda: not first.runs, "two fight for one token")
        time.sleep(3)
        if not second.runs or len([line for line in second.lines if "ready" in line]) != 1:
            seen.wrong.append(f"the second said: {second.lines}")
        calls = world.loop.run(world.callers.burst("twice", world.ports[0], ACTIVE))
        seen.wrong += [f"at the second: {call.end}" for call in calls if call.end != WELL]
        _leave(world, guest)
    seen.mended = time.monotonic()
    return seen


def _no_room(world: RunnerWorld) -> Seen:
    """Neither for runner.json nor for the allowlist."""
    seen, place = Seen(0.0), world.directory / "small"
    with ExitStack() as stack:
        guest = world.add_machine("small", stack, _small_disk(place, stack))
        kept = {path.name: path.read_bytes() for path in place.iterdir()}
        ballast = place / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        done = guest.runner.register()
        seen.told.append(f"register: {done.returncode} {done.stderr.strip()}")
        if done.returncode != 1 or "Traceback" in done.stderr or done.stderr.count("\n") != 1:
            seen.wrong.append(f"register said: {done.returncode} {done.stderr}")
        now = {path.name: path.read_bytes() for path in place.iterdir() if path != ballast}
        if now != kept:
            seen.wrong.append(f"files were left: {sorted(now)}")
        time.sleep(1)
        if not guest.runner.runs:
            seen.wrong.append(f"its token was replaced, and the new one is nowhere: {guest.runner.lines[-1]}")
        ballast.unlink()
        guest.runner.end()
        guest.runner.register(f"small@{guest.model.url}")
        since = len(guest.runner.lines)
        guest.runner.start()
        guest.runner.said("ready", since)
        calls = world.loop.run(world.callers.burst("small", world.ports[0], 1))
        seen.wrong += [f"afterwards: {call.end}" for call in calls if call.end != WELL]
        _leave(world, guest)
    seen.mended = time.monotonic()
    return seen


def _small_disk(place: Path, stack: ExitStack) -> Path:
    place.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "pointsman-faults", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise NotHere("only root can mount a small disk")
    stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    return place


def killed(world: RunnerWorld, seconds: float = 2.0) -> Seen:
    """A runner, and started again so much later."""
    return _ended_by(signal.SIGKILL, world, seconds)


MACHINE_CELLS = (
    RunnerCell("runner SIGKILLed, back after 2 s", killed),
    RunnerCell("runner SIGTERMed, back after 2 s", lambda world: _ended_by(signal.SIGTERM, world)),
    RunnerCell("runner restarted ×20", _restarted, 200),
    RunnerCell("runner SIGSTOPped for 8 s", _runner_paused),
    RunnerCell("runner SIGSTOPped for 55 s", _runner_stopped, 200),
    RunnerCell("ways half-open: one mute upwards, one downwards", _mute, 200),
    RunnerCell("connection reset within frames ×4", _reset),
    RunnerCell("200 ms of latency each way", _slow),
    RunnerCell("model's server killed mid-stream, back after 3 s", _model_killed),
    RunnerCell("model's server misbehaves in every way", _model_misbehaves, 400),
    RunnerCell("runner's token rotated mid-stream", _rotated),
    RunnerCell("runner deleted mid-stream", _deleted),
    RunnerCell("a second process with a runner's token", replaced),
    RunnerCell("no room for a runner's files", _no_room),
)
