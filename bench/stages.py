"""What a gateway's stages cost each request, in CPU time of the process: part of `make bench`.

    .venv/bin/python bench/stages.py                 # some twenty seconds
    .venv/bin/python bench/stages.py --profile "all stages"   # where the time of one arrangement goes, by function
    .venv/bin/python bench/stages.py --strict        # exit status 1 when a target is missed

As `bench/chain_cost.py`: no sockets, a dispatcher between a client that swallows all and an upstream that has answered
already; the same small request each time, which no rule matches and which every budget has room for. All arrangements
take turns, so each line is beside the others of the same minute. What requests leave behind is written within the
round: rows, receipts and counters, as many together as a busy gateway writes.
"""

import argparse
import asyncio
import contextlib
import cProfile
import pstats
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import cast

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_cost import Parts, _Client, dispatcher_of, request_to
from bench.policy_rules import Words, large_body, least_seconds, policy_of

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.context_options import ContextOptions
from pointsman.core.policy import Effect, PolicyState, PolicyVersion, Rule, Side
from pointsman.core.price import Price, PriceTable
from pointsman.core.receipt import ReceiptScope
from pointsman.gateway.following import Followed
from pointsman.gateway.stages.audit import AuditStage
from pointsman.gateway.stages.budgets import BudgetStages
from pointsman.gateway.stages.context import ContextStage
from pointsman.gateway.stages.decisions import Decisions
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.gateway.stages.receipts import ReceiptStages
from pointsman.gateway.stages.request_policy import RequestPolicy
from pointsman.gateway.stages.response_policy import ResponsePolicy
from pointsman.gateway.stages.usage import UsageRows
from pointsman.proxy.client_connection import ClientConnection
from pointsman.proxy.dispatch import Dispatcher
from pointsman.proxy.stages import NO_STAGES, Stages
from pointsman.routing.policy import PASSED, evaluate
from pointsman.store.budget_ledger import SqlBudgetLedger
from pointsman.store.quota_sqlite import open_sqlite_ledger
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore, open_store
from pointsman.wire.request import Request

_ROUND = 500
_PLENTY = 10**15
_ACCOUNT = "default"
MOST_MICROSECONDS = 40.0
"""Of all stages but receipts, over none, where requests come together; one that comes alone has a commit of its own."""
MOST_SEARCH_MICROSECONDS = 2000.0
"""Of a thousand rules on a body of 200 KiB."""
Flush = Callable[[], Awaitable[object]]
_PRICES = PriceTable(1, {("p0", "m"): Price("p0", "m", 1_000_000, 3_000_000)})


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Which stages there are."""

    budgets: Sequence[Budget] = ()
    has_policy: bool = False
    trims: bool = False
    keeps_usage: bool = False
    audits: bool = False
    gives_receipts: bool = False
    has_networks: bool = False
    together: int = 1
    """Requests that come in the same turn of the event loop."""


def _budget(unit: BudgetUnit, *, is_hard: bool) -> Budget:
    name = f"{unit.value}-{'hard' if is_hard else 'soft'}"
    month, zone = BudgetWindow.MONTH, "Europe/Budapest"
    return Budget(_ACCOUNT, name, BudgetScope.ACCOUNT, "", unit, _PLENTY, month, zone, is_hard, id=name)


HARD = [_budget(unit, is_hard=True) for unit in BudgetUnit]
_SOFT = [_budget(unit, is_hard=False) for unit in BudgetUnit]
_SIX = (*HARD, *_SOFT)
_ALL = Arrangement((_budget(BudgetUnit.MONEY, is_hard=True),), True, True, True, True, has_networks=True)
ALL, ALL_WITH_RECEIPTS, NONE = "all stages", "all stages, with receipts", "no stages"
_TOGETHER = 20
ALL_TOGETHER, NONE_TOGETHER = f"{ALL}, {_TOGETHER} at once", f"{NONE}, {_TOGETHER} at once"
CELLS: dict[str, Arrangement] = {
    NONE: Arrangement(),
    "a key with networks and an end": Arrangement(has_networks=True),
    "one hard budget of requests": Arrangement(HARD[:1]),
    "three hard budgets": Arrangement(HARD),
    "three soft budgets": Arrangement(_SOFT),
    "request policy, 20 rules": Arrangement(has_policy=True),
    "context options": Arrangement(trims=True),
    "usage rows": Arrangement(keeps_usage=True),
    "audit": Arrangement(audits=True),
    "receipts": Arrangement(gives_receipts=True),
    "all stages without budgets": replace(_ALL, budgets=()),
    ALL: _ALL,
    "all stages, six budgets": replace(_ALL, budgets=_SIX),
    ALL_WITH_RECEIPTS: replace(_ALL, gives_receipts=True),
    NONE_TOGETHER: Arrangement(together=_TOGETHER),
    "one hard budget of requests, 20 at once": Arrangement(HARD[:1], together=_TOGETHER),
    "three hard budgets, 20 at once": Arrangement(HARD, together=_TOGETHER),
    ALL_TOGETHER: replace(_ALL, together=_TOGETHER),
    f"all stages, six budgets, {_TOGETHER} at once": replace(_ALL, budgets=_SIX, together=_TOGETHER),
}


def _rules() -> tuple[Rule, ...]:
    words = Words()
    texts = [f"{words.luck.choice(words.all)}[0-9]{{3}}{words.luck.choice(words.all)}" for _ in range(17)]
    return (
        Rule("tools", Side.REQUEST, Effect.BLOCK, denied_tools=("shell*", "bash")),
        Rule("fields", Side.REQUEST, Effect.BLOCK, denied_fields=("logit_bias",)),
        Rule("tokens", Side.REQUEST, Effect.FLAG, most_tokens=100_000),
        *(Rule(f"r{number}", Side.REQUEST, Effect.BLOCK, pattern=text) for number, text in enumerate(texts)),
    )


def _request() -> Request:
    request = request_to("direct")
    request.head.peer = "127.0.0.1"
    return Request(request.head, request.body[:-1] + b',"max_tokens":1000,"stream":false}')


@dataclass
class Cell:
    """A dispatcher with one arrangement, driven again and again; `flushes` write what requests leave behind."""

    dispatcher: Dispatcher
    together: int = 1
    flushes: list[Flush] = field(default_factory=list)
    best: float = float("inf")

    async def round(self) -> None:
        """Some requests, and the writing of what they left behind."""
        client, request, dispatcher = cast(ClientConnection, _Client()), _request(), self.dispatcher
        began = time.process_time()
        for _ in range(_ROUND // self.together):
            crowd = (dispatcher.serve(dispatcher.admit(request.head), request, client) for _ in range(self.together))
            if self.together > 1:
                await asyncio.gather(*crowd)
            else:
                await next(crowd)
                await asyncio.sleep(0)
        for flush in self.flushes:
            await flush()
        self.best = min(self.best, (time.process_time() - began) / _ROUND * 1e6)


async def _written(rows: UsageRows) -> None:
    rows.form()
    await rows._write()


@contextlib.asynccontextmanager
async def cell(directory: Path, store: SqlStore, policies: PoliciesInForce, of: Arrangement) -> AsyncIterator[Cell]:
    """One arrangement, on counters of its own."""
    async with contextlib.AsyncExitStack() as stack:
        networks = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8")) if of.has_networks else ()
        parts = Parts("direct", "none", log=False, journal=False, metrics=False, usage=False, networks=networks)
        dispatcher, _ = await stack.enter_async_context(dispatcher_of(parts, directory))
        made = Cell(dispatcher, of.together)
        dispatcher.pass_stages(await stages_of(of, directory, store, policies, (stack, made.flushes)))
        yield made


async def stages_of(
    of: Arrangement,
    directory: Path,
    store: SqlStore,
    policies: PoliciesInForce,
    into: tuple[contextlib.AsyncExitStack, list[Flush]],
) -> Stages:
    """Of an arrangement. `into`: what ends them, and what writes what requests leave behind."""
    (stack, flushes), stages = into, NO_STAGES
    if of.budgets:
        quotas = await open_sqlite_ledger(directory / f"{time.monotonic_ns()}.db", time.time())
        stack.push_async_callback(quotas.close)
        ledger = SqlBudgetLedger(quotas.database, print)
        stack.push_async_callback(ledger.close)
        in_force = {_ACCOUNT: of.budgets}
        budgets = BudgetStages(lambda: in_force, ledger, print, time.time, lambda _: _PRICES)
        stages = replace(stages, budget_reserve=budgets.reserve, budget_settle=budgets.settle)
        flushes.append(ledger.write)
    if of.has_policy:
        policy = RequestPolicy(policies)
        stack.callback(policy.close)
        stages = replace(stages, request_policy=policy, response_policy=ResponsePolicy(policies))
    if of.trims:
        options = {(_ACCOUNT, "direct"): ContextOptions(True, True, 100_000)}
        context = ContextStage(lambda: options, print)
        stack.callback(context.close)
        stages = replace(stages, context=context.trim)
    return _behind(of, store, stages, flushes)


def _behind(of: Arrangement, store: SqlStore, stages: Stages, flushes: list[Flush]) -> Stages:
    """The stages of an answer."""
    if of.keeps_usage:
        usage = UsageRows(store, print, time.time, keep_days=1, prices_of=lambda _: _PRICES)
        flushes.append(lambda: _written(usage))
        stages = replace(stages, usage_open=usage.open, usage_record=usage.record)
    if of.audits:
        stages = replace(stages, audit=AuditStage(Decisions(store, print, time.time)).note)
    if of.gives_receipts:
        receipts = ReceiptStages(ReceiptScope(is_all=True), store, print)
        flushes.append(receipts.write)
        stages = replace(stages, receipt_open=receipts.open, receipt=receipts.close)
    return stages


@contextlib.asynccontextmanager
async def cells(names: Sequence[str]) -> AsyncIterator[dict[str, Cell]]:
    """Those with these names, on one store."""
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-")))
        store = await open_store(StoreSettings(file_url(directory / "pointsman.db"), directory / "credentials.key"))
        stack.push_async_callback(store.close)
        async with store.write() as writer:
            await writer.insert_policy(PolicyVersion(_ACCOUNT, 1, _rules(), 0.0, PolicyState.ENFORCED, 0.0))
        policies = PoliciesInForce()
        await Followed(store, print).keep(policies, "policies")
        yield {name: await stack.enter_async_context(cell(directory, store, policies, CELLS[name])) for name in names}


async def measured(rounds: int) -> dict[str, float]:
    """Microseconds per request, the best of many interleaved rounds."""
    async with cells(list(CELLS)) as made:
        for _ in range(rounds):
            for each in made.values():
                await each.round()
        return {name: each.best for name, each in made.items()}


async def profile(name: str) -> None:
    """By function."""
    async with cells([name]) as made:
        profiler = cProfile.Profile()
        await made[name].round()
        profiler.enable()
        for _ in range(10):
            await made[name].round()
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def commit_microseconds() -> float:
    """Of one counter's step in a file of its own, with nothing around it: what no stage of ours can save."""
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-bench-") as directory,
        contextlib.closing(sqlite3.connect(f"{directory}/counter.db", isolation_level=None)) as database,
    ):
        for pragma in ("page_size = 1024", "journal_mode = WAL", "synchronous = NORMAL"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE counters (name TEXT PRIMARY KEY, used INTEGER)")
        database.execute("INSERT INTO counters VALUES ('c', 0)")
        step = "UPDATE counters SET used = used + 1 WHERE name = 'c' AND used < 1000000"
        return cpu_microseconds(lambda: database.execute(step))


def cpu_microseconds(work: Callable[[], object]) -> float:
    """The best of some rounds."""
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        for _ in range(_ROUND):
            work()
        best = min(best, (time.process_time() - began) / _ROUND * 1e6)
    return best


def search_microseconds() -> float:
    """Of a thousand rules on a body of 200 KiB, none of which matches."""
    words = Words()
    body = large_body(words)
    compiled = policy_of(words, 1000)
    if evaluate(compiled, body) != PASSED:
        raise AssertionError("no rule was to match")
    return least_seconds(lambda: evaluate(compiled, body), 60) * 1e6


def report(rounds: int, *, strict: bool = False) -> int:
    """Print the table. 1 when a target is missed and that matters."""
    found = asyncio.run(measured(rounds))
    alone, alone_of_many = found.pop(NONE), found.pop(NONE_TOGETHER)
    print("| stages | µs of CPU per request | over none | × |\n|---|--:|--:|--:|")
    print(f"| {NONE} | {alone:.1f} | | |")
    print(f"| {NONE_TOGETHER} | {alone_of_many:.1f} | | |")
    for name, microseconds in found.items():
        none = alone if CELLS[name].together == 1 else alone_of_many
        print(f"| {name} | {microseconds:.1f} | {microseconds - none:+.1f} | {microseconds / none:.2f} |")
    commit = commit_microseconds()
    print(f"| a commit of SQLite's, by itself | {commit:.1f} | | |")
    search = search_microseconds()
    print(f"| 1,000 rules, a body of 200 KiB | {search:.0f} | | |")
    missed = [
        f"{what}: {is_:.0f} µs; the target is {target:.0f} µs"
        for what, is_, target in (
            (ALL_TOGETHER, found[ALL_TOGETHER] - alone_of_many, MOST_MICROSECONDS),
            (ALL, found[ALL] - alone, MOST_MICROSECONDS + commit),
            ("1,000 rules, a body of 200 KiB", search, MOST_SEARCH_MICROSECONDS),
        )
        if is_ > target
    ]
    for line in missed:
        print(f"stages: missed: {line}")
    return 1 if missed and strict else 0


def main(arguments: list[str]) -> int:
    """0, or 1 when a target is missed and `--strict` was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--profile", metavar="ARRANGEMENT", choices=list(CELLS))
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    if options.profile:
        asyncio.run(profile(options.profile))
        return 0
    return report(options.rounds, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
