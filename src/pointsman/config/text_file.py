"""Opening a small text file that a person wrote: regular, bounded, UTF-8.

What the text means is the caller's business.
"""

import os
import stat

from pointsman.config.problems import Problem
from pointsman.config.yaml_positions import LARGEST_TEXT, too_large


class Unreadable(Exception):
    """A file cannot be read as text; `problem` says why."""

    def __init__(self, reason: str, next_step: str, line: int = 0) -> None:
        super().__init__(reason)
        self.problem = Problem(line, reason, next_step)


def open_regular(name: str) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file. Raises Unreadable. Never waits, as opening a pipe would."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Unreadable("no such file", "check the path") from None
    except OSError as error:
        raise Unreadable(
            f"cannot be read ({(error.strerror or 'error').lower()})", "check the path and its rights"
        ) from None
    except ValueError:  # a NUL in the path
        raise Unreadable("is not a path", "check the path") from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status
    os.close(descriptor)
    what = "is a directory" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
    raise Unreadable(what, "name a file")


def read_bytes(name: str) -> tuple[bytes, bool]:
    """What the file holds, and whether every user may read it. Raises Unreadable."""
    descriptor, status = open_regular(name)
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(LARGEST_TEXT + 1)
        except OSError as error:
            raise Unreadable(f"cannot be read ({(error.strerror or 'error').lower()})", "check the disk") from None
    return data, bool(status.st_mode & stat.S_IROTH)


def decode(data: bytes) -> str:
    """The text. Raises Unreadable."""
    if len(data) > LARGEST_TEXT:
        problem = too_large()
        raise Unreadable(problem.reason, problem.next_step)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise Unreadable("is UTF-16 text", "save it as UTF-8") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable("is not UTF-8 text", "save it as UTF-8", line) from None
