"""One engine: its child is started at first use, watched, and started again when it has died.

Not here: what a child is and how one is launched (`process`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pointsman.engine.process import EngineAddress, EngineOptions, EngineUnavailable, launch

__all__ = ["Engine", "EngineAddress", "EngineOptions", "EngineState", "EngineUnavailable"]

FORGIVEN_FAILURES = 3
"""Failed starts, and deaths soon after one, in a row; after the last of them a pause begins."""
LONGEST_PAUSE = 30.0
DYING_SECONDS = 2.0
"""Between the end of a child's socket and its own: the system takes its memory back, the model's file included."""
STEADY_SECONDS = 60.0
"""A child that has served this long did not die of being started."""


class EngineState(StrEnum):
    """What the engine is doing."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Child(Protocol):
    """What an engine needs to know of its child; in earnest a `process.EngineProcess`."""

    @property
    def pid(self) -> int:
        """Of its process."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""

    @property
    def address(self) -> EngineAddress:
        """Where it listens."""

    @property
    def ending(self) -> str:
        """How it ended."""

    def cpu_seconds(self) -> float:
        """CPU time used so far."""

    async def wait(self) -> None:
        """Until it has ended by itself."""

    async def end(self) -> None:
        """End it if it still runs, and give back what it held."""


class Engine:
    """Runs one model file. Use it from one event loop; `close` it there.

    The child dies with the thread that started it (PR_SET_PDEATHSIG), so that thread must be the loop's for good.
    """

    def __init__(
        self,
        model: Path,
        *,
        clock: Callable[[], float],
        options: EngineOptions | None = None,
        launch: Callable[[Path, EngineOptions], Awaitable[Child]] = launch,
    ) -> None:
        self._model = model
        self._clock = clock
        self._options = options or EngineOptions()
        self._launch = launch
        self._start: asyncio.Task[EngineAddress] | None = None
        self._child: Child | None = None
        self._ready_at = 0.0
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._retry_at = 0.0
        self._reason = ""
        self._closed = False

    @property
    def state(self) -> EngineState:
        """For status displays."""
        if self._start is not None:
            return EngineState.LOADING
        if self._child is not None and self._child.alive:
            return EngineState.READY
        return EngineState.FAILED if self._reason else EngineState.IDLE

    @property
    def reason(self) -> str:
        """Why it failed last, for status displays; empty once it is ready."""
        return self._reason

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def address(self) -> EngineAddress:
        """Where the child listens; it is started when none runs. Concurrent callers share one start.

        A caller that is cancelled does not end the start. Raises EngineUnavailable: when the start fails, and at once
        in the pause that follows FORGIVEN_FAILURES failures in a row (1 s, doubled each time up to LONGEST_PAUSE).
        """
        if self._closed:
            raise EngineUnavailable("the engine is shutting down")
        if self._child is not None:
            if self._child.alive:
                return self._child.address
            self._bury(self._child)
        if self._start is None:
            if self._clock() < self._retry_at:
                raise EngineUnavailable(self._reason)
            self._start = asyncio.get_running_loop().create_task(self._start_child())
            self._start.add_done_callback(_retrieve)
        start = self._start
        await asyncio.wait((start,))
        if start.cancelled():
            raise EngineUnavailable("the engine is shutting down")
        return start.result()

    def cpu_seconds(self) -> float:
        """CPU time the child has used: it grows while a prompt is being read, long before the first token.

        llama.cpp's own view, `/slots`, is not asked: each answer of the server puts off, by a second, its look
        whether the clients of other requests are still there.
        """
        return self._child.cpu_seconds() if self._child is not None and self._child.alive else 0.0

    async def until_dead(self) -> None:
        """For whoever found nobody at its socket: wait until the child has ended, for DYING_SECONDS at most."""
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DYING_SECONDS):
                    await self._child.wait()

    async def close(self) -> None:
        """End the child, for good. Callers that wait for it get EngineUnavailable."""
        self._closed = True
        start = self._start
        if start is not None:
            start.cancel()
            await asyncio.wait((start,))
            self._start = None  # a task that is cancelled before its first step does not do this itself
        child, self._child = self._child, None
        if child is not None:
            await child.end()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _start_child(self) -> EngineAddress:
        try:
            self._child = await self._launch(self._model, self._options)
        except EngineUnavailable as error:
            self._note_failure(str(error))
            raise
        finally:
            self._start = None
        self._ready_at = self._clock()
        self._reason = ""
        return self._child.address

    def _bury(self, child: Child) -> None:
        """Take leave of a child that has died by itself."""
        self._child = None
        if self._clock() - self._ready_at >= STEADY_SECONDS:
            self._failures = 0
        self._note_failure(f"the engine of {self._model.name} died: {child.ending}")
        ending = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        self._reason = reason
        if self._failures >= FORGIVEN_FAILURES:
            self._retry_at = self._clock() + min(2.0 ** (self._failures - FORGIVEN_FAILURES), LONGEST_PAUSE)


def _retrieve(start: "asyncio.Task[EngineAddress]") -> None:
    """A failure that nobody waited for is already noted, and not worth a warning."""
    if not start.cancelled():
        start.exception()
