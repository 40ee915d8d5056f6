"""The file that holds the admin token: made at the first start, for the user of the gateway alone.

Who holds a token and what it may do is `auth`'s.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from pointsman.config.data_directory import ADMIN_TOKEN
from pointsman.core.secret import Secret
from pointsman.gateway.cannot_start import CannotStart

SHORTEST = 32
"""Characters of a token that an operator wrote."""
LONGEST = 4096


def _new_token() -> str:
    return secrets.token_urlsafe(32)  # 256 bits


def load_or_make_admin_token(data_dir: Path, new_token: Callable[[], str] = _new_token) -> Secret:
    """The admin token of a data directory; both are made where they are missing.

    Gateways that start at the same time get the same one. Raises CannotStart.
    """
    path = data_dir / ADMIN_TOKEN
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            data_dir.mkdir(mode=0o700)
        if data_dir.stat().st_mode & stat.S_IWOTH:
            raise CannotStart(f"data_dir {data_dir}: every user of this machine may change it; chmod 700 it")
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        _make(path, new_token())
        return _read(path)
    except OSError as error:
        place = error.filename or data_dir
        reason = (error.strerror or "error").lower()
        raise CannotStart(f"data_dir {data_dir}: {place}: {reason}; check it, or name another") from None


def _make(path: Path, token: str) -> None:
    """Make the file, whole from its first moment, unless another process is faster. Raises OSError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> Secret:
    """Raises FileNotFoundError, OSError, CannotStart."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
        data = os.read(descriptor, LONGEST + 3)
    finally:
        os.close(descriptor)
    text = data.decode("ascii", "replace").removesuffix("\n").removesuffix("\r")
    if not SHORTEST <= len(text) <= LONGEST or not all("!" <= character <= "~" for character in text):
        raise CannotStart(
            f"{path} is not one line of {SHORTEST} characters or more, without spaces; remove it, and a new one is "
            "made at the next start"
        )
    return Secret(text)


def _check(path: Path, status: os.stat_result) -> None:
    """Raises CannotStart unless only we can have written it and only we can read it."""
    anew = "a new one is made at the next start"
    if not stat.S_ISREG(status.st_mode):
        raise CannotStart(f"{path} is not a regular file; remove it, and {anew}")
    if status.st_uid not in (0, os.geteuid()):
        raise CannotStart(f"{path} belongs to another user; run the gateway as that user, or with another data_dir")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CannotStart(f"{path} is open to other users; remove it if they may have read it, else chmod 600 it")
