"""A time limit on part of a task, as `asyncio.timeout` is one, at half its cost: every request of a chain has one.

That opens a coroutine twice and asks the event loop for two timers; here it is one timer that is set once.
"""

import asyncio
from types import TracebackType


class Deadline:
    """Raises TimeoutError in the `with` block when it has taken so many seconds, unless it was lifted before."""

    __slots__ = ("_cancelling", "_seconds", "_task", "_timer", "expired")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.expired = False
        """Whether it struck. A TimeoutError of another source leaves it False."""

    def __enter__(self) -> "Deadline":
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = loop.call_later(self._seconds, self._strike)
        return self

    def lift(self) -> None:
        """The rest may take as long as it likes."""
        self._timer.cancel()

    def _strike(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Somebody else's cancellation of the same task goes on as what it is.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
