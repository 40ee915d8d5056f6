"""A database that another process holds, or that has no room: a wait, a clear error, and afterwards all is well."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.control_errors import StoreFull, StoreUnavailable
from pointsman.core.provider import Provider
from pointsman.core.secret import Secret
from pointsman.store.sql import SqlStore
from tests.conformance.records import ACCOUNT, provider, route
from tests.support.databases import Database

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = " + sys.argv[3])
connection.execute("BEGIN " + sys.argv[2])
connection.execute("UPDATE generation SET value = value")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


class _Holder:
    """Another process with a transaction open."""

    def __init__(self, path: Path, kind: str, locking: str = "NORMAL") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(path), kind, locking],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def let_go(self) -> None:
        self._process.communicate("\n")


async def _put(store: SqlStore) -> int:
    async with store.write() as writer:
        return (await writer.put_route(route())).version


@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
async def test_a_writer_waits_for_another_process_then_says_so_then_works(sqlite: Database, kind: str) -> None:
    async with sqlite.patient(0.3).opened() as store:
        assert await _put(store) == 1
        holder = _Holder(sqlite.file, kind)
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another process holds the database; try again"):
            await _put(store)
        assert time.monotonic() - begun >= 0.3
        # Readers are served meanwhile: that is what writing ahead is for.
        async with store.read() as reader:
            assert len(await reader.routes(ACCOUNT)) == 1
        assert await store.generation() == 1
        holder.let_go()
        assert await _put(store) == 2


async def test_a_writer_that_waits_gets_its_turn_when_the_other_lets_go(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await _put(store)
        holder = _Holder(sqlite.file, "IMMEDIATE")
        waiting = asyncio.get_running_loop().create_task(_put(store))
        assert not (await asyncio.wait([waiting], timeout=0.2))[0]
        await asyncio.to_thread(holder.let_go)
        assert await waiting == 2


async def test_many_that_wait_are_all_told_within_twice_the_time_and_none_of_them_wrote(sqlite: Database) -> None:
    async with sqlite.patient(0.5).opened() as store:
        await _put(store)
        holder = _Holder(sqlite.file, "IMMEDIATE")
        async with asyncio.timeout(20):
            told = await asyncio.gather(*(_put(store) for _ in range(100)), return_exceptions=True)
        assert {type(one) for one in told} == {StoreUnavailable}
        holder.let_go()
        assert await _put(store) == 2


async def test_a_database_locked_to_one_process_is_told_when_it_is_opened(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await _put(store)
    holder = _Holder(sqlite.file, "EXCLUSIVE", "EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match="another process holds the database"):
        async with sqlite.patient(0.2).opened():
            pass
    holder.let_go()
    async with sqlite.opened() as store:
        assert await _put(store) == 2


async def test_on_postgresql_too_a_writer_waits_then_says_so_then_works(postgresql: Database) -> None:
    assert postgresql.server is not None
    async with postgresql.patient(0.3).opened() as store:
        assert await _put(store) == 1
        other = await postgresql.server.connect(postgresql.name)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("UPDATE generation SET value = value")
        with pytest.raises(StoreUnavailable, match="another process holds the database"):
            await _put(store)
        async with store.read() as reader:
            assert len(await reader.routes(ACCOUNT)) == 1
        await transaction.rollback()
        await other.close()
        assert await _put(store) == 2


@contextlib.contextmanager
def _small_disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "pointsman-test", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or mounted.returncode:
        pytest.skip(f"only root can mount a small disk: {mounted.stderr}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


async def _fill_up(store: SqlStore) -> int:
    """Providers, large ones and then smaller ones, until there is no room for either; how many there were room for."""
    number = 0
    for keys in (4, 1):
        refusals = 0  # after the first one, the log of changes may still give some room back
        while number < 1000 and refusals < 3:
            try:
                async with store.write() as writer:
                    await writer.insert_provider(_large(f"p{number}", keys))
            except StoreFull:
                refusals += 1
                continue
            number, refusals = number + 1, 0
    assert number < 1000, "the disk is never full"
    return number


def _large(name: str, keys: int) -> Provider:
    return replace(
        provider(name), credentials={f"K{n}": Secret("k" * 8192) for n in range(keys)}, config={"c": "c" * 8192}
    )


async def test_a_full_disk_is_told_changes_nothing_and_mends_itself(sqlite: Database, tmp_path: Path) -> None:
    with _small_disk(tmp_path / "data"):
        async with sqlite.opened() as store:
            ballast = tmp_path / "data" / "ballast"
            ballast.write_bytes(bytes(400 << 10))
            acknowledged = await _fill_up(store)
            assert acknowledged > 0
            generation = await store.generation()
            for _ in range(3):
                with pytest.raises(StoreFull, match="nothing was changed; make room, then try again"):
                    async with store.write() as writer:
                        await writer.insert_provider(_large("more", 1))
            async with store.read() as reader:
                assert await reader.count_providers(ACCOUNT) == acknowledged
                assert await reader.generation() == generation
                assert len(await reader.providers(ACCOUNT, 1000, 0)) == acknowledged
            ballast.unlink()
            async with store.write() as writer:
                await writer.insert_provider(provider("more"))
            assert await store.generation() == generation + 1
        async with sqlite.opened() as store, store.read() as reader:
            assert await reader.count_providers(ACCOUNT) == acknowledged + 1
        with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_disk_that_is_full_from_the_start_is_told(sqlite: Database, tmp_path: Path) -> None:
    with _small_disk(tmp_path / "data"):
        ballast = tmp_path / "data" / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            file.write(bytes(2 << 20))
        with pytest.raises(StoreFull, match="full"):
            async with sqlite.opened():
                pass
        assert [path.name for path in (tmp_path / "data").iterdir()] == ["ballast"]
        ballast.unlink()
        async with sqlite.opened() as store:
            assert await _put(store) == 1


async def test_a_database_at_its_largest_is_told_and_changes_nothing(sqlite: Database) -> None:
    """As a full disk, for those who cannot mount one: SQLite's own limit."""
    async with sqlite.opened() as store:
        async with store.write() as writer:
            pages = (await writer._connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
            await writer._connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFull, match="nothing was changed; make room, then try again"):
            await _insert_large(store)
        async with store.write() as writer:
            assert await writer.count_providers(ACCOUNT) == 0
            await writer._connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        await _insert_large(store)


async def _insert_large(store: SqlStore) -> None:
    async with store.write() as writer:
        await writer.insert_provider(replace(provider(), config={"c": "c" * 100_000}))
