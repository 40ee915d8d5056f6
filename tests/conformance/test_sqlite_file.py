"""An SQLite database's file: for its owner only; refused, never replaced, when damaged or another program's."""

import contextlib
import os
import sqlite3
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.control_errors import ControlError, StoreUnavailable
from pointsman.store.problems import StoreRefused
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore
from tests.conformance.records import ACCOUNT, provider, route
from tests.support.databases import Database
from tests.support.processes import run_to_end


async def _fill(database: Database) -> bytes:
    async with database.opened() as store:
        for number in range(40):
            async with store.write() as writer:
                await writer.insert_provider(provider(f"p{number}"))
    assert not Path(f"{database.file}-wal").exists()
    return database.file.read_bytes()


async def _refused(database: Database, expected: str) -> None:
    before = database.file.read_bytes()
    with pytest.raises(StoreRefused, match=expected) as caught:
        async with database.opened():
            pass
    assert str(database.file) in caught.value.text
    assert database.file.read_bytes() == before


async def test_its_files_and_its_directory_are_for_the_owner_only(sqlite: Database) -> None:
    old = os.umask(0)
    try:
        async with sqlite.opened() as store:
            async with store.write() as writer:
                await writer.insert_provider(provider())
            names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sqlite.file.parent.iterdir()}
    finally:
        os.umask(old)
    assert names == dict.fromkeys(("credentials.key", "pointsman.db", "pointsman.db-shm", "pointsman.db-wal"), 0o600)
    assert stat.S_IMODE(sqlite.file.parent.stat().st_mode) == 0o700


async def test_a_file_that_others_may_read_is_closed_to_them(sqlite: Database) -> None:
    await _fill(sqlite)
    sqlite.file.chmod(0o644)
    async with sqlite.opened() as store:
        async with store.write() as writer:
            await writer.put_route(route())
        for path in sqlite.file.parent.glob("pointsman.db*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_it_writes_ahead_and_waits_for_the_disk(sqlite: Database) -> None:
    async with sqlite.opened() as store, store.write() as writer:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
            found = await writer._connection.exec_driver_sql(f"PRAGMA {pragma}")
            assert found.scalar() == value


@pytest.mark.parametrize("length", [0, 1, 99, 100, 4096, 5000])
async def test_a_file_that_was_cut_short_is_refused(sqlite: Database, length: int) -> None:
    whole = await _fill(sqlite)
    assert len(whole) > 5000
    sqlite.file.write_bytes(whole[:length])
    await _refused(sqlite, "damaged")


async def test_a_file_without_its_last_page_is_refused(sqlite: Database) -> None:
    whole = await _fill(sqlite)
    sqlite.file.write_bytes(whole[:-4096])
    await _refused(sqlite, "damaged")


async def test_a_file_with_rubbish_at_its_beginning_is_refused(sqlite: Database) -> None:
    whole = await _fill(sqlite)
    sqlite.file.write_bytes(b"\xa5" * 4096 + whole[4096:])
    await _refused(sqlite, "damaged or no database")


async def test_a_file_with_rubbish_in_any_page_is_refused(sqlite: Database) -> None:
    whole = await _fill(sqlite)
    for page in range(1, len(whole) // 4096):
        sqlite.file.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        await _refused(sqlite, "restore it from a backup")
    sqlite.file.write_bytes(whole)
    async with sqlite.opened() as store, store.read() as reader:
        assert await reader.count_providers(ACCOUNT) == 40


async def test_another_programs_database_is_refused(sqlite: Database) -> None:
    sqlite.file.parent.mkdir()
    with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
        connection.execute("CREATE TABLE providers (name TEXT)")
        connection.commit()
    await _refused(sqlite, "another program's database")


async def test_a_text_file_and_a_directory_are_refused(sqlite: Database, tmp_path: Path) -> None:
    sqlite.file.parent.mkdir()
    sqlite.file.write_text("providers:\n" * 100)
    await _refused(sqlite, "no database")
    settings = replace(sqlite.settings, database_url=file_url(tmp_path))
    with pytest.raises(ControlError, match="Is a directory"):
        async with replace(sqlite, settings=settings).opened():
            pass


async def test_a_place_where_nothing_can_be_made_is_a_clear_error(tmp_path: Path) -> None:
    settings = StoreSettings(file_url(Path("/proc/no/such/pointsman.db")), tmp_path / "key")
    with pytest.raises(StoreUnavailable, match=r"/proc/no/such/pointsman\.db cannot be used"):
        async with Database(settings).opened():
            pass
    assert not (tmp_path / "key").exists()


async def test_a_file_that_cannot_be_written_is_told(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        with pytest.raises(StoreUnavailable, match=r"cannot be written; check that the gateway's user owns it"):
            await _write_to_what_is_read_only(store)
        async with store.write() as writer:
            assert (await writer.put_route(route())).version == 1


async def _write_to_what_is_read_only(store: SqlStore) -> None:
    async with store.write() as writer:
        await writer._connection.exec_driver_sql("PRAGMA query_only = 1")
        try:
            await writer.put_route(route())
        finally:
            await writer._connection.exec_driver_sql("PRAGMA query_only = 0")


async def test_a_copy_made_by_sqlite_opens_with_the_same_key_file(sqlite: Database, tmp_path: Path) -> None:
    """The backup that the documentation tells of, taken while the gateway writes."""
    async with sqlite.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(provider())
        with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
            connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    copy = replace(sqlite.settings, database_url=file_url(tmp_path / "backup.db"))
    async with replace(sqlite, settings=copy).opened() as store:
        async with store.read() as reader:
            assert await reader.provider(ACCOUNT, "openai-1") == provider()
        async with store.write() as writer:
            assert (await writer.put_route(route())).version == 1


async def test_a_file_that_is_exchanged_under_it_takes_no_changes_and_gives_none(sqlite: Database) -> None:
    """As by somebody who restores a backup too early: what is written then would damage the backup."""
    aside = sqlite.file.with_name("aside")
    async with replace(sqlite, settings=replace(sqlite.settings, freshness_seconds=0.0)).opened() as store:
        async with store.write() as writer:
            await writer.put_route(route())
        sqlite.file.rename(aside)
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match=r"was moved, removed or replaced while the gateway ran; stop it"
            ):
                async with store.write() as writer:
                    await writer.put_route(route())
            with pytest.raises(StoreUnavailable, match="moved"):
                await store.generation()
            with pytest.raises(StoreUnavailable, match="moved"):
                store.read()
            sqlite.file.write_bytes(aside.read_bytes())
        aside.replace(sqlite.file)
        async with store.write() as writer:
            assert (await writer.put_route(route())).version == 2


async def test_a_change_that_was_committed_to_a_file_that_is_gone_is_not_acknowledged(sqlite: Database) -> None:
    async def change() -> None:
        async with store.write() as writer:
            await writer.put_route(route())
            sqlite.file.rename(sqlite.file.with_name("aside"))

    async with sqlite.opened() as store:
        with pytest.raises(StoreUnavailable, match="committed to the old file, so look whether it was made"):
            await change()


def test_a_pipe_in_the_databases_place_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    code = """
import sys
from pathlib import Path
from pointsman.store.problems import StoreRefused
from pointsman.store.sqlite_file import prepare_file
try:
    prepare_file(Path(sys.argv[1]), 1.0)
except StoreRefused as error:
    print(error)
"""
    done = run_to_end([sys.executable, "-c", code, str(tmp_path / "pipe")])  # in a process: nothing ends such a wait
    assert done.stdout == f"{tmp_path / 'pipe'} is not a file; set database_url to one\n"
