"""Keeping what requests are held against at what the store says: looked at a few times a second.

Owns when it is looked at, and that a store that is away changes nothing. What is read, and whether anything has
changed since, is whoever's is kept; requests never wait for the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

from pointsman.core.control_errors import ControlError
from pointsman.proxy.background import running

LOOK_SECONDS = 0.25
"""Between two looks at the generation: so late a change is in force, whoever has made it."""


class Kept(Protocol):
    """What is kept."""

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer; what is in force stays."""


@contextlib.asynccontextmanager
async def following(kept: Kept, name: str) -> AsyncIterator[None]:
    """Looks at once, and then again and again until it is left. Raises ControlError at once, never later."""
    await kept.refresh()
    async with running(_look_again_and_again(kept), name):
        yield


async def _look_again_and_again(kept: Kept) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        with contextlib.suppress(ControlError):  # the store says what is wrong
            await kept.refresh()
