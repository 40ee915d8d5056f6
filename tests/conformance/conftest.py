"""Fixtures of the store's tests. Tests here are coroutines, run on uvloop as the gateway is."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.conformance.ledgers import Counting
from tests.support.databases import (
    KINDS,
    Database,
    PostgresServer,
    postgres_server,
    postgresql_database,
    sqlite_database,
)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    # By name: a test may ask for more than it takes, through usefixtures.
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all: making one takes seconds. A test that stops it starts it again."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """One that a test may stop."""
    yield postgres
    if not postgres.is_running:
        postgres.start()


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A new database of either kind."""
    if request.param == "sqlite":
        return sqlite_database(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return postgresql_database(server, tmp_path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    """A new SQLite database."""
    return sqlite_database(tmp_path)


@pytest.fixture
def postgresql(postgres: PostgresServer, tmp_path: Path) -> Database:
    """A new PostgreSQL database."""
    return postgresql_database(postgres, tmp_path)


@pytest.fixture
def sqlite_counting(tmp_path: Path) -> Counting:
    """Counters in a file that is not there yet."""
    return Counting(tmp_path / "data" / "quota.db")


@pytest.fixture
def postgresql_counting(postgres: PostgresServer) -> Counting:
    """Counters in a new database."""
    return Counting(url=postgres.url(postgres.new_database()))
