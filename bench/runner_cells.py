"""What a cell of the runners' fault campaign is, and those about the gateway's processes and their broker."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.gateway_cells import refusal
from bench.gateway_world import Seen as Started
from bench.runner_callers import LEFT_ALONE, WELL
from bench.runner_world import BUSY, CUT_OFFLINE, OFFLINE, RunnerWorld, Seen

SHORT = 10.0
"""Seconds in which whatever is lost at once must have been told, on a busy machine."""
_WITHOUT_BUS = (OFFLINE, CUT_OFFLINE, BUSY)
"""The last for the second until what was cut is cancelled."""
_SWEPT_SECONDS = 15.0 + 15.0


@dataclass(frozen=True, slots=True)
class RunnerCell:
    """One thing that is broken."""

    name: str
    act: Callable[[RunnerWorld], Seen]
    """Breaks it and mends it."""
    seconds: float = 120.0
    """In all, on a busy machine."""
    world: str = "shared"
    """Cells of one world share it."""


def broker_killed(world: RunnerWorld, seconds: float = 3.0) -> Seen:
    """Amid streams; away for so long."""
    time.sleep(1.2)
    world.nats.kill()
    time.sleep(seconds)
    world.nats.start()
    return Seen(time.monotonic(), ends=_WITHOUT_BUS, bound=SHORT)


def _broker_stopped(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    world.nats.send(signal.SIGSTOP)
    time.sleep(8)
    world.nats.send(signal.SIGCONT)
    return Seen(time.monotonic(), ends=_WITHOUT_BUS, bound=SHORT)


def _broker_smaller(world: RunnerWorld) -> Seen:
    world.nats.kill()
    world.nats.configure("1MB")
    world.nats.start()
    told = [worker.said("set max_payload: 4MB").strip() for worker in world.gateways]
    world.nats.kill()
    world.nats.configure("4MB")
    world.nats.start()
    return Seen(time.monotonic(), sorted(set(told)), ends=_WITHOUT_BUS, bound=SHORT)


def _broker_away_at_the_start(world: RunnerWorld) -> Seen:
    seen = Seen(0.0, ends=(*_WITHOUT_BUS, LEFT_ALONE), bound=SHORT)
    world.nats.kill()
    for gateway in (world.api, world.workers[0]):
        gateway.end()
        started = Started(0.0)
        seen.told.append(f"refused: {refusal(gateway, started)}")
        seen.wrong += started.wrong
        options, gateway.options = gateway.options, (*gateway.options, "--allow-degraded")
        since = len(gateway.lines)
        gateway.start()
        gateway.options = options
        seen.told.append(f"--allow-degraded: {gateway.said('warning: bus', since).strip()}")
    world.nats.start()
    seen.mended = time.monotonic()
    return seen


def _api_killed(world: RunnerWorld) -> Seen:
    """Ten times, and the first time everybody recovers in between."""
    seen = Seen(0.0, ends=(OFFLINE, CUT_OFFLINE), bound=SHORT)
    for number in range(10):
        world.api.end(signal.SIGKILL)
        world.api.start()
        if not number:
            seen.told.append(f"the first time recovered after {world.recovered(time.monotonic()):.1f} s")
    seen.mended = time.monotonic()
    return seen


def _only_process_killed(world: RunnerWorld) -> Seen:
    """Three times."""
    for _ in range(3):
        time.sleep(1.2)
        world.api.end(signal.SIGKILL)
        world.api.start()
        world.recovered(time.monotonic())
    return Seen(time.monotonic(), ends=(LEFT_ALONE, OFFLINE), bound=SHORT)


def _only_process_ended(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    began = time.monotonic()
    status = world.api.end()
    told = [f"ended with {status} after {time.monotonic() - began:.1f} s"]
    world.api.start()
    return Seen(time.monotonic(), told, ends=(LEFT_ALONE, OFFLINE, CUT_OFFLINE), bound=SHORT)


def _api_ended(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    began = time.monotonic()
    status = world.api.end()
    told = [f"ended with {status} after {time.monotonic() - began:.1f} s"]
    world.api.start()
    return Seen(time.monotonic(), told, ends=(OFFLINE, CUT_OFFLINE), bound=SHORT)


def _api_stopped(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    world.stop_for(world.api.pid, 8)
    return Seen(time.monotonic(), bound=8 + SHORT)


def _worker_killed(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    since, killed = len(world.calls), time.monotonic()
    world.workers[0].end(signal.SIGKILL)
    world.workers[0].start()
    seen = Seen(time.monotonic(), ends=(LEFT_ALONE, BUSY))
    with world.quiet():
        world.until(lambda: _all_free(world), "a slot is still taken", _SWEPT_SECONDS)
    cut = [call for call in world.calls[since:] if call.end == LEFT_ALONE and call.began < killed]
    if not cut:
        seen.wrong.append("nothing was under way when it was killed")
    seen.told.append(f"{len(cut)} calls were cut; all slots free after {time.monotonic() - killed:.0f} s")
    seen.mended = time.monotonic()
    return seen


def _all_free(world: RunnerWorld) -> bool:
    time.sleep(1)
    return all(call.end == WELL for call in world.bursts())


def _worker_ended(world: RunnerWorld) -> Seen:
    time.sleep(1.2)
    began = time.monotonic()
    status = world.workers[0].end()
    told = [f"ended with {status} after {time.monotonic() - began:.1f} s"]
    world.workers[0].start()
    return Seen(time.monotonic(), told, ends=(LEFT_ALONE, BUSY), bound=SHORT)


MEMORY_CELLS = (
    RunnerCell("the only process SIGKILLed ×3", _only_process_killed, 240, world="memory"),
    RunnerCell("the only process SIGTERMed and restarted", _only_process_ended, world="memory"),
)
PROCESS_CELLS = (
    RunnerCell("broker SIGKILLed, back after 3 s", broker_killed),
    RunnerCell("broker SIGSTOPped for 8 s", _broker_stopped),
    RunnerCell("broker restarted with max_payload 1MB", _broker_smaller),
    RunnerCell("broker away when gateways start", _broker_away_at_the_start),
    RunnerCell("API process SIGKILLed ×10", _api_killed, 360),
    RunnerCell("API process SIGTERMed and restarted", _api_ended),
    RunnerCell("API process SIGSTOPped for 8 s", _api_stopped),
    RunnerCell("data worker SIGKILLed mid-stream", _worker_killed, 240),
    RunnerCell("data worker SIGTERMed and restarted", _worker_ended),
)
