"""The audit record's statements. What an entry is, and how each depends on the one before: `core.audit`."""

from dataclasses import astuple, fields
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Executable, Insert, Row, Update, insert, select, type_coerce, update
from sqlalchemy.types import NullType

from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.altered_rows import record_of
from pointsman.store.tables import audit, audit_head

HEAD = select(*(type_coerce(column, NullType()).label(column.name) for column in audit_head.c if column.name != "id"))
LOCKED_HEAD = HEAD.with_for_update()
"""Whoever appends waits here for the one before; SQLite has one writer anyway."""
# Columns as the driver gives them: what SQLAlchemy makes of a value fails where somebody altered its type.
_names = tuple(field.name for field in fields(AuditEntry))
_columns = tuple(type_coerce(audit.c[name], NullType()).label(name) for name in _names)


def selected(query: AuditQuery) -> Executable:
    """The rows of a query, in the order of their sequence or against it."""
    rows = select(*_columns)
    if not query.newest_first:
        rows = rows.where(audit.c.sequence > query.after)
    elif query.after:
        rows = rows.where(audit.c.sequence < query.after)
    for name in ("account", "actor", "subject"):
        if wanted := getattr(query, name):
            rows = rows.where(audit.c[name] == wanted)
    if query.action:
        # A range, so that no character of an action means something: "/" is what comes behind ".".
        part = (audit.c.action >= f"{query.action}.") & (audit.c.action < f"{query.action}/")
        rows = rows.where((audit.c.action == query.action) | part)
    if query.since:
        rows = rows.where(audit.c.at >= query.since)
    order = audit.c.sequence.desc() if query.newest_first else audit.c.sequence
    return rows.order_by(order).limit(query.limit)


def entry_of(row: Row[Any]) -> AuditEntry:
    """A row as an entry."""
    return record_of(AuditEntry, row)


def broken_head() -> StoreUnavailable:
    """Why nothing can be added."""
    return StoreUnavailable(
        "the head of the audit record was altered, so no change can be noted and none is made; look with 'pointsman "
        "audit verify', then restore the database from a backup"
    )


def head_of(row: Row[Any] | None) -> ChainHead:
    """The row of the newest entry. Raises StoreUnavailable: nothing is changed that could not be noted."""
    if row is None or not (isinstance(row.sequence, int) and isinstance(row.digest, bytes)):
        raise broken_head()
    return ChainHead(row.sequence, row.digest)


@lru_cache(maxsize=8)
def insert_sql(dialect: Dialect) -> str:
    """SQL for the driver itself, with `values_of` an entry: what SQLAlchemy does for each statement takes 0.4 ms."""
    return _for_driver(insert(audit).inline(), dialect, _names)


@lru_cache(maxsize=8)
def head_sql(dialect: Dialect) -> str:
    """The same with a head's fields: it is the newest from now on."""
    return _for_driver(update(audit_head), dialect, tuple(field.name for field in fields(ChainHead)))


def values_of(entry: AuditEntry) -> tuple[Any, ...]:
    """An entry as a row."""
    return astuple(entry)


def _for_driver(statement: Insert | Update, dialect: Dialect, names: tuple[str, ...]) -> str:
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    order = getattr(compiled, "positiontup", None)
    if order is None or tuple(order) != names:
        raise AssertionError(f"a statement of the audit record has its values in another order: {order}")
    return str(compiled)
