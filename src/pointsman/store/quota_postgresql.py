"""Counters in the store's PostgreSQL database, shared by the gateways of several machines.

Connections are their own, so that a long change of the store does not keep requests waiting. The tables are made here
and not by the store's migrations: counters are of one day, and a table that must change is made anew under a new name.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from pointsman.core.quota import LedgerUnavailable
from pointsman.core.quota_book import DayCount
from pointsman.store import budget_statements
from pointsman.store import quota_statements as statements
from pointsman.store.engines import COUNTERS, make_counting_engine
from pointsman.store.held_drivers import HeldDrivers
from pointsman.store.problems import FAILURES, HELD, problem_of
from pointsman.store.quota_ledger import (
    PATIENCE_SECONDS,
    Abandoned,
    AddedTo,
    Asked,
    Rows,
    Seen,
    SqlQuotaLedger,
    UnknownEnd,
    Values,
)
from pointsman.store.settings import read_url

_TABLES_LOCK = 0x706F696E74737175
"""PostgreSQL's advisory lock: CREATE TABLE IF NOT EXISTS fails when two do it at once."""

_TYPES = {
    "minute": "INTEGER",
    "limit": "INTEGER",
    "per_minute": "INTEGER",
    "now": "DOUBLE PRECISION",
    "until": "DOUBLE PRECISION",
    "oldest": "DOUBLE PRECISION",
    "recent": "DOUBLE PRECISION",
    "amount": "BIGINT",
    "most": "BIGINT",
    "ends": "DOUBLE PRECISION",
}


class PostgresqlCounting:
    """The CountingDatabase of `quota_ledger`. Made by `open_postgresql_ledger`."""

    adds_at_once = False

    def __init__(self, engine: AsyncEngine, patience_seconds: float) -> None:
        self._engine = engine
        self._drivers = HeldDrivers(engine, COUNTERS)
        self._patience_seconds = patience_seconds
        # A statement that was sent goes on when its caller is cancelled: somebody must learn what it did.
        self._running: set[asyncio.Task[Rows]] = set()

    async def prepare(self) -> None:
        """See to the tables."""
        try:
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="READ COMMITTED")
                async with connection.begin():
                    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _TABLES_LOCK})
                    for statement in (*statements.TABLES, *budget_statements.TABLES):
                        await connection.execute(text(statement))
                return
        except FAILURES as error:
            problem = problem_of(error)
        raise problem

    def count_at_once(self, asked: Asked) -> DayCount | None:
        """See CountingDatabase: a server is always waited for."""
        del asked
        return None

    def join_crowd(self, asked: Asked) -> None:
        """See CountingDatabase: its connections wait for each other in the server."""

    def add_at_once(self, counters: Sequence[AddedTo]) -> bool:
        """See CountingDatabase: as `count_at_once`."""
        del counters
        return False

    async def run(self, statement: str, values: Values, abandoned: Abandoned) -> Rows:
        """See CountingDatabase."""
        return await self._shielded(self._run(statement, values), abandoned)

    async def run_whole(self, statement: str, values: Values, count: int, abandoned: Abandoned) -> Rows:
        """See CountingDatabase: one counter is taken or not; of several, some may have gone to others meanwhile."""
        if count == 1:
            return await self.run(statement, values, abandoned)
        return await self._shielded(self._run_whole(statement, values, count), abandoned)

    async def _shielded(self, work: Coroutine[Any, Any, Rows], abandoned: Abandoned) -> Rows:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: _tell(done, abandoned))
            raise

    async def _run(self, statement: str, values: Values) -> Rows:
        return (await self._all((statement,), values))[-1]

    async def _run_whole(self, statement: str, values: Values, count: int) -> Rows:
        async def fetch(driver: Any) -> list[Rows]:
            transaction = driver.transaction()
            await transaction.start()
            try:
                rows = await _fetch(driver, statement, values)
            except BaseException:
                await transaction.rollback()
                raise
            if len(rows) == count:
                await transaction.commit()
                return [rows]
            await transaction.rollback()
            return [()]

        return (await self._with_driver(fetch))[-1]

    async def _all(self, all_statements: Sequence[str], values: Values) -> list[Rows]:
        async def fetch(driver: Any) -> list[Rows]:
            return [await _fetch(driver, one, values) for one in all_statements]

        return await self._with_driver(fetch)

    async def _with_driver(self, fetch: Callable[[Any], Awaitable[list[Rows]]]) -> list[Rows]:
        was_sent = False
        try:
            async with asyncio.timeout(self._patience_seconds), self._drivers.one() as driver:
                was_sent = True
                return await fetch(driver)
        except TimeoutError:
            problem = HELD
            is_known = not was_sent
        except FAILURES as error:
            problem = problem_of(error).text
            # What the server itself said it did not do, it did not do.
            is_known = not was_sent or getattr(error, "sqlstate", None) is not None
        raise (LedgerUnavailable if is_known else UnknownEnd)(f"quotas cannot be counted: {problem}")

    async def look(self, since: str, prune: Values | None) -> Seen:
        """See CountingDatabase."""
        if prune is not None:
            await self._all(statements.PRUNE, prune)
        counts, exhausted = await self._all((statements.COUNTS_SINCE, statements.ALL_EXHAUSTED), {"since": since})
        return Seen(counts, exhausted)

    async def settle(self) -> None:
        """See CountingDatabase."""
        if self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Let the database go, after what is under way."""
        await self.settle()
        await self._drivers.close()
        await self._engine.dispose()


async def _fetch(driver: Any, statement: str, values: Values) -> Rows:
    positional, names = _numbered(statement)
    return [tuple(row) for row in await driver.fetch(positional, *[values[name] for name in names])]


@lru_cache
def _numbered(statement: str) -> tuple[str, tuple[str, ...]]:
    """Names of values as numbers with types, as the server wants them."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"CAST(${names.index(name) + 1} AS {_TYPES.get(name.rstrip('0123456789'), 'TEXT')})"

    return re.sub(r":(\w+)", number, statement), tuple(names)


def _tell(done: "asyncio.Task[Rows]", abandoned: Abandoned) -> None:
    error = None if done.cancelled() else done.exception()
    if error is None and not done.cancelled():
        abandoned(done.result())
    elif not isinstance(error, UnknownEnd):
        abandoned(None)


async def open_postgresql_ledger(
    database_url: str, now: float, busy_seconds: float = 5.0, patience_seconds: float = PATIENCE_SECONDS
) -> SqlQuotaLedger:
    """The ledger in the store's database. `now`: epoch seconds.

    Raises StoreRefused for a URL that is not understood, StoreUnavailable, StoreFull, LedgerUnavailable.
    """
    database = PostgresqlCounting(
        make_counting_engine(read_url(database_url), patience_seconds, busy_seconds), patience_seconds
    )
    ledger = SqlQuotaLedger(database)
    try:
        await database.prepare()
        await ledger.look(now)
    except BaseException:
        await ledger.close()
        raise
    return ledger
