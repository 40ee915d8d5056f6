"""A database server that goes away and comes back; what is said meanwhile; and what is never said."""

import asyncio
import gc
import signal
import time
import traceback
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme
import uvloop

from pointsman.core.control_errors import ControlError, StoreUnavailable
from pointsman.core.secret import Secret
from pointsman.store.settings import StoreSettings
from pointsman.store.sql import SqlStore, open_store
from tests.conformance.records import ACCOUNT, provider, route
from tests.support.canary import KEY, Finder
from tests.support.databases import Database, PostgresServer, postgresql_database

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def _put(store: SqlStore) -> int:
    async with store.write() as writer:
        return (await writer.put_route(route())).version


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_stops_and_starts_again_is_used_again(
    own_server: PostgresServer, tmp_path: Path, how: signal.Signals
) -> None:
    """SIGQUIT: without a farewell to its clients."""
    database = postgresql_database(own_server, tmp_path)

    async def whole() -> None:
        async with replace(database, settings=replace(database.settings, freshness_seconds=0.0)).opened() as store:
            assert await _put(store) == 1
            with pytest.raises(StoreUnavailable):
                await _lose_it_at_work(own_server, store, how)
            for _ in range(3):
                for attempt in (_put(store), store.generation()):
                    with pytest.raises(StoreUnavailable, match="try again"):
                        await attempt
            await asyncio.to_thread(own_server.start)
            assert await store.generation() == 1
            assert await asyncio.gather(*(_put(store) for _ in range(5))) == [2, 3, 4, 5, 6]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


async def _lose_it_at_work(server: PostgresServer, store: SqlStore, how: signal.Signals) -> None:
    async with store.read() as reader, store.write() as writer:
        await writer.put_route(route())
        await reader.generation()
        await asyncio.to_thread(server.stop, how)
        for attempt in (writer.put_route(route()), reader.generation()):
            with pytest.raises(StoreUnavailable):
                await attempt


def test_a_server_lost_at_the_commit_leaves_the_end_open_and_says_so(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    database = postgresql_database(own_server, tmp_path)

    async def commit_into_the_dark() -> None:
        async with database.opened() as store, store.write() as writer:
            await writer.put_route(route())
            await asyncio.to_thread(own_server.stop)

    async def look() -> None:
        async with database.opened() as store, store.read() as reader:
            assert not await reader.routes(ACCOUNT)

    with pytest.raises(StoreUnavailable, match="look whether it was made"):
        asyncio.run(commit_into_the_dark())
    own_server.start()
    asyncio.run(look())


async def test_a_transaction_whose_failure_was_passed_over_is_not_committed(database: Database) -> None:
    async def pass_over() -> None:
        async with store.write() as writer:
            await writer.put_route(route())
            with pytest.raises(ControlError):
                await writer.insert_provider(replace(provider(), id="\ud800"))

    async with database.opened() as store:
        with pytest.raises(ControlError):
            await pass_over()
        async with store.read() as reader:
            assert not await reader.routes(ACCOUNT)
        assert await store.generation() == 0


async def test_a_session_that_the_server_ends_costs_one_error_at_most(postgresql: Database) -> None:
    assert postgresql.server is not None
    async with postgresql.opened() as store:
        await _put(store)
        await postgresql.server.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{postgresql.name}'"
        )
        assert await _put(store) == 2


@pytest.mark.parametrize(
    ("mode", "host", "authority", "expected"),
    [
        ("verify-full", "localhost", "right", ""),
        ("verify-ca", "127.0.0.1", "right", ""),
        ("require", "127.0.0.1", "none", ""),
        ("verify-full", "127.0.0.1", "right", "certificate is not trusted"),
        ("verify-full", "localhost", "other", "certificate is not trusted"),
        ("verify-ca", "localhost", "system", "certificate is not trusted"),
        ("verify-full", "localhost", "missing", "cannot be read as a certificate"),
    ],
)
async def test_a_servers_certificate_is_verified_when_asked(
    postgresql: Database, tmp_path: Path, mode: str, host: str, authority: str, expected: str
) -> None:
    assert postgresql.server is not None
    options = f"sslmode={mode}"
    if authority not in ("none", "system"):
        options += f"&sslrootcert={tmp_path}/{authority}.pem"
        postgresql.server.authority.cert_pem.write_to_path(tmp_path / "right.pem")
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    url = postgresql.server.url(postgresql.name, options, host)
    database = replace(postgresql, settings=replace(postgresql.settings, database_url=url))
    if expected:
        with pytest.raises(ControlError, match=expected):
            await open_store(database.settings)
        return
    async with database.opened() as store, store.read() as reader:
        used = await reader._connection.exec_driver_sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        assert used.scalar() is True


async def _problems(server: PostgresServer, key_file: Path) -> list[ControlError]:
    password = "hunter2-" + server.password
    urls = [
        f"postgresql://pointsman:{password}@127.0.0.1:1/x",
        f"postgresql://pointsman:{password}@127.0.0.1:port/x",
        f"postgresql://pointsman:{password}@127.0.0.1:{server.port}/postgres",
        f"postgresql://pointsman:{server.password}@127.0.0.1:{server.port}/no_such_database",
        f"postgresql://pointsman:{password}@host.invalid/x",
        f"postgresql:///x?host=/no/such/{password}",
        f"mysql://pointsman:{password}@127.0.0.1/x",
        f"pointsman:{password}",
        f"postgresql://pointsman:{password}@127.0.0.1:{server.port}",
        f"postgresql://pointsman:{password}@127.0.0.1:{server.port}/x?sslmode={password}",
        f"postgresql://pointsman:{password}@127.0.0.1:{server.port}/x?unknown={password}",
    ]
    found = []
    for url in urls:
        with pytest.raises(ControlError) as caught:
            await open_store(StoreSettings(url, key_file, busy_seconds=2))
        found.append(caught.value)
    return found


async def test_no_error_and_no_repr_shows_a_password_or_a_statement(postgres: PostgresServer, tmp_path: Path) -> None:
    for problem in await _problems(postgres, tmp_path / "key"):
        shown = "".join(traceback.format_exception(problem)) + problem.text
        assert postgres.password not in shown
        assert "SELECT" not in shown
        assert problem.__context__ is None
        assert problem.__cause__ is None
        assert ";" in problem.text, "says what to do next"
    assert not (tmp_path / "key").exists()
    settings = StoreSettings(postgres.url("x"), tmp_path / "key")
    assert postgres.password not in repr(settings) + str(settings)


async def test_a_failing_statement_shows_neither_itself_nor_its_values(database: Database) -> None:
    """A value that no database takes stands for any failure while a key is being written."""
    finder = Finder({"key": KEY})
    async with database.opened() as store:
        bad = replace(provider(), id=KEY + "\ud800", credentials={"K": Secret(KEY)}, config={KEY: KEY})
        with pytest.raises(ControlError) as caught:
            async with store.write() as writer:
                await writer.insert_provider(bad)
        shown = "".join(traceback.format_exception(caught.value, chain=True))
        assert not finder.find(shown.encode())
        assert "INSERT" not in shown
        assert await _put(store) == 1


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_it_works_beside_grpc_in_one_loop(database: Database, loop: str) -> None:
    async def whole() -> None:
        async with database.opened() as store:

            async def answer(request: bytes, context: object) -> bytes:
                async with store.write() as writer:
                    return str((await writer.put_route(route())).version).encode()

            server = grpc.aio.server()
            method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"m": method}),))
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/t/m")
                answers: list[bytes] = await asyncio.gather(*(call(b"") for _ in range(20)))
            await server.stop(None)
            assert sorted(int(one) for one in answers) == list(range(1, 21))

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(whole())


@pytest.mark.alone
async def test_a_store_at_work_does_not_hold_up_the_loop(database: Database) -> None:
    """CPU time that the loop spends in one go, on a hundred records; about 6 ms where the machine is quiet.

    That waiting for a database does not hold it up either shows in the tests of one that is locked.
    """
    async with database.opened() as store:
        async with store.write() as writer:
            for number in range(100):
                await writer.insert_provider(provider(f"p{number}"))
        turns = []
        done = asyncio.Event()

        async def beat() -> None:
            before = time.thread_time()
            while not done.is_set():
                await asyncio.sleep(0.001)
                turns.append(time.thread_time() - before)
                before = time.thread_time()

        async def look() -> None:
            async with store.read() as reader:
                assert len(await reader.providers(ACCOUNT, 100, 0)) == 100

        # Or the largest turn is the collector's, over everything that the tests have imported.
        gc.collect()
        gc.freeze()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(beat())
                for _ in range(5):
                    await asyncio.gather(look(), _put(store), look(), _put(store))
                done.set()
        finally:
            gc.unfreeze()
        assert max(turns) < 0.1
