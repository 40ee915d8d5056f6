"""An SQLite database as a file: making one, and refusing what is damaged or another program's. It reads no records."""

import contextlib
import os
import secrets
import sqlite3
import stat
from pathlib import Path

from pointsman.core.control_errors import ControlError, StoreUnavailable
from pointsman.store.key_file import sync_directory
from pointsman.store.problems import StoreRefused, problem_of

APPLICATION_ID = 0x506F696E
"""`Poin`, in the file's header: tells our databases from others."""
LARGEST_CHECKED_BYTES = 256 << 20
"""A larger file is not read through at the start; 256 MiB take about a second."""
PAGE_BYTES = 4096
"""SQLite's own choice."""
_RESTORE = "restore it from a backup, or set database_url to another file"
_HEADER = b"SQLite format 3\x00"


class OpenedFile:
    """Which file it was that a path led to.

    What is written after the file was moved away goes to a file without a name and to a log that the next start applies
    to whatever file has the name by then, which damages it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = self._now()

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def check(self, *, after_commit: bool = False) -> None:
        """Raises StoreUnavailable when the path leads elsewhere by now. Takes a few microseconds."""
        if self._now() == self._identity:
            return
        what = f"the database file {self._path} was moved, removed or replaced while the gateway ran"
        then = "stop it, put the right file there, without the -wal and -shm of another, and start it again"
        made = "; the change was committed to the old file, so look whether it was made" if after_commit else ""
        raise StoreUnavailable(f"{what}; {then}{made}")


def prepare_file(path: Path, busy_seconds: float, page_bytes: int = PAGE_BYTES, mend: str = _RESTORE) -> None:
    """See to a database that can be used, by its owner only; a new one has pages of that size. Blocks.

    `mend` is what to do about a damaged file, or one of another program.

    A file that exists is never replaced, whatever it holds. Raises StoreRefused, StoreUnavailable, StoreFull.
    """
    try:
        if not path.exists():
            _make(path, page_bytes)
        _check_header(path, mend)
        _tighten(path)
    except sqlite3.Error as error:
        problem: ControlError = problem_of(error)
    except OSError as error:
        problem = StoreUnavailable(
            f"the database file {path} cannot be used: {error.strerror}; check that the gateway's user owns it"
        )
    else:
        return _check(path, busy_seconds, mend)
    raise problem


def _make(path: Path, page_bytes: int) -> None:
    """An empty database, whole or not at all; so a file without a byte is a damaged one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA page_size = {page_bytes}")  # first: what writes a page settles it
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            # Stays in the file. Changed later, it would have to wait for every other connection.
            connection.execute("PRAGMA journal_mode = WAL")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        for name in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            name.unlink(missing_ok=True)
    sync_directory(path.parent)


def _check_header(path: Path, mend: str) -> None:
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise StoreRefused(f"{path} is not a file; set database_url to one")
        header = file.read(100)
    if header[: len(_HEADER)] != _HEADER or len(header) < 100:
        raise StoreRefused(f"{path} is damaged or no database; {mend}")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreRefused(f"{path} is another program's database; {mend}")


def _open_at_once(name: str, flags: int) -> int:
    """Opening a pipe would wait for its writer, and nothing could end that."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _tighten(path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_IMODE(name.stat().st_mode) & 0o077:
                name.chmod(0o600)


def _check(path: Path, busy_seconds: float, mend: str) -> None:
    problem: ControlError | None = None
    complaint = ""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)) as connection:
            if path.stat().st_size <= LARGEST_CHECKED_BYTES:
                complaint = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if not complaint or complaint == "ok":
                mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
                if mode != "wal":
                    connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            complaint = "damaged"
        else:
            problem = problem_of(error)
    if problem is not None:
        raise problem
    if complaint not in ("", "ok"):
        raise StoreRefused(f"the database file {path} is damaged, and nothing was changed; {mend}")
