"""Whether a gateway goes on serving while a model file is loaded for a chain's fallback, and 50 callers ask for it.

    .venv/bin/python bench/engine_lag.py [--callers 50] [--most-ms 100]

A client that asks once every 10 ms on a direct route, from outside, tells: its latencies before, and from the moment
that everybody asks until all are answered. The model must be loaded by one process. Exit status 1 when the 99th
percentile is above the bound, another number of processes was started, or a caller was not answered.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chains import direct_route
from bench.fault_clients import read_answer
from tests.support.gateway_process import GatewayProcess
from tests.support.llama_server import model_path

_PACE_SECONDS = 0.01
_BEFORE_SECONDS = 5.0
_SECONDS = 300.0
"""Until all callers have their answers, on a busy machine."""


async def _upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            _, _, length = head.lower().partition(b"content-length: ")
            await reader.readexactly(int(length.split(b"\r\n")[0] or 0))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    writer.close()


def _request(model: str) -> bytes:
    body = json.dumps({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Paced:
    """Asks on the direct route at a steady pace, over one connection; what is late counts from when it was due."""

    def __init__(self, port: int) -> None:
        self.latencies: list[float] = []
        self._port = port

    async def run(self) -> None:
        """Until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        request = _request("direct")
        try:
            while True:
                began = time.monotonic()
                writer.write(request)
                answer = await read_answer(reader)
                if answer.status != 200:
                    raise SystemExit(f"the direct route answered {answer.status} {answer.body!r}")
                self.latencies.append(time.monotonic() - began)
                await asyncio.sleep(max(0.0, began + _PACE_SECONDS - time.monotonic()))
        finally:
            writer.close()

    def taken(self) -> list[float]:
        """Milliseconds since the last time, in order of size."""
        taken, self.latencies = self.latencies, []
        return sorted(1000 * each for each in taken)


async def _call(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request("chain"))
    answer = await read_answer(reader)
    writer.close()
    return answer.status if answer.fields.get("x-pointsman-fallback") == "local" else 0


async def _engines(gateway: GatewayProcess, seen: set[int]) -> None:
    """Children of the gateway, whenever they live, until cancelled."""
    while True:
        seen |= _children_of(gateway.pid)
        await asyncio.sleep(0.05)


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _line(name: str, latencies: list[float]) -> str:
    p99 = latencies[int(len(latencies) * 0.99)]
    median = statistics.median(latencies)
    return f"{name}: {len(latencies)} requests, median {median:.1f} ms, p99 {p99:.1f} ms, most {latencies[-1]:.1f} ms"


async def measure(directory: Path, callers: int, most_ms: float) -> int:
    """Print it; the exit status."""
    server = await asyncio.start_server(_upstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    file = directory / "pointsman.yaml"
    file.write_text(
        f"providers:\n  - {{name: local, type: local_gguf, model_path: '{model_path()}'}}\n"
        f"  - {{name: gone, type: openai_compatible, api_key: none, model: m, base_url: 'http://127.0.0.1:9/v1'}}\n"
        "routes:\n  - {name: chain, candidates: [gone], fallback: local}\n"
    )
    gateway = GatewayProcess(directory / "data", (0, 0, 0), f"--config={file}")
    await asyncio.to_thread(gateway.start)
    loop, seen = asyncio.get_running_loop(), set[int]()
    try:
        await asyncio.to_thread(direct_route, f"127.0.0.1:{gateway.ports['grpc']}", gateway.directory, port)
        paced = Paced(gateway.ports["data"])
        beside = [loop.create_task(paced.run()), loop.create_task(_engines(gateway, seen))]
        await asyncio.sleep(_BEFORE_SECONDS)
        print(_line("before", paced.taken()))
        async with asyncio.timeout(_SECONDS):
            statuses = await asyncio.gather(*[_call(gateway.ports["data"]) for _ in range(callers)])
        during = paced.taken()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    finally:
        await asyncio.to_thread(gateway.close)
        server.close()
    print(_line(f"while {callers} callers ask for a model that is not loaded", during))
    answered = statuses.count(200)
    print(f"{answered} of {callers} were answered by the fallback; {len(seen)} process(es) of the gateway")
    p99 = during[int(len(during) * 0.99)]
    return 1 if p99 > most_ms or answered != callers or len(seen) != 1 else 0


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--most-ms", type=float, default=100.0)
    options = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="pointsman-engine-") as directory:
        return asyncio.run(measure(Path(directory), options.callers, options.most_ms))


if __name__ == "__main__":
    sys.exit(main())
