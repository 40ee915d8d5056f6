"""A process that is killed while it writes: what it acknowledged is there, nothing is half there, and others go on.

A kill is not a power cut: the kernel still has what was written. For that, what was written last is cut off.
"""

import contextlib
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.store.settings import StoreSettings, file_url
from tests.conformance.records import ACCOUNT, provider, route
from tests.conformance.writer import WriterProcess
from tests.support.databases import Database


def _killed_writer(database: Database, numbers: random.Random) -> list[tuple[int, int]]:
    """What a writer said until it was killed, somewhere in its work."""
    writer = WriterProcess(database.settings)
    said = [writer.next() for _ in range(numbers.randrange(1, 6))]
    # Somewhere within the writes after that, which take some milliseconds each.
    writer.wait(numbers.random() * 0.01)
    return said + writer.kill()


async def _whole(database: Database) -> int:
    """The generation of a database that holds no half of a write."""
    async with database.opened() as store, store.read() as reader:
        generation = await reader.generation()
        names = {one.name for one in await reader.providers(ACCOUNT, 100_000, 0)}
        assert names == {f"p{n}" for n in range(1, generation + 1)}
        routes = await reader.routes(ACCOUNT)
        assert [(one.version, one.provider_name) for one in routes] == [(generation, f"p{generation}")] * bool(
            generation
        )
        assert await store.generation() == generation
        return generation


async def _check(database: Database, said: list[tuple[int, int]], before: int) -> int:
    """All that was acknowledged is there, and at most the one write more that was under way. The generation."""
    assert said == [(n, n) for n in range(before + 1, before + 1 + len(said))]
    generation = await _whole(database)
    assert before + len(said) <= generation <= before + len(said) + 1
    return generation


@pytest.mark.timeout(240)
async def test_fifty_writers_on_sqlite_are_killed_and_nothing_is_lost(sqlite: Database) -> None:
    numbers = random.Random(50)
    generation = 0
    for _ in range(50):
        said = _killed_writer(sqlite, numbers)
        with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        generation = await _check(sqlite, said, generation)


@pytest.mark.timeout(120)
async def test_writers_on_postgresql_are_killed_and_nothing_is_lost(postgresql: Database) -> None:
    numbers = random.Random(5)
    generation = 0
    for _ in range(5):
        said = _killed_writer(postgresql, numbers)
        await _last_session_ended(postgresql)
        generation = await _check(postgresql, said, generation)


async def _last_session_ended(database: Database) -> None:
    """The server notices in its own time that a writer is gone; until then its last commit may be under way."""
    assert database.server is not None
    other = await database.server.connect(database.name)
    async with other.transaction():
        # Waits for whoever still has a transaction open.
        await other.execute("LOCK TABLE generation, routes, providers IN ACCESS EXCLUSIVE MODE")
    await other.close()


async def test_a_writer_killed_while_it_makes_the_database_leaves_one_that_opens(sqlite: Database) -> None:
    numbers = random.Random(7)
    directory = sqlite.file.parent
    for _ in range(10):
        writer = WriterProcess(sqlite.settings)
        while not (directory.exists() and any(directory.iterdir())):
            writer.wait(0.0005)
        writer.wait(numbers.random() * 0.1)
        said = writer.kill()
        await _check(sqlite, said, 0)
        shutil.rmtree(directory)


async def test_a_power_cut_takes_whole_writes_only(sqlite: Database, tmp_path: Path) -> None:
    """Of what is written ahead, any tail may never have reached the disk, or be rubbish there."""
    ends = {}
    async with sqlite.opened() as store:
        for number in range(1, 6):
            async with store.write() as writer:
                await writer.insert_provider(provider(f"p{number}"))
                await writer.put_route(replace(route(), provider_name=f"p{number}"))
            ends[Path(f"{sqlite.file}-wal").stat().st_size] = number
        data, ahead = sqlite.file.read_bytes(), Path(f"{sqlite.file}-wal").read_bytes()
    first = min(ends)
    key_file = sqlite.settings.key_file
    cuts = {end + change for end in ends for change in (-1, 0, 1)} | set(range(first, len(ahead), 4099))
    for cut in sorted(cuts & set(range(first, len(ahead) + 1))):
        for rubbish in {b"", b"\xa5" * (len(ahead) - cut)}:
            copy = tmp_path / f"{cut}-{len(rubbish)}" / "pointsman.db"
            copy.parent.mkdir()
            copy.write_bytes(data)
            Path(f"{copy}-wal").write_bytes(ahead[:cut] + rubbish)
            lost = Database(StoreSettings(file_url(copy), key_file))
            assert await _whole(lost) == max(number for end, number in ends.items() if end <= cut)
