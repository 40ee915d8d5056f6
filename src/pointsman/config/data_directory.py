"""Where a gateway keeps its data when nobody says."""

from collections.abc import Mapping
from pathlib import Path

ADMIN_TOKEN = "admin.token"  # noqa: S105  # a file's name
"""File of the data directory that the commands of this machine's operator read."""


def default_data_directory(environ: Mapping[str, str]) -> Path:
    """The user's data directory (XDG Base Directory Specification). Raises RuntimeError where the user has no home."""
    given = environ.get("XDG_DATA_HOME", "")
    if given.startswith("/"):
        return Path(given) / "pointsman"  # a relative one is to be ignored, says the specification
    home = environ.get("HOME", "")
    return (Path(home) if home.startswith("/") else Path.home()) / ".local" / "share" / "pointsman"
