"""What the data listener's clients may name, and who they are, kept at what the store says.

Every route but the two that sandboxes know is a name here. All is compiled when the store's generation has changed,
which is asked a few times a second; requests never wait for the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from pointsman.config.gateway_records import FileRecords
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.control_errors import ControlError
from pointsman.core.model_table import Entry, ModelAccess, ModelTable, Target
from pointsman.core.provider import Provider
from pointsman.core.route import CHAIN, DIRECT, RESERVED_NAMES, Route
from pointsman.gateway.model_callers import entries_of
from pointsman.proxy.background import running
from pointsman.routing.members import chain_of
from pointsman.routing.resolve import Unresolvable, resolve
from pointsman.store.interface import Reader, Store

NO_RECORDS = FileRecords()
_LOOK_SECONDS = 0.25
"""Between two looks at the generation: so late a change is in force, whoever has made it."""


class ModelRoutes:
    """`access` is what is in force now. While the store is away it stays as it was."""

    def __init__(
        self,
        store: Store,
        say: Callable[[str], None],
        records: FileRecords = NO_RECORDS,
        default_route: str = "",
    ) -> None:
        """`records` and `default_route` are the default account's, from the gateway's configuration file."""
        self._records = {provider.name: provider for provider in records.providers}
        self._file_routes = records.routes
        self._forwards_model = records.forwards_model
        self._default = default_route
        self._store = store
        self._say = say
        self._generation = -1
        self._told: dict[tuple[str, str], str] = {}
        self.access = ModelAccess()

    async def refresh(self) -> None:
        """Look once. Raises ControlError when the store does not answer."""
        generation = await self._store.generation()
        if generation == self._generation:
            return
        accounts: dict[str, ModelTable] = {}
        keys: dict[bytes, Entry] = {}
        async with self._store.read() as reader:
            for account in await reader.accounts():
                is_default = account.name == DEFAULT_ACCOUNT
                targets = await self._targets(reader, account.name)
                table = ModelTable(targets, self._default if is_default else "")
                accounts[account.name] = table
                keys.update(await entries_of(reader, account.name, table))
        self.access, self._generation = ModelAccess(accounts, keys), generation

    async def _targets(self, reader: Reader, account: str) -> dict[str, Target]:
        known = self.access.accounts.get(account, ModelTable()).targets
        targets: dict[str, Target] = {}
        in_file = self._file_routes if account == DEFAULT_ACCOUNT else ()
        for route in (*await reader.routes(account), *in_file):
            if route.name in RESERVED_NAMES or route.kind not in (DIRECT, CHAIN):
                continue
            problem = ""
            try:
                providers = await _providers_of(reader, route)
                if account == DEFAULT_ACCOUNT:
                    providers = {**providers, **self._records}
                target = self._resolved(route, providers)
                # What is derived from a candidate, and its connections, outlive a change of another route.
                targets[route.name] = known[route.name] if known.get(route.name) == target else target
            except ControlError as error:
                problem = error.text
            self._tell(account, route.name, problem)
        return targets

    def _resolved(self, route: Route, providers: Mapping[str, Provider]) -> Target:
        """Raises ControlError."""
        if route.kind == CHAIN:

            def left_out(name: str, error: Unresolvable) -> None:
                self._tell(route.account, f"{route.name}, provider {name}", error.text)

            forwards = self._forwards_model and route in self._file_routes
            return chain_of(route, providers, forwards_model=forwards, left_out=left_out)
        provider = providers.get(route.provider_name)
        if provider is None:
            raise Unresolvable(f"there is no provider {route.provider_name}")
        return replace(resolve(route, provider).candidate(), provider=provider.name)

    def _tell(self, account: str, name: str, problem: str) -> None:
        if problem != self._told.get((account, name), ""):
            self._told[account, name] = problem
            self._say(f"model {name} of {account}: {f'not served: {problem}' if problem else 'served again'}")

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(ControlError):  # the store says what is wrong; what is in force stays
                await self.refresh()


async def _providers_of(reader: Reader, route: Route) -> dict[str, Provider]:
    names = {route.provider_name, route.fallback, *(each.provider_name for each in route.candidates)} - {""}
    found = [await reader.provider(route.account, name) for name in sorted(names)]
    return {provider.name: provider for provider in found if provider is not None}


@contextlib.asynccontextmanager
async def following(routes: ModelRoutes) -> AsyncIterator[None]:
    """Looks at once, and then again and again until it is left."""
    await routes.refresh()
    async with running(routes.follow(), "model routes"):
        yield
