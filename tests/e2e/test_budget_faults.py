"""A real gateway's budgets beside its upstreams' own counts: after retries, fallbacks, cuts, clients that leave, kills.

An upstream is told by the request's `user` what to do, and writes down what it did.
"""

import asyncio
import contextlib
import json
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_commands import run_client
from tests.support.databases import postgres_server
from tests.support.gateway_process import GatewayProcess
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, model_server
from tests.support.ports import free_ports

CONFIGURATION = """
providers:
  - {{name: first, type: openai_compatible, api_key: none, model: m-1, base_url: '{first}'}}
  - {{name: second, type: openai_compatible, api_key: none, model: m-2, base_url: '{second}'}}
routes:
  - {{name: counted, candidates: [first, second]}}
  - {{name: cut, candidates: [first, second]}}
"""
PLAYS = ("answer", "stream", "retried", "elsewhere", "nobody", "rejected")
"""Of the route whose upstreams report all tokens."""
CUTS = ("cut", "leave", "silent")
"""Of the route where answers end in the middle, or clients do."""


_IN_FORCE_SECONDS = 1.0
"""A gateway looks four times a second for what has changed."""


@dataclass(slots=True)
class Books:
    """What the upstreams did, by route."""

    requests: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    failed_once: set[str] = field(default_factory=set)
    silent: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """By number: that a request has come which is not answered."""


class Upstreams:
    """Two, of which the second fails as the first does unless the play says otherwise."""

    def __init__(self) -> None:
        self.books = Books()

    async def first(self, visit: Visit) -> None:
        await self._play(visit, is_first=True)

    async def second(self, visit: Visit) -> None:
        await self._play(visit, is_first=False)

    async def _play(self, visit: Visit, *, is_first: bool) -> None:
        body = json.loads(visit.body)
        play, number, route = body["user"].split()
        incoming, outgoing = 10 + int(number) % 7, 20 + int(number) % 5
        usage = {"prompt_tokens": incoming, "completion_tokens": outgoing}
        fails = play == "nobody" or (play == "elsewhere" and is_first)
        if play == "retried" and number not in self.books.failed_once:
            self.books.failed_once.add(number)
            fails = True
        if fails:
            await visit.send(b"HTTP/1.1 500 Broken\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            return
        self.books.requests[route] += 1
        if play == "rejected":
            await visit.send(b"HTTP/1.1 422 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        elif play in ("answer", "retried", "elsewhere"):
            self.books.tokens[route] += incoming + outgoing
            text = json.dumps({"choices": [], "usage": usage}).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
            await visit.send(head + b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        elif play == "stream":
            self.books.tokens[route] += incoming + outgoing
            last = json.dumps({"choices": [], "usage": usage}).encode()
            await visit.send(EVENT_STREAM + b'data: {"n":1}\n\ndata: %b\n\ndata: [DONE]\n\n' % last)
        elif play == "silent":
            self.books.silent[int(number)].set()
            await visit.gone()
        else:
            await visit.send(EVENT_STREAM + b'data: {"n":1}\n\n')
            if play == "leave":
                await visit.gone()


NEVER = asyncio.Event()


async def call(port: int, play: str, number: int, route: str, has_it: asyncio.Event = NEVER) -> int:
    """The status; 0 when the client left first, or the gateway did. `has_it`: set when the upstream has it."""
    text = json.dumps(
        {"model": route, "user": f"{play} {number} {route}", "stream": play in ("stream", "cut", "leave")}
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((head + text).encode())
        if play == "silent":
            await has_it.wait()
            writer.close()
            return 0
        if play == "leave":
            await reader.readuntil(b'{"n":1}\n\n')
            writer.close()
            return 0
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]) if answer else 0
    except (OSError, asyncio.IncompleteReadError):
        return 0


class World:
    """Two gateways on the same data."""

    def __init__(
        self, directory: Path, upstreams: Upstreams, servers: tuple[ModelServer, ModelServer], url: str
    ) -> None:
        self.upstreams = upstreams
        file = directory / "pointsman.yaml"
        file.write_text(CONFIGURATION.format(first=servers[0].url, second=servers[1].url))
        more = ("--config", str(file), *(("--database-url", url) if url else ()))
        self.gateways = [GatewayProcess(directory / "data", free_ports(3), *more) for _ in range(2)]

    async def start(self) -> None:
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.start)

    async def run(self, *arguments: str) -> Any:
        gateway = self.gateways[1]
        options = ("--token-file", str(gateway.token_file), "-o", "json")
        result = await asyncio.to_thread(run_client, gateway.url, *arguments, *options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    async def used(self, budget: str) -> dict[str, int]:
        return {each["subject"]: int(each["used"]) for each in await self.run("budget", "status", budget)}

    async def settled(self, budget: str, expected: dict[str, int]) -> dict[str, int]:
        """Once it is as expected, or after a while: what a client left is settled when the gateway has noticed."""
        for _ in range(50):
            found = await self.used(budget)
            if found == expected:
                return found
            await asyncio.sleep(0.2)
        return found


@contextlib.asynccontextmanager
async def world(directory: Path, url: str = "") -> AsyncIterator[World]:
    upstreams = Upstreams()
    async with model_server(upstreams.first) as first, model_server(upstreams.second) as second:
        made = World(directory, upstreams, (first, second), url)
        try:
            await made.start()
            yield made
        finally:
            for gateway in made.gateways:
                await asyncio.to_thread(gateway.close)


async def _budgets(made: World) -> None:
    each = ("--route", "*", "--window", "total")
    await made.run("budget", "create", "requests", *each, "--requests", "100000")
    await made.run("budget", "create", "tokens", *each, "--tokens", "100000000")
    await made.run("budget", "create", "told", *each, "--tokens", "1", "--soft")
    await asyncio.sleep(_IN_FORCE_SECONDS)


async def _campaign(made: World) -> None:
    numbers = random.Random(7)
    plays = [(play, "counted") for play in PLAYS * 12] + [(play, "cut") for play in CUTS * 8]
    numbers.shuffle(plays)
    bound = asyncio.Semaphore(16)

    async def one(number: int, play: str, route: str) -> tuple[str, int]:
        async with bound:
            port = made.gateways[number % 2].ports["data"]
            return play, await call(port, play, number, route, made.upstreams.books.silent[number])

    ends = Counter(await asyncio.gather(*[one(number, *play) for number, play in enumerate(plays)]))
    assert ends["answer", 200] == ends["stream", 200] == ends["retried", 200] == ends["elsewhere", 200] == 12
    assert (ends["nobody", 503], ends["rejected", 422], ends["cut", 200]) == (12, 12, 8)


async def _killed(made: World) -> tuple[int, int]:
    """A gateway dies under load; how many clients had no answer, and how many requests were sent in all."""
    victim = made.gateways[0]

    async def ask(number: int) -> int:
        return await call(victim.ports["data"], "answer", number, "counted")

    asking = [asyncio.get_running_loop().create_task(ask(number)) for number in range(300)]
    await next(asyncio.as_completed(asking))
    await asyncio.to_thread(victim.end, signal.SIGKILL)
    ends = Counter(await asyncio.gather(*asking))
    await asyncio.to_thread(victim.start)
    return ends[0], len(asking)


async def _ten_of_two_hundred(made: World) -> None:
    await made.run("budget", "create", "ten", "--account-wide", "--requests", "10", "--window", "total")
    await asyncio.sleep(_IN_FORCE_SECONDS)
    asked = [call(made.gateways[number % 2].ports["data"], "answer", number, "counted") for number in range(200)]
    assert Counter(await asyncio.gather(*asked)) == {200: 10, 429: 190}
    assert made.upstreams.books.requests["counted"] == 10
    assert await made.used("ten") == {"": 10}
    await made.run("budget", "delete", "ten")
    made.upstreams.books = Books()


async def _ledger_is_upstreams_count(directory: Path, url: str) -> None:
    async with world(directory, url) as made:
        await _ten_of_two_hundred(made)
        await _budgets(made)
        await _campaign(made)
        books = made.upstreams.books
        requests = {"counted": books.requests["counted"], "cut": books.requests["cut"]}
        assert await made.settled("requests", requests) == requests
        tokens = await made.used("tokens")
        assert tokens["counted"] == books.tokens["counted"]
        assert tokens["cut"] > 0
        assert await made.used("told") == tokens
        lines = "".join(line for gateway in made.gateways for line in gateway.lines)
        assert lines.count("budget told: used up for route counted: ") == 1
        assert lines.count("budget told: used up for route cut: ") == 1
        before = books.requests["counted"]
        unanswered, sent = await _killed(made)
        counted, asked = (await made.used("requests"))["counted"], books.requests["counted"]
        assert asked <= counted <= asked + unanswered
        assert before < asked <= before + sent


@pytest.mark.guarantee("B1")
@pytest.mark.guarantee("B2")
@pytest.mark.timeout(180)
def test_hard_budgets_are_exact_and_the_ledger_is_the_upstreams_count_after_faults_and_a_kill(tmp_path: Path) -> None:
    asyncio.run(_ledger_is_upstreams_count(tmp_path, ""))


@pytest.mark.guarantee("B1")
@pytest.mark.guarantee("B2")
@pytest.mark.timeout(180)
def test_on_postgresql_budgets_are_exact_and_the_upstreams_count_too(tmp_path: Path) -> None:
    with postgres_server() as server:
        asyncio.run(_ledger_is_upstreams_count(tmp_path, server.url(server.new_database())))
