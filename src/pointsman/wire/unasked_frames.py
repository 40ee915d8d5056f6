"""How many frames a runner may send that nobody waits for: signs of life, and answers that come too late. Sans I/O."""

from pointsman.wire.runner_frames import FrameError

MOST_UNASKED = 4096
"""At once. Each costs the gateway some 10 us, so that a runner which sends nothing else holds nobody up for long."""
UNASKED_PER_SECOND = 16.0
"""In the long run; a runner says every 15 s that it lives."""


class UnaskedFrames:
    """One line's. Times are seconds of any clock that only moves forward."""

    def __init__(self, now: float) -> None:
        self._left = float(MOST_UNASKED)
        self._then = now

    def cancelled(self) -> None:
        """A request was; its frame may be under way, however many clients come and go."""
        self._left = min(self._left + 1, MOST_UNASKED)

    def came(self, now: float) -> None:
        """Raises FrameError for one too many: the line must be closed with 1008."""
        self._left = min(self._left + UNASKED_PER_SECOND * max(0.0, now - self._then), MOST_UNASKED)
        self._then = now
        if self._left < 1:
            raise FrameError("too many frames came that nobody waits for")
        self._left -= 1
