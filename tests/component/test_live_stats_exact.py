"""`/stats/live` is what the upstreams count themselves, whatever mix of failures there was."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Quota, QuotaKey
from pointsman.events.operations_file import operation_files
from pointsman.gateway.data_watching import WatchedPaths
from pointsman.proxy.live_quotas import LiveQuota, live_quotas
from pointsman.testing import FakeClock
from tests.support.chain_requests import MIDNIGHT
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.watched_api import DAY, Watched

NAMES = ("p0", "p1", "p2")
QUOTAS = {"p0": Quota(10_000), "p1": Quota(20_000), "p2": Quota(5_000)}
OUTCOMES = ("ok", "ok", "ok", "ok", "500", "401", "404", "cut_early", "cut_late")
LIMITED = (20, 120)
"""The calls that are answered with 429, which takes a provider out for a second: most of a run."""
REQUESTS, AT_ONCE = 200, 8
JSON_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'f\r\ndata: {"n":1}\n\n\r\n'
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Upstreams:
    """Three that play what a seeded choice says, and count every 2xx that they send."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.counted: Counter[str] = Counter()
        self.played: Counter[str] = Counter()
        self.asked: dict[str, asyncio.Event] = {}
        """By the nonce of a request."""

    async def serve(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(name, reader, writer):
                    await writer.drain()
        finally:
            writer.close()

    async def _one(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        asked: dict[str, Any] = json.loads(await reader.readexactly(length))
        self.asked[asked["nonce"]].set()
        drawn = "429" if self.played.total() in LIMITED else self._rng.choice(OUTCOMES)
        outcome = asked["leaves"] or drawn
        self.played[outcome] += 1
        if outcome.isdecimal():
            writer.write(b"HTTP/1.1 %b No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n" % outcome.encode())
            return True
        if outcome in ("before", "cut_early"):
            if outcome == "before":
                await reader.read()  # to the end: the client leaves
            return False
        self.counted[name] += 1
        if outcome == "ok" and not asked["stream"]:
            writer.write(JSON_OK)
            return True
        writer.write(EVENTS + EVENT)
        if outcome == "ok":
            writer.write(END)
            return True
        await writer.drain()
        if outcome == "after":
            await reader.read()
        return False


@contextlib.asynccontextmanager
async def listening(upstreams: Upstreams) -> AsyncIterator[dict[str, str]]:
    """Their base URLs."""
    async with contextlib.AsyncExitStack() as stack:
        urls = {}
        for name in NAMES:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name) -> None:
                await upstreams.serve(name, reader, writer)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            stack.callback(server.close)
            urls[name] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield urls


async def client(upstreams: Upstreams, address: tuple[str, int], number: int, rng: Random) -> int:
    """One request on a connection of its own; the status, 0 when the client left."""
    nonce, leaves = str(number), rng.choice(["", "", "", "", "", "", "before", "after"])
    asked = upstreams.asked[nonce] = asyncio.Event()
    told = {"model": "fast", "nonce": nonce, "stream": leaves == "after" or rng.random() < 0.5, "leaves": leaves}
    body = json.dumps(told).encode()
    reader, writer = await asyncio.open_connection(*address)
    try:
        fields = f"Host: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n".encode() + body)
        async with asyncio.timeout(30):
            if leaves == "before":
                async with asyncio.TaskGroup() as group:
                    answered = group.create_task(reader.read())
                    reached = group.create_task(asked.wait())
                    await asyncio.wait((answered, reached), return_when=asyncio.FIRST_COMPLETED)
                    answered.cancel()
                    reached.cancel()
                return 0
            if leaves == "after":
                with contextlib.suppress(asyncio.IncompleteReadError):  # nobody had room
                    await reader.readuntil(b"data: ")
                return 0
            return int((await reader.read()).split(b" ", 2)[1])
    finally:
        writer.transport.abort()


def chain(urls: dict[str, str], strategy: str) -> Chain:
    members = tuple(
        replace(Member(name, candidate(url, route="fast", model="m")), quota=QUOTAS[name]) for name, url in urls.items()
    )
    return Chain("default", "fast", members, strategy)


async def settled(data: DataDoor) -> None:
    """Until nothing goes on in the listener: what its clients left behind has been given back."""

    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    async with asyncio.timeout(30):
        while await asyncio.to_thread(lambda: data.call(tasks())):
            await asyncio.sleep(0.01)


async def live(data: DataDoor) -> dict[str, int]:
    reader, writer = await asyncio.open_connection(*data.address)
    writer.write(b"GET /stats/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 "), head
    return {each["provider_name"]: each["daily_count"] for each in json.loads(body)["providers"]}


async def run(data: DataDoor, upstreams: Upstreams, strategy: str, seed: int) -> Counter[int]:
    async with listening(upstreams) as urls:
        data.table = ModelTable({"fast": chain(urls, strategy)})
        rng, numbers, statuses = Random(seed), iter(range(REQUESTS)), Counter[int]()

        async def ask() -> None:
            for number in numbers:
                statuses[await client(upstreams, data.address, number, rng)] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(ask())
        await settled(data)
        assert await live(data) == {name: upstreams.counted[name] for name in NAMES}
        return statuses


@pytest.mark.parametrize("strategy", ["in_order", "weighted", "least_used"])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_told_live_is_what_the_upstreams_have_answered_with_success(
    tmp_path: Path, strategy: str, seed: int
) -> None:
    upstreams, data = Upstreams(seed), DataDoor()
    quotas = {QuotaKey("default", name): quota for name, quota in QUOTAS.items()}
    with operation_files(tmp_path / "operations", 30, print, FakeClock(MIDNIGHT - DAY)) as lines:
        watched = Watched(tmp_path / "operations", lines, metrics_are_open=False)

        async def rows() -> Sequence[LiveQuota]:
            return live_quotas(data.ledger, quotas, data.log.now)

        sources = replace(watched.watching.sources, live_rows=rows)
        data.watched = WatchedPaths(replace(watched.watching, sources=sources), lambda: True)
        with data:
            statuses = asyncio.run(run(data, upstreams, strategy, seed))
    assert set(upstreams.played) >= {*OUTCOMES, "before", "after"}
    assert statuses[200] > REQUESTS / 10
    assert len(upstreams.counted) > 1
