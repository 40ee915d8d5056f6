"""Hard budgets at real gateways: of 200 requests at once on room for 10, exactly 10 reach the provider.

    .venv/bin/python bench/budget_exactness.py            # make budget-exactness: both databases, two minutes
    .venv/bin/python bench/budget_exactness.py --database sqlite --unit tokens --scope key

Two gateways that share SQLite's file in one data directory, or PostgreSQL's tables; budgets in requests, tokens and
money, of the account, a key, a route and a sandbox. Requests come to exactly what is reserved for them, so that what
is given back makes no room for an eleventh. Exit status 1 when one was let through too many, or too few, or when the
ledger does not have what the provider told.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from itertools import product
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.budget_world import IN_FORCE_SECONDS, MOST_OUTPUT, BudgetWorld, Request, budget_world
from bench.spending_upstream import CHAT, SECOND, Told
from tests.support.databases import postgres_server

PLACES = 10
CROWD = 200
UNITS = ("requests", "tokens", "money")
SCOPES = ("account", "key", "route", "sandbox")
_NANO = 10**9
_CALLS = 3
"""Of each request: a try, a retry, the next provider."""


def _crowd(route: str) -> Iterator[Request]:
    """All alike to the byte, so that each comes to the same, and answered by the dearest member of the chain."""
    for number in range(100, 100 + CROWD):
        yield Request(route, number, CHAT, stream=False, first=("500",), second=("exact",))


def _whole(route: str) -> Told:
    """What each of them has reserved, and comes to."""
    body = next(_crowd(route)).body()
    return Told(-(-len(body) // 3), 0, MOST_OUTPUT)


def _room(unit: str, told: Told) -> str:
    """For `PLACES`, as a command takes it."""
    if unit == "money":
        return f"{Decimal(PLACES * told.money(SECOND)) / _NANO:f}"
    return str(PLACES if unit == "requests" else PLACES * told.total)


async def mistakes(world: BudgetWorld, unit: str, scope: str) -> list[str]:
    """What was wrong with one budget; it is gone afterwards."""
    route = route_of(unit, scope)
    told = _whole(route)
    world.upstream.exact[route] = told
    subject = {"account": "", "key": "ada", "route": route, "sandbox": f"box-{route}"}[scope]
    key = world.keys["ada"]
    if scope == "sandbox":
        key = (await world.run("sandbox", "token", "create", subject, "--route", route))["token"]
    of = ("--account-wide",) if scope == "account" else (f"--{scope}", subject)
    await world.run("budget", "create", route, *of, f"--{unit}", _room(unit, told), "--window", "total")
    await asyncio.sleep(IN_FORCE_SECONDS)
    asked = [world.ask(request, request.number % 2, key) for request in _crowd(route)]
    answers = Counter(await asyncio.gather(*asked))
    [state] = await world.run("budget", "status", route)
    await world.run("budget", "delete", route)
    books, wrong = world.upstream.books[route], []
    if (len(books.spent), books.calls) != (PLACES, _CALLS * PLACES):
        wrong.append(f"{len(books.spent)} requests were answered, in {books.calls} calls")
    if answers != {200: PLACES, 429: CROWD - PLACES}:
        wrong.append(f"clients got {dict(answers)}")
    spent = {"requests": len(books.spent), "tokens": books.tokens, "money": Decimal(books.money) / _NANO}[unit]
    if (state["subject"], Decimal(state["used"])) != (subject, spent):
        wrong.append(f"the ledger has {state['used']} of {state['subject']!r}, the provider told {spent}")
    return [f"{unit} of {scope}: {each}" for each in wrong]


def route_of(unit: str, scope: str) -> str:
    """Of one budget alone."""
    return f"{unit}-{scope}"


async def exactness(directory: Path, budgets: Sequence[tuple[str, str]], url: str = "") -> list[str]:
    """All that was wrong with budgets of these units and scopes; `url`: an empty PostgreSQL database's."""
    async with budget_world(directory, [route_of(*each) for each in budgets], url) as world:
        return [wrong for each in budgets for wrong in await mistakes(world, *each)]


def main(arguments: list[str]) -> int:
    """Print a line for each database; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append", help="may be repeated")
    parser.add_argument("--unit", choices=UNITS, action="append", help="may be repeated")
    parser.add_argument("--scope", choices=SCOPES, action="append", help="may be repeated")
    options = parser.parse_args(arguments)
    budgets = list(product(options.unit or UNITS, options.scope or SCOPES))
    failed = 0
    with ExitStack() as stack:
        for database in options.database or ["sqlite", "postgresql"]:
            server = stack.enter_context(postgres_server()) if database == "postgresql" else None
            directory = Path(tempfile.mkdtemp(prefix="pointsman-exact-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            url = server.url(server.new_database()) if server is not None else ""
            wrong = asyncio.run(exactness(directory, budgets, url))
            failed += len(wrong)
            print(
                f"{database}, 2 gateways: {len(budgets)} budgets, {CROWD} at once on {PLACES} left: {len(wrong)} wrong"
            )
            for line in wrong:
                print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
