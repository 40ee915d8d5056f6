"""A file for its owner's eyes only: read with suspicion, replaced as a whole."""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

LARGEST = 256 * 1024
"""Bytes; a full allowlist has about 50 KiB."""
_ROOM = 4096
"""Bytes; what tells who a runner is has less."""


class PrivateFileError(Exception):
    """The file is not to be trusted, or not to be had. The text names it, says why and what to do."""


class NoSuchFile(PrivateFileError):
    """There is none yet."""


def read_private(path: Path) -> bytes:
    """What it holds. Raises PrivateFileError for a link, a stranger's file, and one that others have any right in.

    Also where others could put another file in its place, one of the user's own from earlier among them.
    """
    try:
        with _directory_of(path) as directory, open(path.name, "rb", opener=_unlinked_in(directory)) as file:
            status = os.fstat(file.fileno())
            data = file.read(LARGEST + 1) if stat.S_ISREG(status.st_mode) else b""
    except FileNotFoundError:
        raise NoSuchFile(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "is not a path").lower()
        raise PrivateFileError(f"{path}: {reason}; it must be a regular file, and no link") from None
    if not stat.S_ISREG(status.st_mode):
        raise PrivateFileError(f"{path}: is not a regular file; move it away")
    if status.st_uid != os.geteuid():
        raise PrivateFileError(f"{path}: belongs to another user; move it away")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PrivateFileError(f"{path}: others may use it; look at what is in it, then chmod 600 {path}")
    if len(data) > LARGEST:
        raise PrivateFileError(f"{path}: has over {LARGEST} bytes; move it away")
    return data


def _unlinked_in(directory: int) -> Callable[[str, int], int]:
    """Follows no link, and does not wait as opening a pipe would."""
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)


@contextlib.contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    """Open. Raises OSError and PrivateFileError."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(directory)
        if status.st_uid not in (os.geteuid(), 0):
            raise PrivateFileError(f"{path.parent}: belongs to another user; name a directory of your own")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
            raise PrivateFileError(f"{path.parent}: others may write there; chmod go-w {path.parent}")
        yield directory
    finally:
        os.close(directory)


def write_private(path: Path, data: bytes) -> None:
    """Replace it as a whole: whoever reads finds the old one or the new one. Raises PrivateFileError."""
    with _draft(path, data) as beside:
        os.replace(beside, path)  # a link that stands there is replaced, not followed
        _make_lasting(path.parent)


def check_writable(path: Path) -> None:
    """Raises PrivateFileError where `write_private` would now: before what is to be written is asked of anybody."""
    is_new = not path.parent.exists()
    with _draft(path, bytes(_ROOM)):
        pass
    if is_new:
        with contextlib.suppress(OSError):
            path.parent.rmdir()


@contextlib.contextmanager
def _draft(path: Path, data: bytes) -> Iterator[Path]:
    """A file beside it, which is gone in the end. Raises PrivateFileError, also for what the block raises."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _directory_of(path):
            pass
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield beside
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "is not a path").lower()
        raise PrivateFileError(f"{path}: cannot be written: {reason}; check the directory and its rights") from None


def _make_lasting(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
