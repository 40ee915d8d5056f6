"""Where lines end: a stream that is already open, or a file that is rotated by size and may be moved away.

Calls block and belong into a `LineWriter`'s thread. A line is written whole or is counted as lost; the rest of one
that was cut, by a disk that is full, is written before anything else.
"""

import errno
import fcntl
import os
import select
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_MODE = 0o640
_LOCK_TRIES, _LOCK_SECONDS = 100, 0.005
_GONE = frozenset({errno.EPIPE, errno.EBADF, errno.ECONNRESET})


class LinesLost(Exception):
    """A number of lines could not be written."""

    def __init__(self, count: int, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.count = count
        self.reason = reason
        self.for_good = for_good
        """Nothing will ever be taken again."""


class LineOutput(Protocol):
    """A place for lines."""

    @property
    def name(self) -> str:
        """For messages."""

    def write(self, data: bytes) -> None:
        """Write whole lines. Raises LinesLost."""

    def reopen(self) -> None:
        """Start afresh, where that means something."""

    def close(self) -> None:
        """Nothing follows."""


class WholeLines:
    """Writes to a descriptor and remembers the rest of a line that was cut."""

    def __init__(self) -> None:
        self._owed = b""

    def write(self, descriptor: int, data: bytes, most: int = 0) -> None:
        """Write whole lines, in pieces of at most `most` bytes where lines are that short. Raises LinesLost."""
        owed = len(self._owed)
        data, self._owed, done = self._owed + data, b"", 0
        try:
            while done < len(data):
                done += _write_some(descriptor, data, done, most)
        except OSError as error:
            gone = error.errno in _GONE
            cut = done < owed or (done > 0 and data[done - 1 : done] != b"\n")
            end = data.index(b"\n", done) + 1 if cut and not gone else done
            self._owed = data[done:end]
            raise LinesLost(data.count(b"\n", end), error.strerror or str(error), for_good=gone) from None


def _write_some(descriptor: int, data: bytes, start: int, most: int) -> int:
    end = len(data)
    if most and end - start > most:
        end = (data.rfind(b"\n", start, start + most) + 1) or (data.index(b"\n", start) + 1)
    try:
        return os.write(descriptor, memoryview(data)[start:end])
    except BlockingIOError:
        # Whoever shares it has made it so; this thread can wait.
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll()
        return 0


class StreamOutput:
    """A descriptor that is someone else's: standard output or error. Never closed, nor is its mode changed.

    The sandboxed command may write to the same pipe, so a pipe gets pieces that the kernel keeps whole.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self._lines = WholeLines()
        try:
            is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        except OSError:
            is_pipe = False
        self._most = select.PIPE_BUF if is_pipe else 0

    def write(self, data: bytes) -> None:
        """Write whole lines. Raises LinesLost."""
        self._lines.write(self._descriptor, data, self._most)

    def reopen(self) -> None:
        """There is nothing to open."""

    def close(self) -> None:
        """It stays open for its owner."""


class RotatingFile:
    """Appends to a file of at most `most_bytes`, and keeps `keep` older ones as `FILE.1` (the newest) to `FILE.N`.

    A file that was moved or deleted by someone else is noticed before the next write, and made anew. Several
    processes may write to one file. What is not a regular file (a named pipe, a device) is only written to.

    The directory may be one that a sandboxed command can write to, and what is written is in part its choice: a link
    that it puts in the file's place would have us write into the operator's files. So links are never followed.
    """

    def __init__(self, path: str, *, most_bytes: int, keep: int, complain: Callable[[str], None]) -> None:
        """`most_bytes` 0: never rotated. Raises OSError when the file cannot be opened."""
        self.name = path
        self._path = Path(path)
        self._most_bytes = most_bytes
        self._keep = keep
        self._complain = complain
        self._complained = False
        self._locked_out = False
        self._lines = WholeLines()
        self._regular = False
        self._descriptor = self._opened()
        self._regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)

    def _opened(self) -> int:
        """Open it by its name. Raises OSError, also for a link, and for what is a file no more."""
        # Non-blocking only for the opening: that of a named pipe without a reader would wait for ever.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(self._path, flags, _MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link, name the file itself", self.name) from None
            raise
        there = os.fstat(descriptor)
        if stat.S_ISREG(there.st_mode) and there.st_nlink > 1:
            os.close(descriptor)
            raise OSError(errno.EMLINK, "it is a hard link, a file of its own is needed", self.name)
        if self._regular and not stat.S_ISREG(there.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file any more", self.name)
        os.set_blocking(descriptor, True)
        return descriptor

    def write(self, data: bytes) -> None:
        """Write whole lines, into as many files as they need. Raises LinesLost."""
        if not self._regular:
            self._lines.write(self._descriptor, data, select.PIPE_BUF)
            return
        if self._moved():
            self.reopen()
        start = 0
        while start < len(data):
            end = self._fitting(data, start)
            if end == start:
                if self._rotate():
                    continue
                end = len(data)  # better too large a file than no events
            try:
                self._lines.write(self._descriptor, data[start:end])
            except LinesLost as loss:
                raise LinesLost(loss.count + data.count(b"\n", end), loss.reason, for_good=loss.for_good) from None
            start = end

    def _fitting(self, data: bytes, start: int) -> int:
        """Where the lines end that still fit; `start` when the file is full."""
        size = os.fstat(self._descriptor).st_size
        room = self._most_bytes - size
        if not self._most_bytes or len(data) - start <= room:
            return len(data)
        end = data.rfind(b"\n", start, start + max(room, 0)) + 1
        if end or size:
            return end or start
        return data.index(b"\n", start) + 1  # a line longer than a file may be gets one of its own

    def _moved(self) -> bool:
        try:
            there = os.lstat(self._path)
        except OSError:
            return True
        mine = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino)

    def reopen(self) -> None:
        """Open the file by its name again. When that fails, the old one goes on being written: no event is lost."""
        try:
            descriptor = self._opened()
        except OSError as error:
            self._warn(f"cannot open {self.name} again: {error.strerror}; writing on to the file that was moved away")
            return
        self._complained = False
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _rotate(self) -> bool:
        """Begin a new file. False when that is impossible."""
        descriptor = self._descriptor
        if not self._lock(descriptor):
            self._warn(f"cannot rotate {self.name}: somebody has locked it; it grows beyond its size")
            return False
        try:
            if not self._moved():
                for number in range(self._keep - 1, 0, -1):
                    if self._numbered(number).exists():
                        self._numbered(number).replace(self._numbered(number + 1))
                self._path.replace(self._numbered(1))
            self._descriptor = self._opened()
        except OSError as error:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._warn(f"cannot rotate {self.name}: {error.strerror}; it grows beyond its size")
            return False
        os.close(descriptor)
        self._complained = False
        return True

    def _lock(self, descriptor: int) -> bool:
        """Keep other processes from rotating it too, until the descriptor is closed. False when that is impossible.

        Whoever may read the file may hold it for ever: so it is waited for a little, and after that only tried.
        """
        for _ in range(1 if self._locked_out else _LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_SECONDS)
            else:
                self._locked_out = False
                return True
        self._locked_out = True
        return False

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _warn(self, text: str) -> None:
        if not self._complained:
            self._complained = True
            self._complain(f"warning: {text}")

    def close(self) -> None:
        """Nothing follows."""
        os.close(self._descriptor)
