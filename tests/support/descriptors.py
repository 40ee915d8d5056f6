"""What this process holds open, by name: others in it open and close descriptors of their own at any time."""

import contextlib
from pathlib import Path


def open_paths() -> list[str]:
    """Where each open descriptor of this process leads."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(str(each.readlink()))
    return found


def open_at(*paths: Path) -> list[str]:
    """The descriptors open at these paths and below them."""
    return [name for name in open_paths() if any(Path(name).is_relative_to(path) for path in paths)]


def open_sockets() -> int:
    """How many sockets are open."""
    return sum(name.startswith("socket:") for name in open_paths())
