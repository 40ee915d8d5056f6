"""Reads a file whose place others may have written to: never waits, as opening a pipe would, and is bounded."""

import errno
import os
import stat


def read_regular(path: str, most: int) -> bytes:
    """At most `most` bytes of a regular file. Raises OSError, also for everything that is none."""
    with open(path, "rb", opener=_open) as file:
        return file.read(most)


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)
