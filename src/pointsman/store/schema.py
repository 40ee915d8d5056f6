"""Which revision a database has, and bringing it to the one that the code needs. The steps are in `migrations`."""

from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select, text

from pointsman.store import migrations
from pointsman.store.problems import StoreRefused
from pointsman.store.tables import metadata

_version = Table(migrations.VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))
_UPGRADE_LOCK = 0x706F696E74736D61
"""PostgreSQL's advisory lock; any number that others are unlikely to take."""


def revision_of(connection: Connection) -> str | None:
    """None for an empty database. Raises StoreRefused for one that is another program's, or newer than the code."""
    names = set(inspect(connection).get_table_names())
    if migrations.VERSION_TABLE not in names:
        foreign = sorted(names & set(metadata.tables)) if connection.dialect.name == "postgresql" else sorted(names)
        if foreign:
            raise StoreRefused(
                f"the database holds tables of another program ({', '.join(foreign[:3])}); "
                "set database_url to an empty database"
            )
        return None
    revisions = connection.execute(select(_version.c.version_num)).scalars().all()
    if not revisions:
        return None
    if len(revisions) > 1 or revisions[0] not in migrations.REVISIONS:
        raise StoreRefused(
            f"the database was last used by a newer Pointsman (schema {revisions[0]}; this one knows up to "
            f"{migrations.REVISIONS[-1]}); start that version, or restore a backup from before it"
        )
    return str(revisions[0])


def upgrade(connection: Connection) -> None:
    """Every step that is missing, in the transaction that the connection is in. Of several at once one does it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _UPGRADE_LOCK})
    if revision_of(connection) == migrations.REVISIONS[-1]:
        return
    # 0.2 s to import, and needed once in the life of most databases.
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(Path(migrations.__file__).parent))

    def steps(current: Any, _: MigrationContext) -> Any:
        return script._upgrade_revs("head", current)

    context = MigrationContext.configure(
        connection,
        opts={"fn": steps, "version_table": migrations.VERSION_TABLE, "transactional_ddl": True},
    )
    context.run_migrations(op=Operations(context))
