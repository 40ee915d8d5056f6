"""What a runner's line adds to each event of a stream: from the runner's frame to the client's byte, and back.

The runner answers each `next` at once, so one event takes a whole turn: bus, websocket, websocket, bus, client.
Run: python -m bench.runner_lines [EVENTS]. Needs nats-server beside this Python.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import uvloop
from tests.support.nats_server import nats_server
from tests.support.runner_bench import bench

from pointsman.bus.interface import Bus
from pointsman.bus.memory import MemoryBus
from pointsman.bus.nats import open_nats_bus
from pointsman.core.secret import Secret

_EVENT = 'data: {"choices":[{"index":0,"delta":{"content":" token"}}]}'


async def _measure(name: str, buses: tuple[Bus, Bus], events: int) -> None:
    async with bench(buses=buses) as made, made.runner() as runner:
        reader, _ = await made.send(b'{"model":"alias","stream":true}')
        request = await runner.receive()
        times = []
        for _ in range(events):
            began = time.perf_counter()
            await runner.answer(request, _EVENT)
            await reader.readuntil(_EVENT.encode() + b"\n\n")
            await runner.receive()
            times.append((time.perf_counter() - began) * 1000)
        await runner.answer(request, "data: [DONE]", done=True)
        await reader.read()
    for bus in set(buses):
        await bus.close()
    cuts = quantiles(times[len(times) // 10 :], n=100)
    print(f"{name}: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms for each of {events} events")


async def main(events: int) -> None:
    """Both buses, one after the other."""
    memory = MemoryBus(print)
    await _measure("memory", (memory, memory), events)
    with tempfile.TemporaryDirectory() as directory, nats_server(Path(directory)) as server:
        url = Secret(server.url)
        await _measure("nats", (await open_nats_bus(url, print), await open_nats_bus(url, print)), events)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
