"""Rows of usage, and models, from before what is told of them now: they keep what was reported, and tell no more."""

import sqlite3
from contextlib import closing

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from pointsman.core.ai_model import AiModel
from pointsman.core.usage_row import UsageRow
from pointsman.store import migrations
from pointsman.store.engines import make_engines
from pointsman.store.settings import read_url
from pointsman.store.sqlite_file import APPLICATION_ID
from tests.support.databases import Database

_OLD = "account, request_id, at, route, provider, model, status, prompt_tokens, completion_tokens, attempts, latency_ms"
_MODEL = AiModel("m" * 32, "default", "A", "a", "direct", None, "https://a.example/v1", "a:7b", 9.0)


def _upgrade(connection: Connection, revision: str) -> None:
    script = ScriptDirectory(str(next(iter(migrations.__path__))))
    context = MigrationContext.configure(
        connection,
        opts={"fn": lambda known, _: script._upgrade_revs(revision, known), "version_table": migrations.VERSION_TABLE},
    )
    with Operations.context(context) as op:
        context.run_migrations(op=op)


async def leave_at(database: Database, revision: str, *statements: str) -> None:
    """As that revision left it, with what statements put into it."""
    if database.server is None:
        database.file.parent.mkdir(parents=True)
    engines = make_engines(read_url(database.settings.database_url), database.settings.busy_seconds)
    async with engines.writer.begin() as connection:
        await connection.run_sync(_upgrade, revision)
        for statement in statements:
            await connection.execute(text(statement))
    await engines.close()
    if database.server is None:
        with closing(sqlite3.connect(database.file)) as file:
            file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            assert file.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)


async def test_rows_from_before_prices_stay_as_they_were(database: Database) -> None:
    values = [
        f"'default', 'r-{number}', {number}, 'fast', 'groq', 'm', 200, {tokens}, 1, 2.5, 'ada'"
        for number, tokens in enumerate(("7, NULL", "NULL, NULL"))
    ]
    await leave_at(database, "0004", *(f"INSERT INTO usage ({_OLD}, key_name) VALUES ({each})" for each in values))
    async with database.opened() as store, store.read() as reader:
        silent, told = await reader.usage("default", 0, 9)
    before = UsageRow("default", "r-0", 0.0, "fast", "groq", "m", 200, 7, None, 1, 2.5, "ada")
    assert told == before._replace(usage_source="reported")
    assert silent == before._replace(request_id="r-1", at=1.0, prompt_tokens=None)


async def test_rows_and_models_of_0010_keep_all_that_they_told(database: Database) -> None:
    row = UsageRow("default", "r-0", 1.0, "fast", "groq", "m", 200, 7, 8, 2, 2.5, "ada", "POST", "/v1/a", "d", 1, 2)
    row = row._replace(usage_source="reported", cost=5, price_version=3, reason="", policy_hits=1, saved_tokens=4)
    known = UsageRow._fields.index("key_user")
    names, values = UsageRow._fields[:known], row[:known]
    model = {name: getattr(_MODEL, name) for name in AiModel.__slots__ if name != "context"}
    await leave_at(
        database,
        "0010",
        f"INSERT INTO usage ({', '.join(names)}) VALUES {values}",
        f"INSERT INTO ai_models ({', '.join(model)}) VALUES {tuple(model.values())}".replace("None", "NULL"),
    )
    async with database.opened() as store, store.read() as reader:
        assert list(await reader.usage("default", 0, 9)) == [row]
        assert list(await reader.ai_models("default")) == [_MODEL]
