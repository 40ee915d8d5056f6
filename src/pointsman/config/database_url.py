"""The address of the gateway's database: checked, made absolute, and shown without what may be a password. Pure."""

from pathlib import Path

from pointsman.core.secret import Secret

_NAMES = {"postgres": "postgresql", "postgresql+asyncpg": "postgresql", "sqlite+aiosqlite": "sqlite"}
"""What other programs call them; the drivers are those that are used anyway."""


def read_database_url(text: str, directory: Path) -> str:
    """`sqlite:////absolute/path` or the `postgresql://` URL as given; a relative file starts at `directory`.

    Raises ValueError with a reason that repeats nothing of the text.
    """
    scheme, separator, rest = text.partition("://")
    scheme = _NAMES.get(scheme.lower(), scheme.lower())
    if not separator or scheme not in ("sqlite", "postgresql"):
        raise ValueError("has no scheme that is known")
    if any(character.isspace() for character in rest):
        raise ValueError("holds a space")
    if scheme == "postgresql":
        if not rest.rpartition("@")[2].strip("/"):
            raise ValueError("names no host")
        return f"{scheme}://{rest}"
    path = rest.removeprefix("/")
    if rest[:1] != "/" or "?" in path:
        raise ValueError("is not sqlite:/// and a path")
    if path in ("", ":memory:"):
        raise ValueError("names no file, and a database in memory would be lost")
    return f"sqlite:///{directory / path}"


def shown_database_url(url: Secret) -> str:
    """The path of an SQLite file; of PostgreSQL only that it is, since a password may stand anywhere in the rest."""
    text = url.reveal()
    return text if text.startswith("sqlite:") else f"{text.partition('://')[0]}://***"
