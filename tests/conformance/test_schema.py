"""Migrations make the tables that the code uses; what they do not know is refused."""

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from pointsman.store import migrations
from pointsman.store.problems import StoreRefused
from pointsman.store.tables import metadata
from tests.conformance.old_schema import leave_as
from tests.conformance.records import ACCOUNT, provider
from tests.support.databases import Database


def _drift(connection: Connection) -> Any:
    context = MigrationContext.configure(
        connection,
        opts={
            "compare_type": True,
            "compare_server_default": True,
            "include_name": lambda name, kind, parents: name != migrations.VERSION_TABLE,
        },
    )
    return compare_metadata(context, metadata)


async def test_migrations_make_the_tables_of_the_code(database: Database) -> None:
    async with database.opened() as store, store.read() as reader:
        assert await reader._connection.run_sync(_drift) == []


async def test_every_constraint_has_the_name_that_the_code_gives_it(postgresql: Database) -> None:
    """On SQLite a name is text only; PostgreSQL tells them."""
    names = {constraint.name for table in metadata.tables.values() for constraint in table.constraints}
    async with postgresql.opened() as store, store.read() as reader:
        found = await reader._connection.exec_driver_sql(
            "SELECT conname FROM pg_constraint JOIN pg_namespace n ON n.oid = connamespace WHERE nspname = 'public'"
        )
        assert {row[0] for row in found} - {f"{migrations.VERSION_TABLE}_pkc"} == names


def test_the_known_revisions_are_those_that_there_are() -> None:
    script = ScriptDirectory(str(next(iter(migrations.__path__))))
    assert [one.revision for one in reversed(list(script.walk_revisions()))] == list(migrations.REVISIONS)


@pytest.mark.parametrize("revision", migrations.REVISIONS)
async def test_a_database_of_any_version_gets_what_came_since(database: Database, revision: str) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        await writer._connection.run_sync(leave_as, revision)
    async with database.opened() as store, store.read() as reader:
        assert await reader._connection.run_sync(_drift) == []
        assert await reader.provider(ACCOUNT, provider().name) == provider()


async def test_a_schema_newer_than_the_code_is_refused_and_stays(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer._connection.exec_driver_sql(f"UPDATE {migrations.VERSION_TABLE} SET version_num = '9999'")
    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"last used by a newer Pointsman.*9999.*start that version"):
            async with database.opened():
                pass


async def test_a_postgresql_database_of_another_program_is_refused(postgresql: Database) -> None:
    assert postgresql.server is not None
    await postgresql.server.execute("CREATE TABLE providers (name TEXT)", postgresql.name)
    with pytest.raises(StoreRefused, match=r"another program \(providers\)"):
        async with postgresql.opened():
            pass
    assert not postgresql.settings.key_file.exists()


async def test_a_postgresql_database_may_be_shared_with_tables_of_other_names(postgresql: Database) -> None:
    assert postgresql.server is not None
    await postgresql.server.execute("CREATE TABLE alembic_version (version_num TEXT)", postgresql.name)
    async with postgresql.opened():
        pass
