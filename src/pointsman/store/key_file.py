"""The file with the key that credentials are encrypted with: 32 random bytes in base64, for its owner only."""

import base64
import binascii
import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from pointsman.store.problems import StoreRefused

KEY_BYTES = 32
_LONGEST_FILE = 1024


def load_key_file(path: Path) -> bytes:
    """The key. Raises FileNotFoundError, or StoreRefused for a file that cannot be trusted or is no key."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreRefused(f"the key file {path} cannot be read: {error.strerror}; check its owner") from None
    try:
        _check_status(path, os.fstat(descriptor))
        text = os.read(descriptor, _LONGEST_FILE)
    finally:
        os.close(descriptor)
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise StoreRefused(
            f"the key file {path} does not hold a key ({KEY_BYTES} bytes in base64); restore it from a backup"
        )
    return key


def _check_status(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise StoreRefused(f"the key file {path} is not a file; set key_file to one")
    if status.st_uid not in (os.geteuid(), 0):
        raise StoreRefused(f"the key file {path} belongs to another user; next: chown {os.geteuid()} {path}")
    if status.st_mode & 0o077:
        raise StoreRefused(
            f"others may use the key file {path} (mode {stat.S_IMODE(status.st_mode):04o}); next: chmod 600 {path}"
        )


def make_key_file(path: Path, random_bytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """Make the file, whole or not at all, and give the key. The key of another process that was quicker is taken.

    Raises StoreRefused.
    """
    draft = path.with_name(f"{path.name}.{random_bytes(8).hex()}.new")
    text = base64.b64encode(random_bytes(KEY_BYTES)) + b"\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_new(draft, text)
        try:
            # A link appears whole or not at all, and never in the place of another file.
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise StoreRefused(f"the key file {path} cannot be made: {error.strerror}; check its directory") from None
    try:
        return load_key_file(path)
    except FileNotFoundError:
        pass
    raise StoreRefused(f"the key file {path} is a link that leads nowhere; remove it, or set key_file to the file")


def _write_new(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """What was made in a directory outlives a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
