"""Whether a gateway's stages delay the events of streams: part of `make bench`.

    .venv/bin/python bench/stream_delay.py            # a quarter of a minute
    .venv/bin/python bench/stream_delay.py --strict   # exit status 1 when the target is missed

A data listener in a process of its own, once with no stages and once with budgets, usage rows and receipts, each on a
port of its own; between a scripted model's server and clients, which are one process so that one clock tells when an
event was written and when it was read. The two take turns, a second each; what requests leave behind is written
meanwhile, as often as a gateway writes it. Figures are medians of all rounds, of a thousand events each.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import uvloop
from bench.stages import HARD, Arrangement, Flush, stages_of
from bench.stamped_streams import Wanted, heard, stamped_upstream

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.model_table import ModelAccess, ModelTable
from pointsman.core.protocols import InferenceProtocol
from pointsman.events.operation_log import OperationLog
from pointsman.gateway.data_listener import DataListener, Served
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.proxy.memory_ledger import MemoryLedger
from pointsman.proxy.model_reception import Models
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import open_store

MOST_RATIO = 1.25
"""Of the median with stages to that without: what noise makes of a ratio of 1."""
_NONE, _METERED = "no stages", "usage rows, three hard budgets and receipts"
_ARRANGEMENTS = {_NONE: Arrangement(), _METERED: Arrangement(HARD, keeps_usage=True, gives_receipts=True)}
_STREAMS, _EVENTS, _GAP_SECONDS = 20, 50, 0.02
_FLUSH_SECONDS = 0.05
_ROUTE = "direct"


class Late(NamedTuple):
    """How much later than they were written events of one round were read, in milliseconds."""

    half: float
    """The median."""
    most: float
    """Of 99 in 100."""


class _Nowhere:
    def write(self, text: str, /) -> None: ...
    def flush(self) -> None: ...


async def _healthy() -> bool:
    return True


async def _serve(upstream: int) -> None:
    """Both arrangements, until stdin ends; their ports on stdout."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        store = await open_store(StoreSettings(file_url(directory / "pointsman.db"), directory / "credentials.key"))
        stack.push_async_callback(store.close)
        endpoint = parse_endpoint(f"http://127.0.0.1:{upstream}/v1")
        speaks = (InferenceProtocol.CHAT_COMPLETIONS,)
        target = Candidate(_ROUTE, endpoint, "m", speaks, provider="p0")
        access = ModelAccess({"default": ModelTable({_ROUTE: target})}, {})
        flushes: list[Flush] = []
        ports = {}
        for name, of in _ARRANGEMENTS.items():
            stages = await stages_of(of, directory, store, PoliciesInForce(), (stack, flushes))
            models = Models(lambda: access, time.time, is_open=True, mark=b"0123456789abcdef")
            log = OperationLog(lines=_Nowhere(), wall_clock=time.time)
            listener = DataListener(log, _healthy, Served(models, MemoryLedger(), stages=stages))
            stack.push_async_callback(listener.close)
            listening = socket.create_server(("127.0.0.1", 0))
            await listener.serve(listening, None)
            ports[name] = listening.getsockname()[1]
        print(json.dumps(ports), flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            await asyncio.sleep(_FLUSH_SECONDS)
            for flush in flushes:
                await flush()


async def _round(port: int) -> list[float]:
    """How late events were, in milliseconds. Raises RuntimeError for a stream that is not whole."""
    wanted = Wanted(_ROUTE, _EVENTS, _GAP_SECONDS)

    async def one(number: int) -> list[float]:
        await asyncio.sleep(number * _GAP_SECONDS / _STREAMS)  # or all would write at the same moments
        stream = await heard(port, wanted)
        if not stream.is_whole(wanted):
            raise RuntimeError(f"a stream was not whole: status {stream.status}, {len(stream.numbers)} events")
        return stream.late_ms

    return [late for each in await asyncio.gather(*map(one, range(_STREAMS))) for late in each]


async def measured(rounds: int) -> dict[str, list[Late]]:
    """Of each round, by arrangement."""
    found: dict[str, list[Late]] = {name: [] for name in _ARRANGEMENTS}
    async with stamped_upstream() as upstream:
        command = (sys.executable, __file__, "--serve", str(upstream))
        pipe = asyncio.subprocess.PIPE
        server = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=dict(os.environ))
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("no pipes")
        try:
            ports = json.loads(await server.stdout.readline())
            for number in range(1 + rounds):
                for name in found:
                    late = await _round(ports[name])
                    if number:  # the first of each only warms up
                        steps = quantiles(late, n=100)
                        found[name].append(Late(steps[49], steps[98]))
        finally:
            server.stdin.close()
            await server.wait()
    return found


def report(found: Mapping[str, Sequence[Late]], *, strict: bool = False) -> int:
    """Print the table. 1 when the target is missed and that matters."""
    figures = {
        name: Late(median(each.half for each in late), median(each.most for each in late))
        for name, late in found.items()
    }
    print("| a stream's events | p50 late, ms | p99 late, ms |\n|---|--:|--:|")
    for name, (half, most) in figures.items():
        print(f"| {name} | {half:.3f} | {most:.3f} |")
    half, most = (with_stages / alone for with_stages, alone in zip(figures[_METERED], figures[_NONE], strict=True))
    print(f"| × | {half:.2f} | {most:.2f} |")
    if half <= MOST_RATIO:
        return 0
    print(f"stream_delay: missed: the median event is {half:.2f} times as late; the target is {MOST_RATIO}")
    return 1 if strict else 0


def main(arguments: list[str]) -> int:
    """0, or 1 when the target is missed and `--strict` was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--strict", action="store_true", help="exit 1 when the target is missed")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        uvloop.run(_serve(options.serve))
        return 0
    return report(uvloop.run(measured(options.rounds)), strict=options.strict)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
