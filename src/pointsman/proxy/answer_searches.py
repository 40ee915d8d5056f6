"""Where answers are searched whose search would hold the event loop, and what all answers that are held may have.

Owns the threads. Which answers are searched there is `filtered_relay`'s, how it is done the filter's.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Found = TypeVar("_Found")
_THREADS = 2
MOST_ON_THE_LOOP = 1_000_000
"""Bytes times open steps of patterns: a hostile text holds the loop for 25 ms at the worst, any other for less than
three."""


class AnswerSearches:
    """For one event loop. Threads begin with the first search, and end with the process."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "answers")

    def begin(self, search: Callable[[], _Found]) -> "asyncio.Future[_Found]":
        """Run it beside the loop."""
        return asyncio.get_running_loop().run_in_executor(self._threads, search)
