"""How late an event loop comes to its work, told apart from how late the machine came to the loop.

A beat every 10 ms notes how much later than due it runs. On a busy machine most of that is other programs' doing, so
two measures stand beside the wall clock: the CPU time this thread used since the last beat, and the time it was
ready to run while the kernel ran somebody else (/proc/…/schedstat). What counts as lag is what the loop owes to
itself: lateness covered by its own CPU time, or lateness it spent neither running nor ready, which is a blocking call.
"""

import asyncio
import os
import threading
import time
from array import array

PERIOD = 0.01
_BUCKET_NS = 1_000_000
_BUCKETS = 20_000


class LoopWatch:
    """Keeps a histogram of fixed size, so that watching costs no memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._timer: asyncio.TimerHandle | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was measured, and start anew."""
        self._counts = array("Q", bytes(8 * _BUCKETS))
        self._most = 0
        if self._timer is not None:
            self._timer.cancel()
        self._plan()

    def _plan(self) -> None:
        self._cpu, self._waited = time.thread_time_ns(), self._run_delay()
        self._due = time.monotonic_ns() + int(PERIOD * 1e9)
        self._timer = self._loop.call_later(PERIOD, self._beat)

    def _run_delay(self) -> int:
        return int(os.pread(self._schedstat, 100, 0).split()[1])

    def _beat(self) -> None:
        late = max(time.monotonic_ns() - self._due, 0)
        own = min(late, time.thread_time_ns() - self._cpu)
        idle = late - (self._run_delay() - self._waited)
        lag = max(own, idle)
        self._most = max(self._most, lag)
        # Whoever comes while the loop is busy waits for the rest of it: a long turn counts for each beat that it
        # swallowed, not once.
        while lag >= 0:
            self._counts[min(lag // _BUCKET_NS, _BUCKETS - 1)] += 1
            lag -= int(PERIOD * 1e9)
        self._plan()

    def percentile_ms(self, share: float) -> int:
        """Milliseconds that this share of all moments stayed within."""
        wanted = share * sum(self._counts)
        seen = 0
        for milliseconds, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return milliseconds + 1
        return _BUCKETS

    @property
    def beats(self) -> int:
        """How many moments were looked at."""
        return sum(self._counts)

    @property
    def most_ms(self) -> float:
        """The worst."""
        return self._most / 1e6

    def close(self) -> None:
        """Stop beating."""
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._schedstat)
