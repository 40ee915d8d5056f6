"""Threads in which bodies are searched, shared so that no account's texts keep another's from being searched.

Nothing can end a search that has begun, whoever has stopped waiting for it: a hostile text keeps its thread. Owns that
each policy has one thread at a time, and who waits for it. What is searched is whoever's asks.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_THREADS = 4
"""More than cores: most would be another account's when one has kept its own busy. An account has two at the most, for
what it enforces and for its dry run."""

_Found = TypeVar("_Found")


class _Line:
    """All that want to search by the same policy."""

    __slots__ = ("members", "policy", "turn")

    def __init__(self, policy: object) -> None:
        self.policy = policy
        """Kept, so that no other gets its id meanwhile."""
        self.turn = asyncio.Lock()
        """Until a search has really ended."""
        self.members = 0


class PolicySearches:
    """For one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "policy")
        self._lines: dict[int, _Line] = {}
        """By the policy's id."""

    def close(self) -> None:
        """Begin no other search."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, search: Callable[[], _Found], policy: object | None) -> _Found:
        """What a search finds, behind all others of its policy; None: there is nothing hard in it."""
        if policy is None:
            return await asyncio.wrap_future(self._threads.submit(search))
        key, loop = id(policy), asyncio.get_running_loop()
        line = self._lines.setdefault(key, _Line(policy))
        line.members += 1
        try:
            await line.turn.acquire()
        except BaseException:
            self._leave(key, line)
            raise

        def ended() -> None:
            line.turn.release()
            self._leave(key, line)

        def told(_: "Future[_Found]") -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(ended)

        running = self._threads.submit(search)
        running.add_done_callback(told)
        return await asyncio.wrap_future(running)

    def _leave(self, key: int, line: _Line) -> None:
        line.members -= 1
        if not line.members:
            del self._lines[key]
