"""Keeping what requests are held against at what the store says: looked at after each change, and a few times a second.

Owns when it is looked at, what each has been taken from, and that neither a store that is away nor a fault in a look
ends the looking. What is read of a view is whoever's is kept; requests never wait for the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from pointsman.core.control_errors import ControlError
from pointsman.core.fault_place import fault_place
from pointsman.proxy.background import running
from pointsman.store.interface import Reader, Store

LOOK_SECONDS = 0.25
"""Between two looks at the generation: so late what another process has changed is in force here."""
_SHARE = 4
"""After a look, as many times as long as it took is none, and never longer than LOOK_SECONDS: many changes in a row
are taken over a few at a time, and requests keep four fifths of the time."""

_LONGEST_LOOK_SECONDS = 60.0
"""A store that has not answered by then is asked anew, and that is told: thousands of routes take a few seconds."""

Source = tuple[int, str]
"""The store's generation, and the name of the default route."""


class Kept(Protocol):
    """What is kept."""

    async def take(self, reader: Reader, default_route: str) -> None:
        """Take over what the store says. Raises ControlError when it does not answer; what is in force stays.

        `default_route` is the default account's, of the same moment as the view.
        """


class Followed:
    """All that is kept at one store, and at the default route of the gateway's settings of the moment."""

    def __init__(self, store: Store, say: Callable[[str], None], default_route: Callable[[], str] = lambda: "") -> None:
        self.store = store
        self._say = say
        self._default_route = default_route
        self._kept: dict[str, Kept] = {}
        self._taken: dict[str, Source] = {}
        self._troubles: dict[str, str] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    async def keep(self, kept: Kept, name: str) -> None:
        """Take over at once, and again after each change. Raises ControlError at once, never later."""
        async with self._turn:
            await self._take(kept, name)
            self._kept[name] = kept

    async def refresh(self) -> None:
        """Look once. Raises the first ControlError, after all have been looked at."""
        async with self._turn:  # or one that began earlier could end later, and put back what was replaced
            source = await self.store.generation(), self._default_route()
            due = [each for each in self._kept.items() if self._taken.get(each[0]) != source]
            if not due:
                return
            failed: ControlError | None = None
            async with self._view() as (reader, taken_from):
                for name, kept in due:
                    try:
                        await kept.take(reader, taken_from[1])
                    except ControlError as error:
                        failed = failed or error
                    except Exception as error:  # one that was not foreseen must not keep the others from theirs
                        self._tell(name, error)
                    else:
                        self._taken[name] = taken_from
                        self._tell(name, None)
            if failed is not None:
                raise failed

    @contextlib.asynccontextmanager
    async def _view(self) -> AsyncIterator[tuple[Reader, Source]]:
        """One for all: it costs a dozen trips to the database's thread, and on a busy machine each of them waits."""
        default_route = self._default_route()  # of the view's moment: nothing is waited for in between
        async with self.store.read() as reader:
            yield reader, (await reader.generation(), default_route)

    async def _take(self, kept: Kept, name: str) -> None:
        async with self._view() as (reader, taken_from):
            await kept.take(reader, taken_from[1])
        self._taken[name] = taken_from

    def _tell(self, name: str, error: Exception | None) -> None:
        """Once for each trouble, and when it is over."""
        trouble = "" if error is None else f"{name}: internal error: {fault_place(error)}; what was in force stays"
        if trouble != self._troubles.get(name, ""):
            self._troubles[name] = trouble
            self._say(trouble or f"{name}: changes are in force again")

    async def follow(self) -> None:
        """Look again and again, until cancelled. Nothing that a look raises ends it."""
        clock = asyncio.get_running_loop().time
        self.store.when_committed(self._changed.set)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            began = clock()
            try:
                async with asyncio.timeout(_LONGEST_LOOK_SECONDS):
                    await self.refresh()
            except ControlError:  # the store says what is wrong
                pass
            except Exception as error:
                self._tell("records", error)
            else:
                self._tell("records", None)
            await asyncio.sleep(min(_SHARE * (clock() - began), LOOK_SECONDS))


@contextlib.asynccontextmanager
async def following(followed: Followed) -> AsyncIterator[None]:
    """Follows until it is left."""
    async with running(followed.follow(), "records"):
        yield
