"""Connections of PostgreSQL that are held between statements, on a real server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from pointsman.store.engines import make_counting_engine
from pointsman.store.held_drivers import HeldDrivers
from pointsman.store.settings import read_url
from tests.support.databases import PostgresServer

PATIENT = 30.0
_WHO = "SELECT pg_backend_pid()"


@contextlib.asynccontextmanager
async def drivers_of(server: PostgresServer, most: int) -> AsyncIterator[HeldDrivers]:
    engine = make_counting_engine(read_url(server.url("postgres")), PATIENT, PATIENT)
    drivers = HeldDrivers(engine, most)
    try:
        yield drivers
    finally:
        await drivers.close()
        await engine.dispose()


async def backend(drivers: HeldDrivers) -> int:
    async with drivers.one() as driver:
        return int(await driver.fetchval(_WHO))


async def test_statements_one_after_the_other_go_over_the_same_connection(postgres: PostgresServer) -> None:
    async with drivers_of(postgres, 2) as drivers:
        assert await backend(drivers) == await backend(drivers)


@pytest.mark.parametrize("most", [1, 2])
async def test_there_are_never_more_connections_than_that(postgres: PostgresServer, most: int) -> None:
    async with drivers_of(postgres, most) as drivers, contextlib.AsyncExitStack() as stack:
        held = {await (await stack.enter_async_context(drivers.one())).fetchval(_WHO) for _ in range(most)}
        assert len(held) == most
        waiting = asyncio.get_running_loop().create_task(backend(drivers))
        await asyncio.sleep(0)
        assert not waiting.done()
        await stack.aclose()
        assert await waiting in held


async def test_a_connection_on_which_something_failed_is_given_up(postgres: PostgresServer) -> None:
    async with drivers_of(postgres, 1) as drivers:
        before = await backend(drivers)
        with pytest.raises(asyncpg.PostgresError):
            async with drivers.one() as driver:
                await driver.execute("BEGIN; SELECT 1/0")
        assert await backend(drivers) != before


async def test_a_connection_that_the_server_has_ended_is_replaced(postgres: PostgresServer) -> None:
    async with drivers_of(postgres, 1) as drivers:
        async with drivers.one() as driver:
            before = await driver.fetchval(_WHO)
        await postgres.execute(f"SELECT pg_terminate_backend({before})")
        async with asyncio.timeout(PATIENT):
            while not driver.is_closed():
                await asyncio.sleep(0.01)
        assert await backend(drivers) != before


async def test_whoever_is_cancelled_in_the_midst_of_a_statement_leaves_none_to_the_next(
    postgres: PostgresServer,
) -> None:
    async with drivers_of(postgres, 1) as drivers:
        before = await backend(drivers)

        async def sleep() -> None:
            async with drivers.one() as driver:
                await driver.execute("SELECT pg_sleep(60)")

        sleeping = asyncio.get_running_loop().create_task(sleep())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.shield(sleeping)
        sleeping.cancel()
        async with asyncio.timeout(PATIENT):
            assert await backend(drivers) != before
