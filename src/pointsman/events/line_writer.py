"""Lines on their way out: a thread of their own, so that a slow, full or closed place never holds up a request.

It owns the bound on what waits and the count of what was lost. What is written to, and how a file is rotated, is
`line_output`'s.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf

from pointsman.events.line_output import LineOutput, LinesLost

MOST_PENDING_BYTES = 4 * 1024 * 1024
"""Of lines that wait for a slow place; some 5,000 OCSF events. What comes beyond is dropped and counted."""
_COMPLAINT_SECONDS = 60.0


class LineWriter:
    """Takes lines at once, writes them in order, and drops whole lines when it must.

    `tell_loss` makes the line that stands where a number of lines is missing. `complain` hears of trouble at most
    once a minute, and of its end; it is called from either thread.
    """

    def __init__(
        self,
        output: LineOutput,
        *,
        tell_loss: Callable[[int], str],
        complain: Callable[[str], None] | None = None,
        most_pending: int = MOST_PENDING_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output = output
        self._tell_loss = tell_loss
        self._complain = complain
        self._most_pending = most_pending
        self._clock = clock
        self._changed = threading.Condition()
        # All below is guarded by it.
        self._waiting: deque[tuple[int, bytes | None]] = deque()
        """How many lines are missing before these; None opens the file again."""
        self._pending = 0
        self._not_taken = 0
        self._not_written = 0
        self._lost_in_all = 0
        self._complained = False
        self._last_complaint = -inf
        self._gone = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> None:
        """Take whole lines; never waits. Raises nothing."""
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if not (self._gone or self._closing) and self._pending + len(data) <= self._most_pending:
                self._put(data)
                return
            lines = data.count(b"\n")
            self._not_taken += lines
            self._lost_in_all += lines
            told = self._gone
        if not told:
            self._say_trouble("they are taken too slowly")

    def flush(self) -> None:
        """Nothing: lines are written as soon as they can be."""

    def reopen(self) -> None:
        """Close and open a file again, behind the lines that were taken before."""
        with self._changed:
            if not (self._gone or self._closing):
                self._put(None)

    def close(self, seconds: float) -> int:
        """Write what waits, for so long at most. Returns how many lines were lost altogether."""
        deadline = self._clock() + seconds
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while self._waiting and (left := deadline - self._clock()) > 0:
                self._changed.wait(left)
            thread = self._thread
            drained = not self._waiting
            self._give_up()
            lost = self._lost_in_all
        if thread is None:
            self._output.close()
        elif drained:
            thread.join()
        return lost

    def _give_up(self) -> None:
        self._lost_in_all += _lines(self._waiting)
        self._waiting.clear()
        self._pending = 0

    def _put(self, data: bytes | None) -> None:
        self._waiting.append((self._not_taken, data))
        self._not_taken = 0
        self._pending += len(data or b"")
        if self._thread is None:
            # A daemon, for a write that blocks for ever must not keep the process from ending.
            self._thread = threading.Thread(target=self._run, name=f"log {self._output.name}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    # In the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    break
                missing, data = self._waiting[0]
                missing += self._not_written
            self._perform(missing, data)
            with self._changed:
                if self._waiting:  # `close` may have given up meanwhile
                    self._waiting.popleft()
                    self._pending -= len(data or b"")
                if self._gone:
                    self._give_up()
                self._changed.notify_all()
        self._output.close()

    def _perform(self, missing: int, data: bytes | None) -> None:
        try:
            if data is None:
                self._output.reopen()
                return
            if missing:
                self._output.write(self._tell_loss(missing).encode())
                with self._changed:
                    self._not_written = 0
                self._say_recovery(missing)
                missing = 0
            self._output.write(data)
        except LinesLost as loss:
            lines = loss.count if not missing else (data or b"").count(b"\n")
            with self._changed:
                self._not_written = missing + lines
                self._lost_in_all += lines
                self._gone = loss.for_good
            self._say_trouble(loss.reason)

    def _say_trouble(self, reason: str) -> None:
        with self._changed:
            now = self._clock()
            if self._complained or now - self._last_complaint < _COMPLAINT_SECONDS:
                return
            self._complained, self._last_complaint = True, now
        if self._complain is not None:
            self._complain(f"warning: events cannot be written to {self._output.name}: {reason}; they are dropped")

    def _say_recovery(self, lost: int) -> None:
        with self._changed:
            complained, self._complained = self._complained, False
        if complained and self._complain is not None:
            self._complain(f"events are written to {self._output.name} again; {lost} were dropped")


def _lines(waiting: deque[tuple[int, bytes | None]]) -> int:
    return sum(data.count(b"\n") for _, data in waiting if data is not None)
