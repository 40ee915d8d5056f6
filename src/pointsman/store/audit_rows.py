"""The audit record's statements. What an entry is, and how each depends on the one before: `core.audit`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Executable, Row, insert, select, type_coerce, update
from sqlalchemy.types import NullType

from pointsman.core.audit import AuditEntry, AuditHead, AuditQuery
from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.tables import audit, audit_head

HEAD = select(*(type_coerce(column, NullType()).label(column.name) for column in audit_head.c if column.name != "id"))
LOCKED_HEAD = HEAD.with_for_update()
"""Whoever appends waits here for the one before; SQLite has one writer anyway."""
_ROWS_AT_ONCE = 500
_TYPES: dict[str, type] = {"sequence": int, "at": float, "previous": bytes, "digest": bytes}
# As the driver gives them: a row that somebody altered may hold anything, and has to be told, not stumbled over.
_columns = tuple(type_coerce(audit.c[field.name], NullType()).label(field.name) for field in fields(AuditEntry))


def selected(query: AuditQuery) -> Executable:
    """The rows of a query, in the order of their sequence or against it."""
    rows = select(*_columns).where(audit.c.sequence > query.after)
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
    """A row as an entry. What is of another type than was written becomes a value that no digest fits."""
    values = dict(row._mapping)
    for name, value in values.items():
        wanted = _TYPES.get(name, str)
        if not isinstance(value, wanted):
            values[name] = wanted()
    return AuditEntry(**values)


def broken_head() -> StoreUnavailable:
    """Why nothing can be added."""
    return StoreUnavailable(
        "the head of the audit record was altered, so no change can be noted and none is made; look with 'pointsman "
        "audit verify', then restore the database from a backup"
    )


def head_of(row: Row[Any] | None) -> AuditHead:
    """The row of the newest entry. Raises StoreUnavailable: nothing is changed that could not be noted."""
    if row is None or not (isinstance(row.sequence, int) and isinstance(row.digest, bytes)):
        raise broken_head()
    return AuditHead(row.sequence, row.digest)


def inserted(entries: Sequence[AuditEntry]) -> Iterator[Executable]:
    """Adds rows, some with each statement: it may have so many values and no more."""
    for start in range(0, len(entries), _ROWS_AT_ONCE):
        yield insert(audit).values([asdict(entry) for entry in entries[start : start + _ROWS_AT_ONCE]])


def moved(head: AuditHead) -> Executable:
    """Notes the newest entry."""
    return update(audit_head).values(sequence=head.sequence, digest=head.digest)
