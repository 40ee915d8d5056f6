"""Quotas through the real data listener: of 10 N requests at once on N places left, exactly N reach the upstream.

    .venv/bin/python bench/quota_exactness.py           # make quota-exactness: 100 runs on each of four arrangements
    .venv/bin/python bench/quota_exactness.py --runs 10 --database sqlite --gateways 2

One gateway or two, which share the counters: SQLite's file, or PostgreSQL where it is installed. Places are of the day
or of the minute, and some are used before. In every third run the upstream fails some requests, whose places go back:
then the answers of the upstream that were successes must not be more than N. After each run the ledger, and
`/stats/live` must have counted as many as the upstream answered. Exit status 1 after a wrong run.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.processes import free_ports
from tests.conformance.ledgers import Counting
from tests.support.databases import PostgresServer
from tests.support.gateway_process import GatewayProcess

from pointsman.core.quota import Quota, QuotaKey

TIMES = 10
"""So many requests for each place that is left."""
_MOST_LEFT = 12
_SETTLING_SECONDS = 10.0
_SECONDS = 60.0
"""Until all of a run must have been answered, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """One provider, used once."""

    name: str
    left: int
    used: int
    per_minute: bool
    fails: bool

    @property
    def limit(self) -> int:
        """Of the provider."""
        return self.left + self.used

    @property
    def entry(self) -> str:
        """Its limit as the configuration has it."""
        return f"{'requests_per_minute' if self.per_minute else 'daily_request_limit'}: {self.limit}"


def runs_of(count: int) -> list[Run]:
    """The first is of the day, the second of the minute; of the third some is used before, and its upstream fails."""
    dice = random.Random(count)
    return [
        Run(f"run{at}", dice.randint(1, _MOST_LEFT), dice.randint(0, 4) if at >= 2 else 0, at % 2 == 1, at % 3 == 2)
        for at in range(count)
    ]


class CountingUpstream:
    """Answers every request well, or some with 500; counts them by the first step of their path."""

    def __init__(self, failing: frozenset[str]) -> None:
        self.asked: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()
        self._failing = failing
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve one port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            await _closed(self._writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, _, length = head.lower().partition(b"content-length: ")
                await reader.readexactly(int(length.split(b"\r\n")[0]))
                name = head.split(b"/")[1].decode()
                self.asked[name] += 1
                fails = name in self._failing and self.asked[name] % 3 == 0
                self.succeeded[name] += not fails
                status = b"500 Broken" if fails else b"200 OK"
                writer.write(b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % status)


def configuration(runs: Sequence[Run], upstream_port: int) -> str:
    """A provider and a chain of it for each run."""
    providers = [
        f"  - {{name: {run.name}, type: openai_compatible, api_key: none, model: m, {run.entry}, "
        f"base_url: 'http://127.0.0.1:{upstream_port}/{run.name}/v1'}}"
        for run in runs
    ]
    routes = [f"  - {{name: {run.name}, candidates: [{run.name}]}}" for run in runs]
    return "\n".join(["providers:", *providers, "routes:", *routes, ""])


async def _closed(writers: Sequence[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
    await asyncio.gather(*[writer.wait_closed() for writer in writers], return_exceptions=True)


async def statuses(ports: Sequence[int], model: str, count: int) -> Counter[int]:
    """So many requests, each over a connection of its own; all connections are there before the first is sent."""
    body = json.dumps({"model": model, "messages": []}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    lines = [await asyncio.open_connection("127.0.0.1", ports[at % len(ports)]) for at in range(count)]
    try:
        for _, writer in lines:
            writer.write(head.encode() + body)
        answers = await asyncio.gather(*[reader.read() for reader, _ in lines])
    finally:
        await _closed([writer for _, writer in lines])
    return Counter(int(answer.split(b" ", 2)[1]) for answer in answers)


def live_count(gateway: GatewayProcess, run: Run) -> int:
    """What `/stats/live` tells of the day."""
    request = urllib.request.Request(f"http://127.0.0.1:{gateway.ports['control']}/stats/live")
    request.add_header("authorization", f"Bearer {gateway.token_file.read_text().strip()}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        rows = {row["provider_name"]: row for row in json.load(answer)["providers"]}
    return int(rows[run.name]["daily_count"])


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Gateways that share counters."""

    gateways: list[GatewayProcess]
    counting: Counting
    upstream: CountingUpstream

    async def mistakes(self, run: Run) -> list[str] | None:
        """What was wrong; None when the minute or the day ended in between, and the run tells nothing."""
        ports = [gateway.ports["data"] for gateway in self.gateways]
        began = time.time()
        async with asyncio.timeout(_SECONDS):
            for _ in range(run.used):
                await statuses(ports[:1], run.name, 1)
            answers = await statuses(ports, run.name, TIMES * run.left)
        ended = time.time()
        if began // 60 != ended // 60:
            return None
        succeeded, wrong = self.upstream.succeeded[run.name], []
        if succeeded > run.limit or (succeeded < run.limit and not run.fails):
            wrong.append(f"{succeeded} successes of the upstream, not {run.limit}")
        if not run.fails and self.upstream.asked[run.name] != run.limit:
            wrong.append(f"{self.upstream.asked[run.name]} requests at the upstream, not {run.limit}")
        if set(answers) - {200, 503} or answers[200] > run.left:
            wrong.append(f"answers {dict(answers)}")
        async with self.counting.opened(ended) as ledger:

            async def counted() -> int:
                await ledger.look(ended)
                return ledger.counters(QuotaKey("default", run.name), Quota(), ended).daily

            if (found := await _settled(counted, succeeded)) != succeeded:
                wrong.append(f"the ledger has {found}, the upstream answered {succeeded}")
        for gateway in self.gateways:
            told = functools.partial(asyncio.to_thread, live_count, gateway, run)
            live = await _settled(told, succeeded)
            if live != succeeded:
                wrong.append(f"/stats/live has {live}, the upstream answered {succeeded}")
        return [f"{run.name} ({run.entry}, {run.used} used): {each}" for each in wrong]


async def _settled(count: Callable[[], Awaitable[int]], expected: int) -> int:
    """A count, once it is as expected, or after a while.

    A gateway looks once a second for what the others have counted, and then writes what could not be written before.
    """
    until = time.monotonic() + _SETTLING_SECONDS
    while True:
        found = await count()
        if found == expected or time.monotonic() > until:
            return found
        await asyncio.sleep(0.2)


@contextlib.contextmanager
def _gateways(directory: Path, count: int, url: str, text: str) -> Iterator[list[GatewayProcess]]:
    (directory / "pointsman.yaml").write_text(text)
    options = ["--config", str(directory / "pointsman.yaml"), *(["--database-url", url] if url else [])]
    running: list[GatewayProcess] = []
    try:
        for _ in range(count):
            gateway = GatewayProcess(directory / "data", free_ports(3), *options)
            gateway.start()
            running.append(gateway)
        yield running
    finally:
        for gateway in running:
            gateway.close()


async def exactness(directory: Path, count: int, gateways: int, url: str = "") -> list[str]:
    """All that was wrong in so many runs; `url` is an empty PostgreSQL database's, else SQLite's file is used."""
    runs = runs_of(count)
    spare = [Run(f"spare{run.name}", run.left, run.used, run.per_minute, run.fails) for run in runs]
    upstream = CountingUpstream(frozenset(run.name for run in (*runs, *spare) if run.fails))
    wrong: list[str] = []
    async with upstream.listening():
        text = configuration([*runs, *spare], upstream.port)
        with _gateways(directory, gateways, url, text) as running:
            counting = Counting(url=url) if url else Counting(directory / "data" / "quota.db")
            arrangement = Arrangement(running, counting, upstream)
            for run, again in zip(runs, spare, strict=True):
                found = await arrangement.mistakes(run)
                if found is None:
                    found = await arrangement.mistakes(again)
                wrong += found if found is not None else [f"{run.name}: took longer than a minute, twice"]
    return wrong


def main(arguments: list[str]) -> int:
    """Print a line for each arrangement; 1 if a run was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append", help="may be repeated")
    parser.add_argument("--gateways", type=int, choices=[1, 2], action="append", help="may be repeated")
    options = parser.parse_args(arguments)
    failed = 0
    with contextlib.ExitStack() as stack:
        server: PostgresServer | None = None
        for database in options.database or ["sqlite", "postgresql"]:
            if database == "postgresql":
                try:
                    server = PostgresServer()
                    stack.callback(server.close)
                    server.start()
                except (AssertionError, OSError, KeyError) as error:
                    print(f"postgresql: left out: {error}")
                    continue
            for gateways in options.gateways or [1, 2]:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-exact-"))
                url = server.url(server.new_database()) if server is not None else ""
                wrong = asyncio.run(exactness(Path(directory), options.runs, gateways, url))
                failed += len(wrong)
                print(f"{database}, {gateways} gateway(s): {options.runs} runs of 10 N on N left: {len(wrong)} wrong")
                for line in wrong:
                    print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
