"""Operations on routes: where `inference.local`, `sandbox-system` and named aliases lead.

A route stores names only. What they resolve to is looked up when it is set, in order to refuse what cannot work, and
again for every bundle.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from pointsman.core.context_options import ContextOptions
from pointsman.core.control_errors import (
    AlreadyExists,
    ControlError,
    DefinedInFile,
    InvalidRequest,
    NotFound,
    NotPossibleNow,
)
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.route import (
    ALIAS,
    CHAIN,
    DEFAULT_TIMEOUT_SECONDS,
    DIRECT,
    MODEL,
    RESERVED_NAMES,
    RUNNER,
    Route,
    RouteCandidate,
    ValidatedEndpoint,
)
from pointsman.core.runner import Runner
from pointsman.gateway.named_routes import Registered, named_route, named_routes, runner_behind
from pointsman.gateway.route_members import Verify, called, followed, members_of, usable_target, verify_members
from pointsman.gateway.route_rules import check_route, tidied
from pointsman.gateway.runners import NobodyConnected, Presence
from pointsman.routing.registered_models import provider_of_runner
from pointsman.store.interface import Reader, Store

_MOST_ROUNDS = 8
"""Of verifying again because the records changed meanwhile."""


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """Where a route is to lead: to a provider and a model, along a chain, or to another route."""

    name: str
    provider_name: str = ""
    model: str = ""
    timeout_seconds: int = 0
    is_new: bool = False
    """Whether an existing route of that name is an error."""
    candidates: tuple[RouteCandidate, ...] = ()
    strategy: str = ""
    fallback: str = ""
    request_timeout_seconds: int = 0
    target: str = ""
    via_gateway: bool = False
    context: ContextOptions | None = None

    def route(self, account: str) -> Route:
        """The same as a route, unchecked; its kind follows from what is given."""
        kind = ALIAS if self.target else CHAIN if self.candidates or self.fallback or self.strategy else DIRECT
        given = {name: getattr(self, name) for name in _TARGET_FIELDS}
        return tidied(Route(account, kind=kind, **given))


_TARGET_FIELDS = tuple(field.name for field in fields(RouteTarget) if field.name != "is_new")


@dataclass(frozen=True, slots=True)
class RouteEdit:
    """What is to change of a route; None stays as it is. The names are a route's."""

    provider_name: str | None = None
    model: str | None = None
    timeout_seconds: int | None = None
    candidates: tuple[RouteCandidate, ...] | None = None
    """All of them."""
    strategy: str | None = None
    fallback: str | None = None
    """Empty: none any more."""
    request_timeout_seconds: int | None = None
    via_gateway: bool | None = None
    context: ContextOptions | None = None
    """Without any option: nothing is taken out any more."""

    def of(self, route: Route) -> Route:
        """The route after it, unchecked."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return tidied(replace(route, **{name: value for name, value in values.items() if value is not None}))


@dataclass(frozen=True, slots=True)
class RouteChange:
    """What came of it."""

    route: Route
    verified: bool
    endpoints: tuple[ValidatedEndpoint, ...] = ()


class Routes:
    """Keeps routes. `verify` asks an upstream whether it will answer, `presence` tells which runners are there."""

    def __init__(
        self, store: Store, verify: Verify, say: Callable[[str], None], presence: Presence | None = None
    ) -> None:
        self._store = store
        self._verify = verify
        self._say = say
        self._presence = presence or NobodyConnected()

    async def set(self, account: str, target: RouteTarget, verify: bool) -> RouteChange:
        """Create a route or point it elsewhere. Raises InvalidRequest, NotPossibleNow or AlreadyExists."""
        route = target.route(account)
        check_route(route)

        async def wanted(reader: Reader) -> Route:
            existing = await reader.route(account, route.name)
            if existing is not None and existing.from_file:
                raise DefinedInFile("route", route.name)
            if target.is_new and existing is not None:
                raise AlreadyExists(f"route {route.name} exists; 'pointsman route update {route.name}' changes it")
            if await reader.ai_model_by_alias(account, route.name) is not None:
                raise AlreadyExists(f"{route.name} is the alias of a registered model; choose another name")
            return route

        return await self._change(wanted, verify)

    async def update(self, account: str, name: str, edit: RouteEdit, verify: bool) -> RouteChange:
        """Change what is given, in one step. Raises NotFound, InvalidRequest or NotPossibleNow."""
        if edit == RouteEdit():
            raise InvalidRequest("nothing to change; give a provider, a model or a timeout, or what a chain has")

        async def wanted(reader: Reader) -> Route:
            route = await named_route(reader, account, name)
            if route is None:
                raise _no_route(name)
            if route.kind in (RUNNER, MODEL):
                raise await _is_a_model(reader, account, name, "change it: PUT")
            if route.from_file:
                raise DefinedInFile("route", name)
            edited = edit.of(route)
            check_route(edited)
            return edited

        return await self._change(wanted, verify)

    async def _change(self, wanted: Callable[[Reader], Awaitable[Route]], verify: bool) -> RouteChange:
        """Write what is wanted, if what it resolves to at that moment is what was verified."""
        verified: Sequence[object] = ()
        endpoints: tuple[ValidatedEndpoint, ...] = ()
        for _ in range(_MOST_ROUNDS):
            if verify:
                async with self._store.read() as reader:
                    route = await wanted(reader)
                    members = await members_of(reader, route)
                    runner = await runner_behind(reader, await followed(reader, route))
                verified = called(members)
                endpoints = await verify_members(self._verify, route, members)
                if runner is not None:
                    endpoints = (await self._verified(runner),)
            async with self._store.write() as writer:
                route = await wanted(writer)
                members = await members_of(writer, route)
                if verify and called(members) != verified:
                    continue
                stored = await writer.put_route(route)
            self._say(
                f"route {stored.name} of {stored.account}: version {stored.version}, {_told(stored)}"
                f"{'' if verify else ', not verified'}"
            )
            return RouteChange(stored, verify, endpoints)
        raise NotPossibleNow("the records changed again and again while they were being verified; try again")

    async def _verified(self, runner: Runner) -> ValidatedEndpoint:
        """Raises NotPossibleNow for a runner that is not connected. Its model is not asked: that may take a minute."""
        if runner.id not in await self._presence.connected(runner.account, (runner.id,)):
            raise NotPossibleNow(f"{_not_connected(runner)}, or store the route unverified with --no-verify")
        return ValidatedEndpoint(provider_of_runner(runner), InferenceProtocol.CHAT_COMPLETIONS)

    async def get(self, account: str, name: str) -> Route:
        """One route, or registered model. Raises NotFound."""
        async with self._store.read() as reader:
            route = await named_route(reader, account, name)
        if route is None:
            raise _no_route(name)
        return route

    async def list(self, account: str) -> Sequence[Route]:
        """All of an account's, registered models among them, by name."""
        async with self._store.read() as reader:
            return await named_routes(reader, account)

    async def delete(self, account: str, name: str) -> bool:
        """Whether there was one. Raises InvalidRequest for a registered model."""
        async with self._store.write() as writer:
            if await writer.ai_model_by_alias(account, name) is not None:
                raise await _is_a_model(writer, account, name, "delete it: DELETE")
            deleted = await writer.delete_route(account, name)
        if deleted:
            self._say(f"route {name} of {account}: deleted")
        return deleted

    async def problem(self, account: str, route: Route) -> str:
        """Why the route cannot be used at present; empty when it can. A chain can while one of its members can."""
        return (await self.problems(account, (route,)))[0]

    async def problems(self, account: str, routes: Sequence[Route]) -> Sequence[str]:
        """The same of several routes, in their order."""
        found: list[str | Runner] = []
        registered: Registered | None = None
        async with self._store.read() as reader:
            for route in routes:
                try:
                    led_to = await followed(reader, route)
                    if led_to.kind in (RUNNER, MODEL):
                        registered = registered or await Registered.of(reader, account)
                        found.append(registered.usable(led_to.name) or "")
                    else:
                        await usable_target(reader, led_to)
                        found.append("")
                except ControlError as error:
                    found.append(error.text)
        runners: Mapping[str, Runner] = {each.id: each for each in found if isinstance(each, Runner)}
        there = await self._presence.connected(account, tuple(runners)) if runners else ()
        return [each if isinstance(each, str) else "" if each.id in there else _not_connected(each) for each in found]

    async def led_to(self, route: Route) -> Route:
        """The route that an alias leads to, if it is there; any other route is its own."""
        if route.kind != ALIAS:
            return route
        async with self._store.read() as reader:
            return await named_route(reader, route.account, route.target) or route


def _told(route: Route) -> str:
    if route.kind == ALIAS:
        return f"→ route {route.target}"
    if route.kind == CHAIN:
        names = ", ".join(f"{each.provider_name}{'=' + each.model if each.model else ''}" for each in route.candidates)
        return f"{route.strategy} of {names}{', then ' + route.fallback if route.fallback else ', no fallback'}"
    timeout = route.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
    return f"{route.provider_name} → {route.model}, timeout {timeout} s"


def _not_connected(runner: Runner) -> str:
    return f"runner {runner.name} is not connected; start it on its machine: pointsman runner start"


async def _is_a_model(reader: Reader, account: str, name: str, next_step: str) -> InvalidRequest:
    model = await reader.ai_model_by_alias(account, name)
    place = f"/api/v1/ai-models/{model.id if model is not None else ''}"
    return InvalidRequest(f"{name} is a registered model, not a route; {next_step} {place}")


def _no_route(name: str) -> NotFound:
    if name in RESERVED_NAMES:
        flag = " --system" if name != RESERVED_NAMES[0] else ""
        return NotFound(f"inference route {name!r} is not configured; next: pointsman inference set{flag}")
    return NotFound(f"there is no route {name[:64]!r}; see: pointsman route list")
