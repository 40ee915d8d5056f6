"""Transactions are whole or not at all, come one after the other, and are seen by others."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool

from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.sql import SqlStore, open_store
from tests.conformance.records import ACCOUNT, provider, route
from tests.conformance.writer import WriterProcess
from tests.support.databases import Database


class _Undo(Exception):
    pass


async def test_a_block_that_raises_changes_nothing(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()

        async def half() -> None:
            async with store.write() as writer:
                await writer.insert_provider(provider())
                await writer.put_route(route())
                raise _Undo

        with pytest.raises(_Undo):
            await half()
        async with store.read() as reader:
            assert await reader.count_providers(ACCOUNT) == 0
            assert not await reader.routes(ACCOUNT)
            assert await reader.generation() == before
        async with store.write() as writer:
            assert (await writer.put_route(route())).version == 1


async def test_a_cancelled_writer_changes_nothing_and_the_next_one_comes(database: Database) -> None:
    async with database.opened() as store:
        inside = asyncio.Event()

        async def hang() -> None:
            async with store.write() as writer:
                await writer.insert_provider(provider())
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(hang())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.write() as writer:
            assert await writer.count_providers(ACCOUNT) == 0
            await writer.insert_provider(provider())


async def test_a_writer_cancelled_at_any_moment_leaves_all_or_nothing(database: Database) -> None:
    async with database.opened() as store:

        async def change(number: int) -> None:
            async with store.write() as writer:
                await writer.insert_provider(provider(f"p{number}"))
                await writer.put_route(route(f"r{number}"))

        for turns in range(60):
            task = asyncio.get_running_loop().create_task(change(turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            for _ in range(turns % 4):
                await asyncio.sleep(0)
                # Again, while the first is being seen to.
                task.cancel()
            await asyncio.wait([task])
        async with store.write() as writer:
            providers = [one.name[1:] for one in await writer.providers(ACCOUNT, 100, 0)]
            assert providers == [one.name[1:] for one in await writer.routes(ACCOUNT)]
            generation = await writer.generation()
        assert await store.generation() == generation
        engines = store._engines
        assert [one.pool.status() for one in (engines.readers, engines.writer) if _in_use(one)] == []


def _in_use(engine: AsyncEngine) -> int:
    assert isinstance(engine.pool, QueuePool)
    return engine.pool.checkedout()


async def test_views_that_are_held_do_not_keep_their_holders_from_writing(database: Database) -> None:
    async with database.opened() as store:

        async def look_and_write(number: int) -> None:
            async with store.read() as reader:
                assert await reader.account(ACCOUNT)
                async with store.write() as writer:
                    await writer.put_route(route(f"r{number}"))

        await asyncio.gather(*(look_and_write(number) for number in range(30)))


async def test_a_view_is_of_one_moment(database: Database) -> None:
    async with database.opened() as store, store.read() as reader:
        before = await reader.generation()
        async with store.write() as writer:
            await writer.insert_provider(provider())
        assert await reader.count_providers(ACCOUNT) == 0
        assert await reader.generation() == before
        async with store.read() as later:
            assert await later.count_providers(ACCOUNT) == 1


async def test_a_reader_is_not_kept_waiting_by_a_writer(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        async with store.read() as reader:
            assert await reader.count_providers(ACCOUNT) == 0


async def test_the_generation_grows_with_every_write_and_stays_for_views(database: Database) -> None:
    async with database.opened() as store:
        seen = [await store.generation()]
        for number in range(5):
            async with store.write() as writer:
                await writer.put_route(route(f"r{number}"))
                assert await writer.generation() == seen[-1] + 1
            seen.append(await store.generation())
            async with store.read() as reader:
                assert await reader.generation() == seen[-1]
        assert seen == sorted(set(seen))


async def _put_many(store: SqlStore, count: int) -> list[int]:
    versions = []
    for _ in range(count):
        async with store.write() as writer:
            versions.append((await writer.put_route(route())).version)
    return versions


async def test_fifty_writers_at_once_get_versions_without_a_gap(database: Database) -> None:
    async with database.opened() as store, database.opened() as another:
        parts = await asyncio.gather(*(_put_many((store, another)[n % 2], 2) for n in range(50)))
        assert sorted(version for part in parts for version in part) == list(range(1, 101))
        async with store.read() as reader:
            assert await reader.route(ACCOUNT, "inference.local") == replace(route(), version=100)
            assert await reader.generation() == 100


async def test_what_a_writer_has_read_does_not_change_before_it_commits(database: Database) -> None:
    async def increment(store: SqlStore) -> None:
        for _ in range(10):
            async with store.write() as writer:
                found = await writer.provider(ACCOUNT, "openai-1")
                assert found is not None
                await writer.replace_provider(replace(found, config={"n": str(int(found.config["n"]) + 1)}))

    async with database.opened() as store, database.opened() as another:
        async with store.write() as writer:
            await writer.insert_provider(replace(provider(), config={"n": "0"}))
        await asyncio.gather(*(increment(one) for one in (store, another) for _ in range(4)))
        async with store.read() as reader:
            found = await reader.provider(ACCOUNT, "openai-1")
            assert found is not None
            assert found.config["n"] == "80"


async def test_more_readers_than_connections_are_all_served(database: Database) -> None:
    async with database.opened() as store:

        async def look() -> int:
            async with store.read() as reader:
                return await reader.count_providers(ACCOUNT)

        assert await asyncio.gather(*(look() for _ in range(100))) == [0] * 100


async def test_stores_that_open_a_new_database_at_once_agree(database: Database) -> None:
    stores = await asyncio.gather(*(open_store(database.settings) for _ in range(8)))
    try:
        assert len({store.derive(b"x") for store in stores}) == 1
        async with stores[0].write() as writer:
            await writer.insert_provider(provider())
        for store in stores:
            async with store.read() as reader:
                assert await reader.provider(ACCOUNT, "openai-1") == provider()
                assert await reader.generation() == 1
    finally:
        for store in stores:
            await store.close()


async def test_processes_that_start_on_a_new_database_at_once_agree(database: Database) -> None:
    writers = [WriterProcess(database.settings) for _ in range(4)]
    said = [writer.next() for writer in writers for _ in range(2)]
    said += [one for writer in writers for one in writer.kill()]
    assert len(set(said)) == len(said)
    async with database.opened() as store, store.read() as reader:
        names = {one.name for one in await reader.providers(ACCOUNT, 1000, 0)}
        assert names >= {f"p{generation}" for generation, _ in said}


async def test_a_closed_store_says_so_or_works(database: Database) -> None:
    """The pool may open a connection again; what matters is that nothing hangs and nothing else is raised."""
    store = await open_store(database.settings)
    await store.close()
    await store.close()
    try:
        async with store.read() as reader:
            await reader.generation()
    except StoreUnavailable:
        pass
    await store.close()
