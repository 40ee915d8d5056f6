"""One record per request and per refusal, written in batches.

A record never holds a body, a header value or a key. Lines are formed when a batch is written, not while the
request runs.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

import msgspec

from pointsman.events.ocsf import ocsf_event
from pointsman.events.record import Record, human_line

_FLUSH_SECONDS = 0.2
_MOST_PENDING = 1024


class OperationLog:
    """Collects records; writes a human line each to `lines` and a JSON line each to `ocsf`."""

    def __init__(
        self, *, lines: TextIO | None = sys.stderr, ocsf: TextIO | None = None, wall_clock: Callable[[], float]
    ) -> None:
        self._lines = lines
        self._ocsf = ocsf
        self._wall_clock = wall_clock
        self._pending: list[Record] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall_clock()

    def append(self, record: Record) -> None:
        """Note a finished request or a refusal."""
        if self._lines is None and self._ocsf is None:
            return
        self._pending.append(record)
        if len(self._pending) >= _MOST_PENDING:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def say(self, text: str) -> None:
        """Write a human line that is about no request."""
        if self._lines is not None:
            self._lines.write(f"pointsman: {text}\n")
            self._lines.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if not pending:
            return
        if self._ocsf is not None:
            self._ocsf.write("".join(msgspec.json.encode(ocsf_event(record)).decode() + "\n" for record in pending))
            self._ocsf.flush()
        if self._lines is not None:
            self._lines.write("".join(human_line(record) + "\n" for record in pending))
            self._lines.flush()
