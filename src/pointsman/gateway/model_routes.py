"""What the data listener's clients may name, and who they are, kept at what the store says.

Every route is a name here, and every registered model by its alias, but for the two that sandboxes know: these are
while only the gateway can call what they lead to. All is compiled anew when the store, or the name of the
default route, has changed; when that is looked at is `following`'s, and requests never wait for the store.
"""

import asyncio
from collections.abc import Callable, Mapping

from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.ai_model import AiModel
from pointsman.core.attempts import Member
from pointsman.core.context_options import ContextOptions
from pointsman.core.control_errors import ControlError
from pointsman.core.model_table import Entry, ModelAccess, ModelTable, Target
from pointsman.core.route import CHAIN, DIRECT, RESERVED_NAMES, Route
from pointsman.core.runner import Runner
from pointsman.gateway.model_callers import entries_of
from pointsman.gateway.route_members import providers_of
from pointsman.routing.members import target_of
from pointsman.routing.registered_models import target_of_model
from pointsman.routing.resolve import Unresolvable
from pointsman.store.interface import Reader

_ROUTES_AT_ONCE = 8
"""Compiled before requests get a turn: about 0.1 ms for each member of a chain."""


class ModelRoutes:
    """`access` is what is in force now. While the store is away it stays as it was."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[tuple[str, str], str] = {}
        self.access = ModelAccess()
        self.on_halted: Callable[[str], None] = lambda account: None
        """Told of each account that was halted, once it gets nothing more."""
        self.contexts: Mapping[tuple[str, str], ContextOptions] = {}
        """Of routes and models that have any, by account and name."""

    async def take(self, reader: Reader, default_route: str) -> None:
        """See Kept."""
        accounts: dict[str, ModelTable] = {}
        keys: dict[bytes, Entry] = {}
        halted: set[str] = set()
        contexts: dict[tuple[str, str], ContextOptions] = {}
        for account in await reader.accounts():
            if account.halted_at is not None:
                halted.add(account.name)
            targets, unserved = await self._targets(reader, account.name, contexts)
            table = ModelTable(targets, default_route if account.name == DEFAULT_ACCOUNT else "", unserved=unserved)
            accounts[account.name] = table.without(RESERVED_NAMES)
            keys.update(await entries_of(reader, account.name, table))
        before = self.access.halted
        self.access = ModelAccess(accounts, keys, frozenset(halted))
        self.contexts = contexts
        for name in sorted(halted - before):
            self.on_halted(name)

    async def _targets(
        self, reader: Reader, account: str, contexts: dict[tuple[str, str], ContextOptions]
    ) -> tuple[dict[str, Target], frozenset[str]]:
        """What names lead to, and the names that lead nowhere. Adds what they take out of conversations."""
        before = self.access.accounts.get(account, ModelTable())
        known = {**before.targets, **before.barred}
        targets: dict[str, Target] = {}
        names: set[str] = set()
        for number, route in enumerate(await reader.routes(account)):
            if number % _ROUTES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if route.kind not in (DIRECT, CHAIN):
                continue
            names.add(route.name)
            if route.context is not None:
                contexts[account, route.name] = route.context
            problem = ""
            try:
                target = await self._target(reader, route)
                if route.name in RESERVED_NAMES and not isinstance(target, Member):
                    continue  # a sandbox calls it itself
                # What is derived from a candidate, and its connections, outlive a change of another route.
                targets[route.name] = known[route.name] if known.get(route.name) == target else target
            except ControlError as error:
                problem = error.text if route.name not in RESERVED_NAMES else ""
            self._tell(account, route.name, problem)
        runners: dict[str | None, Runner] = {each.id: each for each in await reader.runners(account)}
        for number, model in enumerate(await reader.ai_models(account)):
            if number % _ROUTES_AT_ONCE == 0:
                await asyncio.sleep(0)
            names.add(model.alias)
            if model.context is not None and model.alias not in targets:
                contexts[account, model.alias] = model.context
            self._add_model(targets, known, model, runners.get(model.runner_id))
        return targets, frozenset(names.difference(targets, RESERVED_NAMES))

    def _add_model(
        self, targets: dict[str, Target], known: Mapping[str, Target], model: AiModel, runner: Runner | None
    ) -> None:
        problem = ""
        try:
            target = target_of_model(model, runner)
            targets.setdefault(model.alias, known[model.alias] if known.get(model.alias) == target else target)
        except ControlError as error:
            problem = error.text
        self._tell(model.account, model.alias, problem)

    async def _target(self, reader: Reader, route: Route) -> Target:
        """Raises ControlError."""

        def left_out(name: str, error: Unresolvable) -> None:
            self._tell(route.account, f"{route.name}, provider {name}", error.text)

        return target_of(route, await providers_of(reader, route), left_out=left_out)

    def _tell(self, account: str, name: str, problem: str) -> None:
        if problem != self._told.get((account, name), ""):
            self._told[account, name] = problem
            self._say(f"model {name} of {account}: {f'not served: {problem}' if problem else 'served again'}")
