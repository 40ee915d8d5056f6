"""The operation log's files: one a day, `operations-YYYY-MM-DD.jsonl` by UTC, in a directory of their own.

Owns which line goes into which file, how long files stay, and how one is read again. A line lies in the file of its
own time, however late it is written. How a file is opened and written safely is `line_output`'s, the thread
that does it `line_writer`'s.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path

from pointsman.events.line_output import LinesLost, RotatingFile
from pointsman.events.line_writer import LineWriter
from pointsman.events.operations import day_of_line, loss_line

DEFAULT_KEEP_DAYS = 30
_NAME = re.compile(r"operations-(\d{4}-\d{2}-\d{2})\.jsonl")
_DIRECTORY_MODE = 0o750
_MOST_OPEN = 2
"""Today's, and yesterday's for what is written a little late."""
_PIECE = 64 * 1024
_CLOSING_SECONDS = 2.0
"""For a slow disk to take what waits when the process ends."""


def file_name(day: date) -> str:
    """Of one day."""
    return f"operations-{day.isoformat()}.jsonl"


class _StillTorn(OSError):
    """The line that was cut could not be ended, so nothing may follow it yet."""


class DailyFiles:
    """Where lines end, as a `LineOutput`: calls block and belong into a `LineWriter`'s thread.

    `keep_days` is how many days before the newest one stay; 0 keeps all. Other files in the directory are left alone.
    """

    def __init__(self, directory: Path, keep_days: int, complain: Callable[[str], None]) -> None:
        self.name = str(directory)
        self._directory = directory
        self._keep_days = keep_days
        self._complain = complain
        self._open: dict[str, RotatingFile] = {}
        self._newest = ""

    def prepare(self, day: date) -> None:
        """Make the directory and open the file of `day`. Raises OSError; a full disk is no reason, as later."""
        self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        with contextlib.suppress(_StillTorn):
            self._file(day.isoformat())

    def write(self, data: bytes) -> None:
        """Write whole lines, each into the file of its day. Raises LinesLost for those that could not be."""
        lost, reason = 0, ""
        if not self._directory.is_dir():
            # Somebody's clean-up took it. What holds it is not made: it may be a disk that is not there at present.
            with contextlib.suppress(OSError):
                self._directory.mkdir(mode=_DIRECTORY_MODE)
        for day, lines in groupby(data.splitlines(keepends=True), key=day_of_line):
            piece = b"".join(lines)
            try:
                self._file(day).write(piece)
            except LinesLost as loss:
                lost, reason = lost + loss.count, loss.reason
            except OSError as error:
                lost, reason = lost + piece.count(b"\n"), error.strerror or str(error)
        if lost:
            raise LinesLost(lost, reason)

    def _file(self, day: str) -> RotatingFile:
        file = self._open.get(day)
        if file is not None:
            return file
        path = self._directory / file_name(date.fromisoformat(day))
        file = RotatingFile(str(path), most_bytes=0, keep=0, complain=self._complain)
        if _is_torn(path):
            try:
                file.write(b"\n")  # what a crash or a full disk cut stays a line of its own
            except LinesLost as loss:
                file.close()
                raise _StillTorn(loss.reason) from None
        self._open[day] = file
        while len(self._open) > _MOST_OPEN:  # the oldest, but this: a clock may have been set back
            self._open.pop(min(self._open.keys() - {day})).close()
        if day > self._newest:
            self._newest = day
            self._delete_old(date.fromisoformat(day))
        return file

    def _delete_old(self, newest: date) -> None:
        if not self._keep_days:
            return
        oldest = newest - timedelta(days=self._keep_days)
        for day, path in _files(self._directory):
            if day < oldest:
                with contextlib.suppress(OSError):  # someone else's clean-up was quicker, or it stays for the next day
                    path.unlink()

    def reopen(self) -> None:
        """Close the files; each is opened by its name again when it is needed."""
        while self._open:
            self._open.popitem()[1].close()

    def close(self) -> None:
        """Nothing follows."""
        self.reopen()


def _files(directory: Path) -> list[tuple[date, Path]]:
    found = []
    for path in directory.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            with contextlib.suppress(ValueError):  # the 31st of June is not ours
                found.append((date.fromisoformat(match[1]), path))
    return found


def _open_to_read(path: Path) -> int:
    """Raises OSError for what is not a regular file of its own, links included."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    there = os.fstat(descriptor)
    if not stat.S_ISREG(there.st_mode) or there.st_nlink > 1:
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no regular file")
    return descriptor


def _is_torn(path: Path) -> bool:
    try:
        descriptor = _open_to_read(path)
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    finally:
        os.close(descriptor)


def read_day(directory: Path, day: date) -> "DayPieces":
    """The lines of one day in pieces of at most 64 KiB, as many as there are now. Raises OSError at once, or later.

    Blocks: iterate over it in a thread.
    """
    descriptor = _open_to_read(directory / file_name(day))
    return DayPieces(descriptor, os.fstat(descriptor).st_size)


class DayPieces(Iterator[bytes]):
    """A file that is read piece by piece, up to the size it had. It is closed at its end, or by `close`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self._left = size

    def __next__(self) -> bytes:
        piece = self._file.read(min(_PIECE, self._left)) if self._left else b""
        if not piece:
            self._file.close()
            raise StopIteration
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Nobody wants the rest. Harmless when it is closed."""
        self._file.close()
        self._left = 0


class OperationLines(LineWriter):
    """Lines on their way into the files, and how many were lost so far."""

    @property
    def lost(self) -> int:
        """Lines that are in no file, since the start."""
        return self._lost_in_all

    @property
    def pending(self) -> bool:
        """Whether lines wait to be written."""
        return bool(self._waiting)


@contextlib.contextmanager
def operation_files(
    directory: Path, keep_days: int, say: Callable[[str], None], wall_clock: Callable[[], float]
) -> Iterator[OperationLines]:
    """Lines on their way into the files, until the end. Raises OSError when the directory cannot be written to."""
    files = DailyFiles(directory, keep_days, say)
    files.prepare(_today(wall_clock()))
    lines = OperationLines(files, tell_loss=lambda count: loss_line(count, wall_clock()), complain=say)
    try:
        yield lines
    finally:
        if lost := lines.close(_CLOSING_SECONDS):
            say(f"warning: {lost} lines of the operation log could not be written to {files.name}")


def _today(seconds: float) -> date:
    return date(1970, 1, 1) + timedelta(days=seconds // 86400)
