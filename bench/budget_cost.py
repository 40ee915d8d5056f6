"""What budgets cost each request, in CPU time of one thread: both stages on SQLite, by what applies to the request.

    .venv/bin/python bench/budget_cost.py            # some ten seconds

As `bench/chain_cost.py`: no sockets, warm caches; the write of what requests came to is part of it. The first line is
a request without these stages, the others what each arrangement adds to it.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_cost import Parts, _Client, dispatcher_of, request_to

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.gateway.budget_stages import BudgetStages
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.store.budget_ledger import SqlBudgetLedger
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


class Cell:
    """A dispatcher with one arrangement, driven again and again."""

    def __init__(self, dispatcher: Dispatcher, ledger: SqlBudgetLedger) -> None:
        self._dispatcher, self._ledger = dispatcher, ledger
        self._request = request_to("direct")
        self.best = float("inf")

    async def round(self) -> None:
        """Some requests, and the writing of what they came to."""
        client, request, dispatcher = cast(ClientConnection, _Client()), self._request, self._dispatcher
        began = time.thread_time()
        for _ in range(_ROUND):
            await dispatcher.serve(dispatcher.admit(request.head), request, client)
            await asyncio.sleep(0)
        await self._ledger.write()
        self.best = min(self.best, (time.thread_time() - began) / _ROUND * 1e6)


@contextlib.asynccontextmanager
async def cell(directory: Path, budgets: Sequence[Budget] | None) -> AsyncIterator[Cell]:
    """On counters of its own."""
    parts = Parts("direct", "none", log=False, journal=False, metrics=False, usage=False)
    async with dispatcher_of(parts, directory) as (dispatcher, _):
        quotas = await open_sqlite_ledger(directory / f"{time.monotonic_ns()}.db", time.time())
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


async def measured(rounds: int) -> dict[str, float]:
    """Microseconds per request, the best of many interleaved rounds."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        cells = {name: await stack.enter_async_context(cell(directory, of)) for name, of in CELLS.items()}
        for _ in range(rounds):
            for each in cells.values():
                await each.round()
        return {name: each.best for name, each in cells.items()}


def main(arguments: list[str]) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    found = asyncio.run(measured(parser.parse_args(arguments).rounds))
    alone = found.pop("no stages")
    print(f"{'no stages':34}{alone:8.1f}")
    for name, microseconds in found.items():
        print(f"{name:34}{microseconds - alone:+8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
