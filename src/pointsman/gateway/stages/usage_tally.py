"""How many requests have no usage row yet, in a file that outlives a process that is killed.

Owns that file, one for each gateway process, and what is told of the requests of one whose process is gone. The count
is written as each request ends, into the kernel's memory: it survives `kill -9`, not a machine that loses its power.
What a row is, and when it is written, is `gateway.stages.usage`'s.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

_COUNTS = struct.Struct("<2Q")


class UsageTally:
    """For one event loop. Without a file it counts for nobody."""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor
        self._under_way = 0
        self._unwritten = 0
        self._is_due = False

    def began(self) -> None:
        """A request is under way. Written with the next that ends, or at the end of the loop's turn."""
        self._under_way += 1
        if not self._is_due and self._descriptor >= 0:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def ended(self, *, had_begun: bool) -> None:
        """A row is due."""
        self._under_way -= had_begun
        self._unwritten += 1
        self._write()

    def settled(self, rows: int) -> None:
        """So many were written, or told as lost."""
        self._unwritten -= rows
        self._write()

    def _write(self) -> None:
        self._is_due = False
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # a count of what may be lost must not keep a request from ending
                os.pwrite(self._descriptor, _COUNTS.pack(self._under_way, self._unwritten), 0)

    def close(self) -> None:
        """Nothing is written any more."""
        self._descriptor = -1


@contextlib.contextmanager
def tallying(directory: Path, say: Callable[[str], None]) -> Iterator[UsageTally]:
    """Tell of processes that are gone, and count for this one until the end.

    Where no file can be made that is said, and nothing is counted.
    """
    _tell_of_the_dead(directory, say)
    path = directory / f"usage-{secrets.token_hex(8)}.open"
    try:
        descriptor = _opened(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        say(f"usage: {directory}: {reason}; what a kill may lose will not be counted")
        yield UsageTally()
        return
    tally = UsageTally(descriptor)
    try:
        yield tally
    finally:
        tally.close()
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Locked before it has its name, so that nobody takes it for a dead process's. Raises OSError."""
    made = path.with_suffix(".new")
    descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(descriptor, _COUNTS.pack(0, 0), 0)
        made.rename(path)
    except OSError:
        os.close(descriptor)
        made.unlink(missing_ok=True)
        raise
    return descriptor


def _tell_of_the_dead(directory: Path, say: Callable[[str], None]) -> None:
    for path in sorted(directory.glob("usage-*.open")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its process is alive
            told = file.read(_COUNTS.size)
            path.unlink()
            if len(told) == _COUNTS.size:
                under_way, unwritten = _COUNTS.unpack(told)
                _tell(under_way, unwritten, say)


def _tell(under_way: int, unwritten: int, say: Callable[[str], None]) -> None:
    if under_way or unwritten:
        which = f"{unwritten} that had ended and {under_way} that were under way have none"
        say(f"usage: rows lost: a gateway process was killed: {which}; hard budgets have counted what was sent")
