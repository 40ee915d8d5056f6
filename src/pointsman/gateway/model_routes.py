"""What the data listener's clients may name, kept at what the store says.

Every route but the two that sandboxes know is a name here. The table is compiled when the store's generation has
changed, which is asked a few times a second; requests never wait for the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.control_errors import ControlError
from pointsman.core.model_table import ModelTable, Target
from pointsman.core.route import RESERVED_NAMES
from pointsman.routing.resolve import resolve
from pointsman.store.interface import Store

_LOOK_SECONDS = 0.25
"""Between two looks at the generation: so late a change is in force, whoever has made it."""


class ModelRoutes:
    """`table` is what is in force now. While the store is away it stays as it was."""

    def __init__(self, store: Store, say: Callable[[str], None]) -> None:
        self._store = store
        self._say = say
        self._generation = -1
        self._told: dict[str, str] = {}
        self.table = ModelTable()

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        generation = await self._store.generation()
        if generation == self._generation:
            return
        candidates: dict[str, Target] = {}
        async with self._store.read() as reader:
            for route in await reader.routes(DEFAULT_ACCOUNT):
                if route.name in RESERVED_NAMES:
                    continue
                provider = await reader.provider(DEFAULT_ACCOUNT, route.provider_name)
                problem = "" if provider is not None else f"there is no provider {route.provider_name}"
                if provider is not None:
                    try:
                        candidate = resolve(route, provider).candidate()
                        # What is derived from a candidate, and its connections, outlive a change of another route.
                        known = self.table.targets.get(route.name)
                        candidates[route.name] = known if known == candidate else candidate
                    except ControlError as error:
                        problem = error.text
                self._tell(route.name, problem)
        self.table, self._generation = ModelTable(candidates), generation

    def _tell(self, name: str, problem: str) -> None:
        if problem != self._told.get(name, ""):
            self._told[name] = problem
            self._say(f"model {name}: {f'not served: {problem}' if problem else 'served again'}")

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(ControlError):  # the store says what is wrong; what is in force stays
                await self.refresh()


@contextlib.asynccontextmanager
async def following(routes: ModelRoutes) -> AsyncIterator[None]:
    """Looks at once, and then again and again until it is left."""
    await routes.refresh()
    task = asyncio.get_running_loop().create_task(routes._follow(), name="model routes")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
