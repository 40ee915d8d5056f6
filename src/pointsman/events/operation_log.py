"""What happened, written in batches: a human line and an OCSF line for every event.

A record never holds a body, a header value or a key. Events are formed when a batch is written, not while a request
runs. Where lines go, and what becomes of them when that place is full or gone, is `line_writer`'s.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from pointsman.core.event_kinds import EventKind
from pointsman.events.human_line import human_line
from pointsman.events.ocsf import ocsf_line
from pointsman.events.record import Loss, Occurrence

_FLUSH_SECONDS = 0.2
_MOST_PENDING = 256
"""Forming an event takes some 5 µs, and the loop stands still meanwhile."""


class Lines(Protocol):
    """Where finished lines go. A call returns at once, whatever the far side does."""

    def write(self, text: str, /) -> object:
        """Take whole lines."""

    def flush(self) -> object:
        """Pass them on."""


class OperationLog:
    """Collects what happened; writes a human line for each event to `lines` and a JSON line to `ocsf`."""

    def __init__(self, *, lines: Lines | None, ocsf: Lines | None = None, wall_clock: Callable[[], float]) -> None:
        self._lines = lines
        self._ocsf = ocsf
        self._silent = lines is None and ocsf is None
        self._wall_clock = wall_clock
        self._pending: list[Occurrence] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_clock()

    def append(self, occurrence: Occurrence) -> None:
        """Note what has happened."""
        if self._silent:
            return
        pending = self._pending
        pending.append(occurrence)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        elif len(pending) >= _MOST_PENDING:
            self.flush()

    def say(self, text: str) -> None:
        """Write a human line that is about no event."""
        if self._lines is not None:
            self._lines.write(f"pointsman: {text}\n")
            self._lines.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if pending:
            self._write([(kind, occurrence) for occurrence in pending for kind in occurrence.kinds()])

    def reopen(self) -> None:
        """Open the file of OCSF events by its name again: for whoever has moved it away."""
        self.flush()
        reopen = getattr(self._ocsf, "reopen", None)
        if reopen is not None:
            reopen()

    def _write(self, events: Sequence[tuple[EventKind, Occurrence]]) -> None:
        if self._ocsf is not None:
            self._ocsf.write("".join([ocsf_line(kind, each) + "\n" for kind, each in events]))
            self._ocsf.flush()
        if self._lines is not None:
            self._lines.write("".join([human_line(kind, each) + "\n" for kind, each in events]))
            self._lines.flush()


def loss_as_ocsf(count: int, seconds: float) -> str:
    """The OCSF line that stands for `count` lost ones."""
    loss = Loss(seconds, count)
    return ocsf_line(loss.kind, loss) + "\n"


def loss_as_line(count: int, seconds: float) -> str:
    """The human line that stands for `count` lost ones."""
    loss = Loss(seconds, count)
    return human_line(loss.kind, loss) + "\n"
