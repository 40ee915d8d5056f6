"""The fault matrix for as long as one likes, in three equal rounds (`make soak MINUTES=30`).

Asserted: no crossed byte, every exchange ended in a class that its cell allows and in time, nothing was sent twice,
memory within 10 % between rounds 2 and 3, descriptors and tasks level, the loop's lag, nothing on standard error.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.configurations import make_certificates
from bench.fault_cells import Cell, WrongAnswer, shuffled
from bench.fault_clients import LIMITS, FaultClient
from bench.fault_upstream import FaultUpstream, untrusted_context
from tests.support.watched import MOST_LAG_MS, Report, WatchedRouter

ROUNDS = 3
_MOST_GROWTH = 1.10
_SETTLE_SECONDS = 10.0
_PROGRESS_SECONDS = 20.0


@dataclass(slots=True)
class Round:
    """What one round came to."""

    exchanges: int = 0
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    slowest_ms: dict[str, int] = field(default_factory=dict)
    report: Report | None = None


@contextlib.asynccontextmanager
async def surroundings(upstream: FaultUpstream) -> AsyncIterator[dict[str, dict[str, str]]]:
    """The upstreams of every door; the doors' settings."""
    loop = asyncio.get_running_loop()
    # What a failed handshake with the untrusted upstream says is the point of it, and no news.
    loop.set_exception_handler(lambda loop, context: None)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory, _full_backlog() as blackhole, _closed_port() as refused:
        certificates = make_certificates(Path(directory))
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=1024)
        context = untrusted_context(str(certificates.leaf), str(certificates.key))
        untrusted = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context, backlog=1024)
        ports = [each.sockets[0].getsockname()[1] for each in (server, untrusted)]
        yield {
            "main": {"url": f"http://127.0.0.1:{ports[0]}/v1"},
            "refused": {"url": f"http://127.0.0.1:{refused}/v1"},
            "blackhole": {"url": f"http://127.0.0.1:{blackhole}/v1"},
            "untrusted": {"url": f"https://localhost:{ports[1]}/v1"},
        }
        server.close()
        untrusted.close()


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextlib.contextmanager
def _full_backlog() -> Iterator[int]:
    """A port that takes no connection: with a full backlog the kernel drops the SYN, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


class Soak:
    """One run: a router under watch, an upstream, and clients."""

    def __init__(self, router: WatchedRouter, upstream: FaultUpstream, seed: int, clients: int) -> None:
        self._router, self._upstream, self._seed = router, upstream, seed
        self._clients = clients
        self._number = 0

    async def round(self, cells: Sequence[Cell], until: float | None) -> Round:
        """Run cells, over and over until a time (on the monotonic clock), or each once. Raises WrongAnswer."""
        found, started = Round(), time.monotonic()
        queue = iter(cells)

        def next_cell() -> Cell | None:
            nonlocal queue
            if until is None:
                return next(queue, None)
            if time.monotonic() >= until:
                return None
            cell = next(queue, None)
            if cell is None:
                queue = iter(cells)
                cell = next(queue)
            return cell

        async def work(index: int) -> None:
            rng = random.Random(f"{self._seed}-{index}-{self._number}")
            client = FaultClient(self._router, self._upstream, rng, tunnel=bool(index % 2))
            try:
                while (cell := next_cell()) is not None:
                    self._number += 1
                    found.ends[await client.one(cell.nonce(f"{self._seed}.{self._number}"))] += 1
                    found.exchanges += 1
            finally:
                client.close()
                for fault, took in client.slowest.items():
                    found.slowest_ms[fault] = max(found.slowest_ms.get(fault, 0), took)

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work(index)) for index in range(self._clients)]
            progress = group.create_task(self._progress(found, started))
            await asyncio.wait(workers)
            progress.cancel()
        found.seconds = time.monotonic() - started
        self._check_upstream()
        found.report = await self._settled()
        return found

    async def _progress(self, found: Round, started: float) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            rate = found.exchanges / (time.monotonic() - started)
            print(f"soak: {found.exchanges:,} exchanges, {rate:.0f} a second", file=sys.stderr, flush=True)

    def _check_upstream(self) -> None:
        if self._upstream.crossed:
            raise WrongAnswer(self._upstream.crossed[0])
        for nonce, count in self._upstream.seen.items():
            # A kept connection that dies without a byte of response is replaced once.
            if count > (2 if nonce.split(".")[-2] == _RESET_BEFORE_HEAD else 1):
                raise WrongAnswer(f"{nonce}: sent {count} times")
        self._upstream.seen.clear()

    async def _settled(self) -> Report:
        """How the router fares when its connections have had time to go."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            await asyncio.sleep(0.1)
            report = self._router.report()
            level = self._router.level
            quiet = report.descriptors <= level.descriptors and report.tasks <= level.tasks
            if (quiet and not self._upstream.active) or time.monotonic() > deadline:
                return report


_RESET_BEFORE_HEAD = Cell("models", "rst-before-head", "stays").nonce("").split(".")[-2]


def complaints(rounds: Sequence[Round], router: WatchedRouter) -> list[str]:
    """What is not as it must be, beyond single answers."""
    reports = [each.report for each in rounds if each.report is not None]
    found = [line for report in reports[-1:] for line in report.suspicious]
    for number, report in enumerate(reports, 1):
        if report.lag_p99_ms >= MOST_LAG_MS:
            found.append(f"round {number}: lag p99 {report.lag_p99_ms} ms")
        if report.descriptors > router.level.descriptors or report.tasks > router.level.tasks:
            found.append(f"round {number}: {report.descriptors} descriptors and {report.tasks} tasks are left")
    if len(reports) == ROUNDS and not 1 / _MOST_GROWTH < reports[2].rss_kib / reports[1].rss_kib < _MOST_GROWTH:
        found.append(f"memory: {reports[1].rss_kib} KiB after round 2, {reports[2].rss_kib} KiB after round 3")
    return found


async def run(seed: int, clients: int, round_seconds: float | None, rounds: int = ROUNDS) -> list[str]:
    """Rounds of so many seconds, or with None of each cell once. Prints a table; returns complaints."""
    rng, upstream = random.Random(seed), FaultUpstream()
    async with surroundings(upstream) as doors:
        with WatchedRouter(doors, LIMITS) as router:
            await asyncio.get_running_loop().run_in_executor(None, router.settle)
            soak = Soak(router, upstream, seed, clients)
            found: list[Round] = []
            for _ in range(rounds):
                router.reset()
                until = None if round_seconds is None else time.monotonic() + round_seconds
                found.append(await soak.round(shuffled(rng), until))
                print(_row(len(found), found[-1]), file=sys.stderr, flush=True)
            problems = complaints(found, router)
            print(_table(seed, found, problems), flush=True)
    return problems


def _row(number: int, each: Round) -> str:
    report = each.report
    assert report is not None
    return (
        f"soak: round {number}: {each.exchanges:,} exchanges in {each.seconds:.0f} s, RSS {report.rss_kib / 1024:.1f}"
        f" MiB (peak {report.peak_kib / 1024:.1f}), {report.descriptors} descriptors, {report.tasks} tasks,"
        f" lag p99 {report.lag_p99_ms} ms (worst {report.lag_most_ms:.0f})"
    )


def _table(seed: int, rounds: Sequence[Round], problems: Sequence[str]) -> str:
    ends: Counter[str] = Counter()
    for each in rounds:
        ends.update(each.ends)
    lines = [f"{end:12} {count:>9,}" for end, count in ends.most_common()]
    results = [
        {
            "exchanges": each.exchanges,
            "seconds": round(each.seconds, 1),
            "ends": dict(each.ends),
            "slowest_ms": each.slowest_ms,
            "router": asdict(each.report) if each.report is not None else None,
        }
        for each in rounds
    ]
    lines.append(json.dumps({"seed": seed, "rounds": results, "problems": problems}))
    return "\n".join(lines)


def main() -> int:
    """1 when something was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    options = parser.parse_args()
    print(f"soak: {options.minutes:g} minutes of faults, seed {options.seed}", file=sys.stderr, flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            problems = runner.run(run(options.seed, options.clients, options.minutes * 60 / ROUNDS))
        except (AssertionError, ExceptionGroup) as error:
            first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            problems = [str(first)]
    for problem in problems:
        print(f"soak: WRONG, seed {options.seed}: {problem}", file=sys.stderr)
    if not problems:
        print(f"soak: all right, seed {options.seed}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
