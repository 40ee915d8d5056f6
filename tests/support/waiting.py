"""Waiting for what another thread, task or process brings about, where nothing tells of it: asked again and again."""

import asyncio
import time
from collections.abc import Callable

_SECONDS = 60.0


def wait_until(condition: Callable[[], object], seconds: float = _SECONDS) -> None:
    """Fails when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


async def until(condition: Callable[[], object], seconds: float = _SECONDS) -> None:
    """The same, while other tasks go on. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
