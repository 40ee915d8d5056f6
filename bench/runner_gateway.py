"""An API process that data listeners share: control server, hub, bus and data listener, watched from within.

    python -m bench.runner_gateway RUNNERS UPSTREAM_PORT [NATS_URL]

Runner `r7` has the model `m7`. With a NATS server, the data listener and the hub have a connection each.
"""

import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TextIO

from bench.obeying import obey
from bench.processes import resident_kib
from tests.support.descriptors import open_paths
from tests.support.loop_watch import LoopWatch
from tests.support.runner_bench import ACCOUNT, Bench, bench

from pointsman.bus.interface import Bus
from pointsman.bus.memory import MemoryBus
from pointsman.bus.nats import open_nats_bus
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint
from pointsman.core.runner_model import RunnerModel
from pointsman.core.secret import Secret
from pointsman.proxy.process import run

UPSTREAM_MODEL = "tiny"


def models(count: int, port: int) -> dict[str, RunnerModel]:
    """By alias: one of each runner."""
    found = {}
    for number in range(count):
        alias = f"m{number}"
        candidate = Candidate(alias, Endpoint("runner", "", 0, ""), UPSTREAM_MODEL, ("openai_chat_completions",))
        found[alias] = RunnerModel(ACCOUNT, f"r{number}", alias, f"http://127.0.0.1:{port}/v1", candidate)
    return found


class _Watched:
    def __init__(self, made: Bench) -> None:
        self._made = made
        self._watch = LoopWatch(asyncio.get_running_loop())
        self._came = 0

    async def ports(self) -> dict[str, int]:
        return {"control": self._made.control, "data": self._made.data}

    async def came(self) -> int:
        """Lines that came into force since the start."""
        said = self._made.said
        self._came += sum(line.endswith(" is connected") for line in said)
        said.clear()
        return self._came

    async def watch(self) -> None:
        """Forget what was measured of the loop."""
        self._watch.reset()

    async def usage(self) -> dict[str, float]:
        """What can be read without holding up the loop."""
        return {
            "cpu_ns": time.process_time_ns(),
            "rss_kib": resident_kib(os.getpid()),
            "tasks": len(asyncio.all_tasks()),
            "lag_p99_ms": self._watch.percentile_ms(0.99),
            "lag_most_ms": self._watch.most_ms,
        }

    async def held(self) -> dict[str, float]:
        """The same and what is still held; takes tens of milliseconds."""
        gc.collect()
        files = len(open_paths())
        return {**await self.usage(), "files": files, "objects": len(gc.get_objects())}


@contextlib.asynccontextmanager
async def _buses(url: str | None) -> AsyncIterator[tuple[Bus, Bus]]:
    buses: list[Bus] = [MemoryBus(print)] * 2
    if url is not None:
        buses = [await open_nats_bus(Secret(url), print) for _ in range(2)]
    try:
        yield (buses[0], buses[1])
    finally:
        for bus in set(buses):
            await bus.close()


async def main(found: dict[str, RunnerModel], url: str | None, nowhere: TextIO) -> int:
    """Until standard input ends."""
    async with _buses(url) as buses, bench(buses=buses, models=found, lines=nowhere) as made:
        watched = _Watched(made)
        commands = (watched.ports, watched.came, watched.watch, watched.usage, watched.held)
        await obey({each.__name__: each for each in commands})
    return 0


if __name__ == "__main__":
    asked = models(int(sys.argv[1]), int(sys.argv[2]))
    with Path(os.devnull).open("w") as log:
        sys.exit(run(main(asked, sys.argv[3] if len(sys.argv) > 3 else None, log)))
