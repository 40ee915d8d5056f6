"""Connections to either database: how they are made, how long they wait, how their transactions begin."""

import ssl
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL, Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from pointsman.store.problems import StoreRefused

READERS = 5
"""Connections held open for views; as many again under load. The one writer has a connection of its own: views that
are held while their owners wait to write cannot keep it from them."""
COUNTERS = 4
"""Connections for counters: a statement holds one for less than a millisecond."""
STATEMENT_SECONDS = 10.0
"""No statement of ours takes a tenth of that on a healthy server."""
IDLE_TRANSACTION_SECONDS = 60
"""After which PostgreSQL undoes the transaction of a gateway that hangs, so that others can write."""

_GENERATION = "SELECT value FROM generation"


@dataclass(frozen=True, slots=True)
class Engines:
    """Connections for views, which are of one moment, and the one for changes."""

    readers: AsyncEngine
    writer: AsyncEngine

    async def close(self) -> None:
        """Close them."""
        await self.writer.dispose()
        await self.readers.dispose()


def make_engines(url: URL, busy_seconds: float) -> Engines:
    """Connects to nothing yet. Raises StoreRefused for a certificate file that is none."""
    many = {"pool_size": READERS, "max_overflow": READERS, "pool_timeout": busy_seconds}
    one = {"pool_size": 1, "max_overflow": 0, "pool_timeout": busy_seconds}
    if url.get_backend_name() == "sqlite":
        # BEGIN alone would read first and then find that another has written: an error that waiting does not help.
        return Engines(_sqlite(url, busy_seconds, "BEGIN", many), _sqlite(url, busy_seconds, "BEGIN IMMEDIATE", one))
    # Views of one moment; a writer sees what the one before it committed.
    return Engines(
        _postgresql(url, busy_seconds, many).execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ),
        _postgresql(url, busy_seconds, one).execution_options(isolation_level="READ COMMITTED"),
    )


def make_counting_engine(url: URL, statement_seconds: float, busy_seconds: float) -> AsyncEngine:
    """PostgreSQL's for counters, every statement a transaction of its own. Raises StoreRefused as `make_engines`."""
    pool = {"pool_size": COUNTERS, "max_overflow": 0, "pool_timeout": statement_seconds}
    return _postgresql(url, busy_seconds, pool).execution_options(isolation_level="AUTOCOMMIT")


def _sqlite(url: URL, busy_seconds: float, begin: str, pool: dict[str, Any]) -> AsyncEngine:
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_seconds, "isolation_level": None},
        **pool,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgresql(url: URL, busy_seconds: float, pool: dict[str, Any]) -> AsyncEngine:
    url, arguments = _tls(url)
    return create_async_engine(
        url,
        hide_parameters=True,
        connect_args={
            **arguments,
            "timeout": busy_seconds,
            "command_timeout": STATEMENT_SECONDS + busy_seconds,
            "server_settings": {
                "application_name": "pointsman",
                "statement_timeout": str(int(STATEMENT_SECONDS * 1000)),
                "lock_timeout": str(max(1, int(busy_seconds * 1000))),
                "idle_in_transaction_session_timeout": str(IDLE_TRANSACTION_SECONDS * 1000),
            },
        },
        pool_pre_ping=True,
        **pool,
    )


async def current_generation(engine: AsyncEngine) -> int:
    """Past SQLAlchemy, which makes eight trips to SQLite's thread for it: this is asked 20 times a second.

    Raises one of problems.FAILURES.
    """
    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        if engine.dialect.name == "sqlite":
            (row,) = await driver.execute_fetchall(_GENERATION)  # type: ignore[union-attr] # aiosqlite's
            return int(row[0])
        return int(await driver.fetchval(_GENERATION))  # type: ignore[union-attr] # asyncpg's


def _tls(url: URL) -> tuple[URL, dict[str, Any]]:
    """libpq's word for TLS, which the driver takes under another name."""
    mode = url.query.get("sslmode")
    if not isinstance(mode, str):
        return url, {}
    root = url.query.get("sslrootcert")
    url = url.difference_update_query(["sslmode", "sslrootcert"])
    if mode not in ("verify-ca", "verify-full"):
        return url, {"ssl": mode}
    try:
        context = ssl.create_default_context(cafile=root if isinstance(root, str) else None)
    except OSError:
        context = None
    if context is None:
        raise StoreRefused(f"sslrootcert of the database URL, {root}, cannot be read as a certificate; correct it")
    context.check_hostname = mode == "verify-full"
    return url, {"ssl": context}
