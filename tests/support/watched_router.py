"""The real router in a process of its own, which tells on request how it fares.

`python -m tests.support.watched_router SETTINGS`, where SETTINGS is JSON: `doors` (name → {"url", "ca_bundle"}) and
`limits` (changed fields). The first line on standard output names the ports and holds the authority's certificate.
Each line on standard input is answered by one: `report`, or `reset`, which forgets peaks and lags first. It ends with
its standard input. Its standard error stays empty unless something is wrong: log lines are counted, not written.
"""

import asyncio
import contextlib
import ctypes
import io
import json
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from pointsman.core.candidate import make_bundle
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.data_plane import open_router
from pointsman.events.operation_log import OperationLog
from pointsman.proxy.memory import freeze_garbage, give_back_memory
from pointsman.sandbox.authority import CertificateAuthority
from tests.support.door import candidate
from tests.support.loop_watch import LoopWatch


class CountedLog(io.StringIO):
    """Takes log lines and keeps what matters of them."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: Counter[str] = Counter()
        self.suspicious: list[str] = []

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self.outcomes[next((word for word in line.split() if word.startswith("infer_")), "other")] += 1
            if "internal error" in line and len(self.suspicious) < 20:
                self.suspicious.append(line[:500])
        return len(text)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise LookupError(name)


def report(watch: LoopWatch, log: CountedLog) -> dict[str, Any]:
    """How the process fares."""
    return {
        "lag_p50_ms": watch.percentile_ms(0.5),
        "lag_p99_ms": watch.percentile_ms(0.99),
        "lag_most_ms": watch.most_ms,
        "rss_kib": _status("VmRSS"),
        "peak_kib": _status("VmHWM"),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,
        "tasks": len(asyncio.all_tasks()),
        "cpu_seconds": time.process_time(),
        "outcomes": dict(log.outcomes),
        "suspicious": log.suspicious,
    }


async def serve(settings: dict[str, Any]) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    limits = replace(DEFAULT_LIMITS, **settings["limits"])
    authority = CertificateAuthority(time.time)
    counted = CountedLog()
    log = OperationLog(lines=counted, wall_clock=time.time)
    ports: dict[str, dict[str, int]] = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, route in settings["doors"].items():
            target = candidate(route["url"], ca_bundle=route.get("ca_bundle", ""))
            router = await stack.enter_async_context(open_router(make_bundle((target,)), log, limits))
            tunnel, plain = (socket.create_server(("127.0.0.1", 0), backlog=1024) for _ in range(2))
            await router.serve_tunnel(tunnel, authority.tls_context)
            await router.serve_plain(plain)
            ports[name] = {"tunnel": tunnel.getsockname()[1], "plain": plain.getsockname()[1]}
        freeze_garbage()
        watch = LoopWatch(loop)
        commands = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        _say({"ports": ports, "certificate": authority.pem.decode()})
        while command := await commands.readline():
            if command.strip() == b"reset":
                # What earlier peaks left with the allocator would hide the next one, or be taken for it.
                ctypes.CDLL(None).malloc_trim(0)
                Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from VmRSS
                watch.reset()
            log.flush()
            _say(report(watch, counted))
        watch.close()
        transport.close()


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    give_back_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(json.loads(sys.argv[1])))
