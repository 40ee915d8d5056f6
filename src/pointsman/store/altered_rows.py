"""Rows of a chain as a database gives them: one that somebody altered may hold anything, and has to be told."""

from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import Row

_Record = TypeVar("_Record")


def record_of(kind: type[_Record], row: Row[Any]) -> _Record:
    """A row as the frozen record that it was written from. What is of another type now becomes that type's empty
    value, which no digest fits."""
    values = row._mapping
    return kind(**{each.name: _fitting(values[each.name], each.type) for each in fields(kind)})  # type: ignore[arg-type]  # a dataclass


def _fitting(value: Any, wanted: Any) -> Any:
    return value if isinstance(value, wanted) else wanted()
