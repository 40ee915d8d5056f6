"""Opens the places the operation log goes to: standard error, and a file or standard output for OCSF events."""

import contextlib
import errno
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pointsman.events.line_output import LineOutput, RotatingFile, StreamOutput
from pointsman.events.line_writer import LineWriter
from pointsman.events.operation_log import OperationLog, loss_as_line, loss_as_ocsf

MIB = 1024 * 1024
_CLOSING_SECONDS = 2.0
"""For a slow place to take what waits when the process ends."""


@dataclass(frozen=True, slots=True)
class EventLog:
    """Where OCSF events go."""

    path: str = ""
    """A file, `-` for standard output, or empty for nowhere."""
    most_bytes: int = 64 * MIB
    """At which the file is rotated; 0 for never."""
    keep: int = 5
    """How many older files stay."""


NO_EVENT_LOG = EventLog()


@contextlib.contextmanager
def operation_log(events: EventLog) -> Iterator[OperationLog]:
    """The log on standard error, and as OCSF lines where asked. Raises OSError when the file cannot be opened."""
    lines = ocsf = None
    if sys.stderr is not None:  # else its number may be that of any other file
        sys.stderr.flush()
        stderr = StreamOutput(sys.stderr.fileno(), "standard error")
        lines = LineWriter(stderr, tell_loss=lambda count: loss_as_line(count, time.time()))

    def say(text: str) -> None:
        if lines is not None:
            lines.write(f"pointsman: {text}\n")

    output = _ocsf_output(events, say)
    if output is not None:
        ocsf = LineWriter(output, tell_loss=lambda count: loss_as_ocsf(count, time.time()), complain=say)
    log = OperationLog(lines=lines, ocsf=ocsf, wall_clock=time.time)
    try:
        yield log
    finally:
        log.flush()
        if ocsf is not None and output is not None and (lost := ocsf.close(_CLOSING_SECONDS)):
            say(f"warning: {lost} events could not be written to {output.name}")
        if lines is not None:
            lines.close(_CLOSING_SECONDS)


def _ocsf_output(events: EventLog, say: Callable[[str], None]) -> LineOutput | None:
    if not events.path:
        return None
    if events.path == "-":
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        sys.stdout.flush()
        return StreamOutput(sys.stdout.fileno(), "standard output")
    return RotatingFile(events.path, most_bytes=events.most_bytes, keep=events.keep, complain=say)
