"""Where the store is, and how patient it is. Reads a database's URL; what it holds is a secret."""

from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from pointsman.store.problems import StoreRefused

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
_TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_PARAMETERS = {"sqlite": (), "postgresql": ("host", "port", "sslmode", "sslrootcert")}
_EXAMPLES = "sqlite:////var/lib/pointsman/pointsman.db or postgresql://USER:PASSWORD@HOST/DATABASE"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What `open_store` needs to know."""

    database_url: str = field(repr=False)
    """`sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/DATABASE`. It may hold a password: never shown."""
    key_file: Path
    """What credentials are encrypted with. Made with a new database, never for one that has records."""
    busy_seconds: float = 5.0
    """How long to wait for another writer, and for a connection."""
    freshness_seconds: float = 0.05
    """How old the generation may be where other processes wrote."""


def file_url(path: Path) -> str:
    """The URL of an SQLite database in a file."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def read_url(text: str) -> URL:
    """A database's URL with the driver that is used for it. Raises StoreRefused, without the URL in its text."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in _DRIVERS:
        raise StoreRefused(f"the database URL is not one that is understood; write database_url as {_EXAMPLES}")
    url = url.set(drivername=_DRIVERS[url.drivername])
    if not url.database or url.database == ":memory:":
        raise StoreRefused(f"the database URL names no database; write database_url as {_EXAMPLES}")
    known = _PARAMETERS[url.get_backend_name()]
    if any(name not in known or not isinstance(value, str) for name, value in url.query.items()):
        raise StoreRefused(
            f"the database URL has a parameter that is not known; after '?' may come: {', '.join(known) or 'nothing'}"
        )
    if url.query.get("sslmode", "prefer") not in _TLS_MODES:
        raise StoreRefused(f"the database URL has an unknown sslmode; use one of: {', '.join(_TLS_MODES)}")
    return url
