"""Moments in queries, as every path reads them: RFC 3339, with a time zone."""

from datetime import datetime
from typing import Any

from pydantic import Field

from pointsman.core.control_errors import InvalidRequest

_LONGEST = 40


def moment_field(meaning: str) -> Any:
    """A query's field in the document, which says less than is taken."""
    description = f"{meaning} RFC 3339, with a time zone: 2026-11-30T00:00:00Z."
    return Field(max_length=_LONGEST, description=description, json_schema_extra={"format": "date-time"})


def read_moment(text: str | None) -> float | None:
    """Seconds since the epoch; None for what was left out. Raises InvalidRequest."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(f"the moment {text[:_LONGEST]!r} cannot be read; write it as 2026-11-30T00:00:00Z")
