"""What budgets cost each request: both stages on SQLite or PostgreSQL, by what applies to the request.

    .venv/bin/python bench/budget_cost.py                           # some ten seconds
    .venv/bin/python bench/budget_cost.py --database postgresql     # a server of its own on this machine

As `bench/chain_cost.py`: no sockets of clients, warm caches, one request after the other; the write of what requests
came to is part of it. Microseconds of CPU time of the gateway's thread, and of time that passes, where a server works
too. The first line is a request without these stages, the others what each arrangement adds to it.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_cost import Parts, _Client, dispatcher_of, request_to
from tests.support.databases import postgres_server

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.gateway.stages.budgets import BudgetStages
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_postgresql import open_postgresql_ledger
from pointsman.store.quota_sqlite import open_sqlite_ledger

_ROUND = 200
_PLENTY = 10**15


def _budget(name: str, unit: BudgetUnit, subject: str = "", *, is_hard: bool = True) -> Budget:
    scope = BudgetScope.ROUTE if subject else BudgetScope.ACCOUNT
    window = BudgetWindow.MONTH
    return Budget("default", name, scope, subject, unit, _PLENTY, window, "Europe/Budapest", is_hard, id=name)


CELLS: dict[str, Sequence[Budget] | None] = {
    "no stages": None,
    "no budgets at all": (),
    "budgets of other routes": [_budget(f"b{number}", BudgetUnit.TOKENS, f"r{number}") for number in range(50)],
    "one hard budget of requests": [_budget("r", BudgetUnit.REQUESTS)],
    "one hard budget of tokens": [_budget("t", BudgetUnit.TOKENS)],
    "three hard budgets": [_budget(unit.value, unit) for unit in BudgetUnit],
    "one soft budget of requests": [_budget("s", BudgetUnit.REQUESTS, is_hard=False)],
    "one soft budget of tokens": [_budget("s", BudgetUnit.TOKENS, is_hard=False)],
}


class Spent(NamedTuple):
    """Of one request, in microseconds."""

    cpu: float
    passed: float


class Cell:
    """A dispatcher with one arrangement, driven again and again."""

    def __init__(self, dispatcher: Dispatcher, ledger: SqlBudgetLedger) -> None:
        self._dispatcher, self._ledger = dispatcher, ledger
        self._request = request_to("direct")
        self.best = Spent(float("inf"), float("inf"))

    async def round(self) -> None:
        """Some requests, and the writing of what they came to."""
        client, request, dispatcher = cast(ClientConnection, _Client()), self._request, self._dispatcher
        began, began_at = time.thread_time(), time.perf_counter()
        for _ in range(_ROUND):
            await dispatcher.serve(dispatcher.admit(request.head), request, client)
            await asyncio.sleep(0)
        await self._ledger.write()
        cpu, passed = time.thread_time() - began, time.perf_counter() - began_at
        best, each = self.best, 1e6 / _ROUND
        self.best = Spent(min(best.cpu, cpu * each), min(best.passed, passed * each))


@contextlib.asynccontextmanager
async def cell(directory: Path, budgets: Sequence[Budget] | None, url: str) -> AsyncIterator[Cell]:
    """On counters of its own."""
    parts = Parts("direct", "none", log=False, journal=False, metrics=False, usage=False)
    async with dispatcher_of(parts, directory) as (dispatcher, _):
        file = directory / f"{time.monotonic_ns()}.db"
        opening = open_postgresql_ledger(url, time.time()) if url else open_sqlite_ledger(file, time.time())
        quotas = await opening
        ledger = SqlBudgetLedger(quotas.database, print)
        in_force = {"default": budgets} if budgets else {}
        stages = BudgetStages(lambda: in_force, ledger, print, time.time)
        made = Stages(budget_reserve=stages.reserve, budget_settle=stages.settle)
        dispatcher.pass_stages(NO_STAGES if budgets is None else made)
        try:
            yield Cell(dispatcher, ledger)
        finally:
            await ledger.close()
            await quotas.close()


async def measured(rounds: int, url: str) -> dict[str, Spent]:
    """The best of many interleaved rounds; `url`: a PostgreSQL database's."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        cells = {name: await stack.enter_async_context(cell(directory, of, url)) for name, of in CELLS.items()}
        for _ in range(rounds):
            for each in cells.values():
                await each.round()
        return {name: each.best for name, each in cells.items()}


def main(arguments: list[str]) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgres_server()) if options.database == "postgresql" else None
        url = "" if server is None else server.url(server.new_database())
        found = asyncio.run(measured(options.rounds, url))
    alone = found.pop("no stages")
    print(f"{options.database:34}{'CPU':>8}{'passed':>10}  microseconds")
    print(f"{'no stages':34}{alone.cpu:8.1f}{alone.passed:10.1f}")
    for name, spent in found.items():
        print(f"{name:34}{spent.cpu - alone.cpu:+8.1f}{spent.passed - alone.passed:+10.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
