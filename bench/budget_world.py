"""Gateways with budgets in every unit, whose ledger and usage rows are held beside what their providers wrote down.

Owns starting them, asking as a client that may leave at any moment, and reading what was counted. What is done is the
cells' of `budget_faults`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from bench.processes import free_ports
from bench.spending_upstream import FIRST, MESSAGES, PRICES, RESPONSES, SECOND, SpendingUpstream
from tests.support.client_commands import run_client
from tests.support.gateway_process import GatewayProcess

IN_FORCE_SECONDS = 1.0
"""A gateway looks four times a second for what has changed."""
MOST_OUTPUT = 50
"""Tokens that a request asks for at most."""
_ANSWER_SECONDS = 60.0
_NANO = 10**9
_LONE = "lone"
"""The provider of direct routes: the first one under a name of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one client does."""

    route: str
    number: int
    dialect: str
    stream: bool
    first: Sequence[str]
    """What the first provider does, call by call."""
    second: Sequence[str] = ("500",)
    leaves: str = ""
    """When its client does: `half` of the body sent, when a provider has it (`sent`), at the first byte of the answer's
    body (`body`), or at the last event (`end`). Empty: it stays."""

    def body(self) -> bytes:
        """As it is sent."""
        play = {"route": self.route, "number": self.number, FIRST: self.first, SECOND: self.second}
        most = {"max_output_tokens" if self.dialect == RESPONSES else "max_tokens": MOST_OUTPUT}
        return json.dumps({"model": self.route, "stream": self.stream, **most, "play": play}).encode()


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests, tokens and money, in billionths."""

    requests: int = 0
    tokens: int = 0
    money: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.requests + other.requests, self.tokens + other.tokens, self.money + other.money)

    def __str__(self) -> str:
        return f"{self.requests} / {self.tokens} / {Decimal(self.money) / _NANO:f}"


@dataclass(frozen=True, slots=True)
class Rows:
    """What `pointsman usage` tells of one route."""

    counts: Counts = Counts()  # frozen
    failed: int = 0
    estimated: int = 0


async def ask(port: int, request: Request, key: str, has_it: asyncio.Event) -> int:
    """The status; 0 when the client left first, or the gateway did before it had answered whole."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await _exchange(reader, writer, request, key, has_it)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError):
        return 0


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request, key: str, has_it: asyncio.Event
) -> int:
    body = request.body()
    fields = f"Host: a\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"POST /v1/{request.dialect} HTTP/1.1\r\n{fields}\r\n".encode())
    if request.leaves == "half":
        writer.write(body[: len(body) // 2])
        await writer.drain()
        return 0
    writer.write(body)
    if request.leaves == "sent":
        await has_it.wait()
        return 0
    head = await reader.readuntil(b"\r\n\r\n")
    if request.leaves == "body":
        await reader.read(1)
        return 0
    if request.leaves == "end":
        await reader.readuntil(b'"message_stop"}\n\n' if request.dialect == MESSAGES else _LAST[request.dialect])
        return 0
    rest = await reader.read()
    return int(head.split(b" ", 2)[1]) if rest else 0


_LAST = {"chat/completions": b"[DONE]\n\n", "completions": b"[DONE]\n\n", "responses": b"}}}\n\n"}


class BudgetWorld:
    """Two gateways on one data directory, or on one server's database."""

    def __init__(self, directory: Path, upstream: SpendingUpstream, routes: Sequence[str], url: str) -> None:
        self.upstream = upstream
        self.keys: dict[str, str] = {}
        file = directory / "pointsman.yaml"
        file.write_text(_configuration(routes, upstream.port))
        options = (f"--config={file}", *((f"--database-url={url}",) if url else ()))
        ports = free_ports(6)
        self.gateways = [GatewayProcess(directory / "data", ports[at : at + 3], *options) for at in (0, 3)]

    async def start(self) -> None:
        """Both, with prices and a key."""
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.start)
        for name in (FIRST, f"{FIRST}-claude"):
            await self._price(name, *PRICES[FIRST])
        for name in (SECOND, f"{SECOND}-claude"):
            await self._price(name, *PRICES[SECOND])
        self.keys["ada"] = (await self.run("key", "create", "ada"))["key"]

    async def _price(self, name: str, fresh: int, kept: int, out: int, request: int) -> None:
        prices = ("--input", _per_million(fresh), "--output", _per_million(out), "--cached-input", _per_million(kept))
        await self.run("price", "set", name, *prices, "--request", f"{Decimal(request) / _NANO:f}")

    async def lead_directly(self, routes: Sequence[str]) -> None:
        """To the first provider alone, whose answer is the answer."""
        at = ("--config", f"OPENAI_BASE_URL=http://127.0.0.1:{self.upstream.port}/{FIRST}/v1")
        made = ("--name", _LONE, "--type", "openai_compatible", "--credential", "OPENAI_API_KEY=none")
        await self.run("provider", "create", *made, *at)
        await self._price(_LONE, *PRICES[FIRST])
        for route in routes:
            await self.run("route", "create", route, "--provider", _LONE, "--model", "m", "--no-verify")

    async def limit_everything(self) -> None:
        """Hard budgets that are never used up, in all units: the account's, each key's and each route's."""
        amounts = {"requests": "1000000", "tokens": "1000000000", "money": "1000000"}
        for name, scope in (("account", ("--account-wide",)), ("key", ("--key", "*")), ("route", ("--route", "*"))):
            for unit, amount in amounts.items():
                budget = (f"{name}-{unit}", *scope, f"--{unit}", amount, "--window", "total")
                await self.run("budget", "create", *budget)
        await self.run("budget", "create", "soft", "--route", "*", "--tokens", "1", "--window", "total", "--soft")
        await asyncio.sleep(IN_FORCE_SECONDS)

    async def run(self, *arguments: str) -> Any:
        """What a command of the second gateway's operator prints; it must succeed."""
        gateway = self.gateways[1]
        options = ("--token-file", str(gateway.token_file), "-o", "json")
        result = await asyncio.to_thread(run_client, gateway.url, *arguments, *options)
        if result.exit_code:
            raise AssertionError(f"{arguments}: {result.output}")
        return json.loads(result.stdout) if result.stdout.strip() else None

    async def ask(self, request: Request, gateway: int, key: str = "") -> int:
        """See `ask`; without a key with the world's own."""
        has_it = self.upstream.reached[request.route, request.number]
        return await ask(self.gateways[gateway].ports["data"], request, key or self.keys["ada"], has_it)

    async def ledger(self, scope: str) -> dict[str, Counts]:
        """By subject, of the budgets of a scope."""
        found: dict[str, dict[str, int]] = {}
        for each in await self.run("budget", "status"):
            of, _, unit = each["name"].partition("-")
            if of == scope:
                amount = int(Decimal(each["used"]) * (_NANO if unit == "money" else 1))
                found.setdefault(each["subject"], {})[unit] = amount
        return {subject: Counts(**counts) for subject, counts in found.items()}

    async def rows(self) -> Mapping[str, Rows]:
        """By route."""
        return {
            each["route"]: Rows(
                Counts(each["requests"], each["total_tokens"], int(Decimal(each["cost"]) * _NANO)),
                each["failed"],
                each["estimated"],
            )
            for each in await self.run("usage", "--by", "route")
        }

    @property
    def lines(self) -> list[str]:
        """What both gateways have said."""
        return [line.strip() for gateway in self.gateways for line in gateway.lines]


@contextlib.asynccontextmanager
async def budget_world(
    directory: Path, routes: Sequence[str], url: str = "", direct: Sequence[str] = ()
) -> AsyncIterator[BudgetWorld]:
    """Started, with these chains and direct routes, and ended with its block."""
    upstream = SpendingUpstream()
    async with upstream.listening():
        world = BudgetWorld(directory, upstream, routes, url)
        try:
            await world.start()
            if direct:
                await world.lead_directly(direct)
            yield world
        finally:
            for gateway in world.gateways:
                await asyncio.to_thread(gateway.close)


def _per_million(billionths: int) -> str:
    """As an operator writes a price."""
    return f"{Decimal(billionths) * 1_000_000 / _NANO:f}"


def _configuration(routes: Sequence[str], port: int) -> str:
    lines = ["providers:"]
    for name in (FIRST, SECOND):
        more = f"api_key: none, model: model-{name}, base_url: 'http://127.0.0.1:{port}/{name}/v1'"
        lines.append(f"  - {{name: {name}, type: openai_compatible, {more}}}")
        lines.append(f"  - {{name: {name}-claude, type: anthropic, {more}}}")
    lines.append("routes:")
    members = f"{FIRST}, {SECOND}, {FIRST}-claude, {SECOND}-claude"
    lines += [f"  - {{name: {route}, candidates: [{members}]}}" for route in routes]
    return "\n".join([*lines, ""])
