"""Rows of usage from before prices: they keep what was reported, and cost nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from pointsman.core.usage_row import UsageRow
from pointsman.store import migrations
from pointsman.store.settings import StoreSettings, file_url
from pointsman.store.sql import open_store
from pointsman.store.sqlite_file import APPLICATION_ID

_OLD = "account, request_id, at, route, provider, model, status, prompt_tokens, completion_tokens, attempts, latency_ms"


async def test_rows_from_before_prices_stay_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.db"
    engine = create_engine(f"sqlite:///{path}")
    script = ScriptDirectory(str(next(iter(migrations.__path__))))
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "fn": lambda revision, _: script._upgrade_revs("0004", revision),
                "version_table": migrations.VERSION_TABLE,
            },
        )
        with Operations.context(context) as op:
            context.run_migrations(op=op)
    engine.dispose()
    with closing(sqlite3.connect(path)) as database:
        for number, tokens in enumerate(("7, NULL", "NULL, NULL")):
            values = f"'default', 'r-{number}', {number}, 'fast', 'groq', 'm', 200, {tokens}, 1, 2.5, 'ada'"
            database.execute(f"INSERT INTO usage ({_OLD}, key_name) VALUES ({values})")
        database.commit()
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        assert database.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    store = await open_store(StoreSettings(file_url(path), tmp_path / "key"))
    try:
        async with store.read() as reader:
            silent, told = await reader.usage("default", 0, 9)
    finally:
        await store.close()
    before = UsageRow("default", "r-0", 0.0, "fast", "groq", "m", 200, 7, None, 1, 2.5, "ada")
    assert told == before._replace(usage_source="reported")
    assert silent == before._replace(request_id="r-1", at=1.0, prompt_tokens=None)
