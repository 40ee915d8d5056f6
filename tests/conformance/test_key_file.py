"""The key file: made once, for its owner only, and never in the place of one that is missing."""

import asyncio
import base64
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.key_file import KEY_BYTES, load_key_file, make_key_file
from pointsman.store.problems import StoreRefused
from tests.conformance.records import ACCOUNT, provider
from tests.support import canary
from tests.support.databases import Database, PostgresServer


async def _fill(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())


async def _dump(database: Database) -> object:
    """What lies in the database, to see that it was not touched."""
    if database.server is None:
        return {path.name: path.read_bytes() for path in database.file.parent.glob("pointsman.db*")}
    connection = await database.server.connect(database.name)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        return {t[0]: [tuple(row) for row in await connection.fetch(f"SELECT * FROM {t[0]}")] for t in tables}
    finally:
        await connection.close()


async def _refused(database: Database, expected: str) -> None:
    before = await _dump(database)
    with pytest.raises(StoreRefused, match=expected) as caught:
        async with database.opened():
            pass
    assert str(database.settings.key_file) in caught.value.text
    assert await _dump(database) == before


async def test_a_new_database_gets_a_key_file_for_its_owner_only(database: Database) -> None:
    async with database.opened():
        pass
    status = database.settings.key_file.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert stat.S_IMODE(database.settings.key_file.parent.stat().st_mode) == 0o700
    assert len(load_key_file(database.settings.key_file)) == KEY_BYTES
    assert [path.name for path in database.settings.key_file.parent.glob("*.new")] == []


async def test_a_database_opens_with_its_key_file_moved_elsewhere(database: Database, tmp_path: Path) -> None:
    await _fill(database)
    moved = replace(database.settings, key_file=database.settings.key_file.rename(tmp_path / "my.key"))
    async with replace(database, settings=moved).opened() as store, store.read() as reader:
        assert await reader.provider(ACCOUNT, "openai-1") == provider()


async def test_without_its_key_file_a_database_is_refused_and_no_key_is_made(database: Database) -> None:
    await _fill(database)
    database.settings.key_file.unlink()
    await _refused(database, r"is missing.*restore it from a backup.*No new key was made")
    assert not database.settings.key_file.exists()


async def test_with_another_key_file_a_database_is_refused(database: Database) -> None:
    await _fill(database)
    right = database.settings.key_file.read_bytes()
    database.settings.key_file.unlink()
    make_key_file(database.settings.key_file)
    wrong = database.settings.key_file.read_bytes()
    await _refused(database, "is not the one that this database was encrypted with")
    assert database.settings.key_file.read_bytes() == wrong
    database.settings.key_file.write_bytes(right)
    async with database.opened() as store, store.read() as reader:
        assert await reader.provider(ACCOUNT, "openai-1") == provider()


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o601])
async def test_a_key_file_that_others_may_use_is_refused(sqlite: Database, mode: int) -> None:
    await _fill(sqlite)
    sqlite.settings.key_file.chmod(mode)
    await _refused(sqlite, f"next: chmod 600 {sqlite.settings.key_file}")
    sqlite.settings.key_file.chmod(0o400)
    async with sqlite.opened():
        pass


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        base64.b64encode(b"k" * (KEY_BYTES - 1)),
        base64.b64encode(b"k" * (KEY_BYTES + 1)),
        base64.b64encode(b"k" * KEY_BYTES)[:-4],
        b"k" * KEY_BYTES,
        b"\0" * 44,
        b"not a key " * 1000,
        base64.b64encode(b"k" * KEY_BYTES) + b"\n" + base64.b64encode(b"k" * KEY_BYTES),
    ],
)
async def test_what_is_no_key_is_refused_and_stays(sqlite: Database, text: bytes) -> None:
    await _fill(sqlite)
    sqlite.settings.key_file.write_bytes(text)
    await _refused(sqlite, "does not hold a key")
    assert sqlite.settings.key_file.read_bytes() == text


def test_a_key_of_exactly_its_length_is_read_with_or_without_a_line_end(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n"):
        (tmp_path / "key").write_bytes(base64.b64encode(b"k" * KEY_BYTES) + end)
        (tmp_path / "key").chmod(0o600)
        assert load_key_file(tmp_path / "key") == b"k" * KEY_BYTES


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(StoreRefused, match="is not a file"):
            load_key_file(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_another_user_is_refused(tmp_path: Path) -> None:
    make_key_file(tmp_path / "key")
    os.chown(tmp_path / "key", 65534, 65534)
    with pytest.raises(StoreRefused, match="belongs to another user"):
        load_key_file(tmp_path / "key")


def test_a_key_file_is_never_made_in_the_place_of_another(tmp_path: Path) -> None:
    key = make_key_file(tmp_path / "key")
    assert make_key_file(tmp_path / "key") == key
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(StoreRefused):
        make_key_file(tmp_path / "link")
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} == {"key", "link", "target"}


async def test_of_many_that_make_a_key_all_get_the_same(tmp_path: Path) -> None:
    keys = await asyncio.gather(*(asyncio.to_thread(make_key_file, tmp_path / "key") for _ in range(16)))
    assert set(keys) == {load_key_file(tmp_path / "key")}


async def test_a_key_file_that_cannot_be_made_is_a_clear_refusal(sqlite: Database) -> None:
    settings = replace(sqlite.settings, key_file=Path("/proc/no/such/place.key"))
    with pytest.raises(StoreRefused, match=r"/proc/no/such/place\.key cannot be made"):
        async with replace(sqlite, settings=settings).opened():
            pass


async def test_derived_secrets_differ_by_purpose_and_by_key_and_outlive_a_start(database: Database) -> None:
    async with database.opened() as store:
        first = store.derive(b"bundle revision")
        assert len(first) == 32
        assert first != store.derive(b"bundle revisions")
    async with database.opened() as again:
        assert again.derive(b"bundle revision") == first
    assert load_key_file(database.settings.key_file) != first


async def _files(server: PostgresServer, name: str) -> list[Path]:
    connection = await server.connect(name)
    try:
        number = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    finally:
        await connection.close()
    data = server.directory / "data"
    return [path for part in (f"base/{number}", "pg_wal") for path in (data / part).iterdir() if path.is_file()]


async def test_no_key_is_in_the_database_and_none_in_its_files(database: Database) -> None:
    finder = canary.Finder({"key": canary.KEY})
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(provider())
        async with store.write() as writer:
            await writer.replace_provider(provider(value=canary.KEY + "2"))
        if database.server is None:
            files = sorted(database.file.parent.glob("pointsman.db*"))
            assert [path.name for path in files] == ["pointsman.db", "pointsman.db-shm", "pointsman.db-wal"]
            found = [path.read_bytes() for path in files]
        else:
            found = [repr(await _dump(database)).encode(), "".join(database.server.log).encode()]
            await database.server.execute("CHECKPOINT")
            found += [path.read_bytes().rstrip(b"\0") for path in await _files(database.server, database.name)]
        assert any(b"OPENAI_API_KEY" in text for text in found)
        assert not any(finder.find(text) for text in found)


async def test_the_same_value_is_never_encrypted_to_the_same_bytes(database: Database) -> None:
    values = {}
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider("a"))
        await writer.insert_provider(provider("b"))
        connection = writer._connection
        rows = (await connection.exec_driver_sql("SELECT provider_id, key, value FROM provider_credentials")).all()
        values = {(one.provider_id, one.key): bytes(one.value) for one in rows}
    assert len(set(values.values())) == len(values) == 4


@pytest.mark.parametrize("other", ["key", "provider"])
async def test_a_credential_put_into_another_place_is_not_decrypted(database: Database, other: str) -> None:
    """Somebody who can write to the database cannot have one provider's key sent to another's endpoint."""
    move = {
        "key": "UPDATE provider_credentials SET key = 'OTHER_KEY' WHERE key = 'OPENAI_API_KEY'",
        "provider": "UPDATE provider_credentials SET value = (SELECT value FROM provider_credentials WHERE key = "
        f"'OPENAI_API_KEY' AND provider_id = '{provider('a').id}') WHERE key = 'OPENAI_API_KEY'",
    }[other]
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(provider("a"))
            await writer.insert_provider(provider("b"))
            await writer._connection.exec_driver_sql(move)
        async with store.read() as reader:
            with pytest.raises(StoreUnavailable, match="of provider b was altered and cannot be decrypted"):
                await reader.provider(ACCOUNT, "b")
        async with store.write() as writer:
            assert await writer.delete_provider(ACCOUNT, "b")
            await writer.insert_provider(provider("b"))
            assert await writer.provider(ACCOUNT, "b") == provider("b")


def test_a_link_that_leads_nowhere_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreRefused, match="is a link that leads nowhere"):
        make_key_file(tmp_path / "link")
    assert not (tmp_path / "nowhere").exists()
