"""Rows of usage, and models, from before what is told of them now: they keep what was reported, and tell no more."""

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from pointsman.core.ai_model import AiModel
from pointsman.core.usage_row import UsageRow
from pointsman.store import migrations
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import SqlStore, open_store
from pointsman.store.sqlite_file import APPLICATION_ID

_OLD = "account, request_id, at, route, provider, model, status, prompt_tokens, completion_tokens, attempts, latency_ms"
_MODEL = AiModel("m" * 32, "default", "A", "a", "direct", None, "https://a.example/v1", "a:7b", 9.0)


def database_at(path: Path, revision: str, *statements: str) -> None:
    """A file as that revision left it, with what statements put into it."""
    engine = create_engine(f"sqlite:///{path}")
    script = ScriptDirectory(str(next(iter(migrations.__path__))))
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "fn": lambda known, _: script._upgrade_revs(revision, known),
                "version_table": migrations.VERSION_TABLE,
            },
        )
        with Operations.context(context) as op:
            context.run_migrations(op=op)
    engine.dispose()
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)


async def opened(path: Path) -> SqlStore:
    return await open_store(StoreSettings(file_url(path), path.with_name("key")))


async def test_rows_from_before_prices_stay_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.db"
    values = [
        f"'default', 'r-{number}', {number}, 'fast', 'groq', 'm', 200, {tokens}, 1, 2.5, 'ada'"
        for number, tokens in enumerate(("7, NULL", "NULL, NULL"))
    ]
    database_at(path, "0004", *(f"INSERT INTO usage ({_OLD}, key_name) VALUES ({each})" for each in values))
    store = await opened(path)
    try:
        async with store.read() as reader:
            silent, told = await reader.usage("default", 0, 9)
    finally:
        await store.close()
    before = UsageRow("default", "r-0", 0.0, "fast", "groq", "m", 200, 7, None, 1, 2.5, "ada")
    assert told == before._replace(usage_source="reported")
    assert silent == before._replace(request_id="r-1", at=1.0, prompt_tokens=None)


async def test_rows_and_models_of_0010_keep_all_that_they_told(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.db"
    row = UsageRow("default", "r-0", 1.0, "fast", "groq", "m", 200, 7, 8, 2, 2.5, "ada", "POST", "/v1/a", "d", 1, 2)
    row = row._replace(usage_source="reported", cost=5, price_version=3, reason="", policy_hits=1, saved_tokens=4)
    known = UsageRow._fields.index("key_user")
    names, values = UsageRow._fields[:known], row[:known]
    model = {name: getattr(_MODEL, name) for name in AiModel.__slots__ if name != "context"}
    database_at(
        path,
        "0010",
        f"INSERT INTO usage ({', '.join(names)}) VALUES {values}",
        f"INSERT INTO ai_models ({', '.join(model)}) VALUES {tuple(model.values())}".replace("None", "NULL"),
    )
    store = await opened(path)
    try:
        async with store.read() as reader:
            assert list(await reader.usage("default", 0, 9)) == [row]
            assert list(await reader.ai_models("default")) == [_MODEL]
    finally:
        await store.close()
