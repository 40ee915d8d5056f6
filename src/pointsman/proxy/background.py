"""Work that goes on beside something, for as long as that is there. None of it ends unseen.

Owns that whoever has begun such work learns of its failure at once and not at the end: the block is cancelled, and
BackgroundEnded is raised in its place. Work whose failures are no reason to end catches them itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from pointsman.core.fault_place import fault_place

Work = Coroutine[Any, Any, None]


class BackgroundEnded(Exception):
    """Work beside something has failed. The text says which and where, and nothing of what it was about."""


@contextlib.asynccontextmanager
async def running(work: Work, name: str) -> AsyncIterator[None]:
    """Runs `work` in a task of its own until it is left; the task is then cancelled, and has ended on return.

    Raises BackgroundEnded, in the block's place, as soon as the work has raised anything.
    """
    async with _beside(work, name, _end):
        yield


@contextlib.asynccontextmanager
async def finishing(work: Work, name: str, stop: Callable[[], None], seconds: float) -> AsyncIterator[None]:
    """The same for work that ends by itself after `stop`: it is cancelled when so many seconds were not enough."""

    async def end(task: "asyncio.Task[None]") -> None:
        stop()
        await asyncio.wait([task], timeout=seconds)
        await _end(task)

    async with _beside(work, name, end):
        yield


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


@contextlib.asynccontextmanager
async def _beside(work: Work, name: str, end: Callable[["asyncio.Task[None]"], Awaitable[None]]) -> AsyncIterator[None]:
    owner = asyncio.current_task()
    assert owner is not None, "it is entered and left in one task"
    task = asyncio.get_running_loop().create_task(work, name=name)
    has_told = False

    def ended(task: "asyncio.Task[None]") -> None:
        nonlocal has_told
        if not task.cancelled() and task.exception() is not None:
            has_told = owner.cancel()

    task.add_done_callback(ended)
    try:
        try:
            yield
        finally:
            task.remove_done_callback(ended)
            await end(task)
            if has_told:
                await asyncio.sleep(0)  # a cancellation that has not come yet comes here
    except asyncio.CancelledError:
        if not has_told or owner.uncancel():  # others want it to end as well
            raise
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        raise BackgroundEnded(f"internal error: {name} failed: {fault_place(error)}") from None
