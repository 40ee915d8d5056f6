"""Connections to either database: how they are made, how long they wait, how their transactions begin."""

import ssl
from typing import Any

from sqlalchemy import URL, Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

CONNECTIONS = 5
"""Held open for readers and the one writer; as many again under load."""
STATEMENT_SECONDS = 10.0
"""No statement of ours takes a tenth of that on a healthy server."""
IDLE_TRANSACTION_SECONDS = 60
"""After which PostgreSQL undoes the transaction of a gateway that hangs, so that others can write."""

_BEGIN = "pointsman_begin"
_GENERATION = "SELECT value FROM generation"


def sqlite_engine(url: URL, busy_seconds: float) -> AsyncEngine:
    """Writers begin with BEGIN IMMEDIATE (`writing`), readers with BEGIN."""
    engine = create_async_engine(
        url,
        hide_parameters=True,
        connect_args={"timeout": busy_seconds, "isolation_level": None},
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=busy_seconds,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))

    return engine


def postgresql_engine(url: URL, busy_seconds: float) -> AsyncEngine:
    """Readers see one moment (`reading`); writers see what the one before them committed."""
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
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=busy_seconds,
    )


def reading(engine: AsyncEngine) -> AsyncEngine:
    """The same connections, for views."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writing(engine: AsyncEngine) -> AsyncEngine:
    """The same connections, for changes."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
    return engine.execution_options(isolation_level="READ COMMITTED")


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
    if isinstance(root, str) and mode in ("verify-ca", "verify-full"):
        context = ssl.create_default_context(cafile=root)
        context.check_hostname = mode == "verify-full"
        return url.difference_update_query(["sslmode", "sslrootcert"]), {"ssl": context}
    return url.difference_update_query(["sslmode"]), {"ssl": mode}
