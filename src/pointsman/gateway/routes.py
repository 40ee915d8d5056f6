"""Operations on routes: where `inference.local`, `sandbox-system` and named aliases lead.

A route stores names only. What they resolve to is looked up when it is set, in order to refuse what cannot work, and
again for every bundle.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pointsman.core.control_errors import AlreadyExists, ControlError, InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.provider import Provider, check_name
from pointsman.core.route import (
    DEFAULT_TIMEOUT_SECONDS,
    LONGEST_MODEL,
    LONGEST_TIMEOUT_SECONDS,
    RESERVED_NAMES,
    Route,
    ValidatedEndpoint,
)
from pointsman.routing.resolve import ResolvedRoute, resolve
from pointsman.routing.revision import revision
from pointsman.store.interface import Reader, Store

Verify = Callable[[ResolvedRoute, str], Awaitable[tuple[ValidatedEndpoint, ...]]]
"""Asks the upstream of a resolved route, of the provider with that name. Raises NotPossibleNow."""
_MOST_ROUNDS = 8
"""Of verifying again because the records changed meanwhile."""


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """Where a route is to lead."""

    name: str
    provider_name: str
    model: str
    timeout_seconds: int = 0
    is_new: bool = False
    """Whether an existing route of that name is an error."""


@dataclass(frozen=True, slots=True)
class RouteEdit:
    """What is to change of a route; None stays as it is."""

    provider_name: str | None = None
    model: str | None = None
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class RouteChange:
    """What came of it."""

    route: Route
    verified: bool
    endpoints: tuple[ValidatedEndpoint, ...] = ()


class Routes:
    """Keeps routes. `verify` asks an upstream whether it will answer."""

    def __init__(self, store: Store, verify: Verify, say: Callable[[str], None]) -> None:
        self._store = store
        self._verify = verify
        self._say = say

    async def set(self, account: str, target: RouteTarget, verify: bool) -> RouteChange:
        """Create a route or point it elsewhere. Raises InvalidRequest, NotPossibleNow or AlreadyExists."""
        route = Route(account, target.name, target.provider_name.strip(), target.model.strip(), target.timeout_seconds)
        _check(route)

        async def wanted(reader: Reader) -> Route:
            if target.is_new and await reader.route(account, route.name) is not None:
                raise AlreadyExists(f"route {route.name} exists; 'pointsman route update {route.name}' changes it")
            return route

        return await self._change(wanted, verify)

    async def update(self, account: str, name: str, edit: RouteEdit, verify: bool) -> RouteChange:
        """Change what is given, in one step. Raises NotFound, InvalidRequest or NotPossibleNow."""
        if edit == RouteEdit():
            raise InvalidRequest("nothing to change; give a provider, a model or a timeout")

        async def wanted(reader: Reader) -> Route:
            route = await reader.route(account, name)
            if route is None:
                raise _no_route(name)
            edited = replace(
                route,
                provider_name=route.provider_name if edit.provider_name is None else edit.provider_name.strip(),
                model=route.model if edit.model is None else edit.model.strip(),
                timeout_seconds=route.timeout_seconds if edit.timeout_seconds is None else edit.timeout_seconds,
            )
            _check(edited)
            return edited

        return await self._change(wanted, verify)

    async def _change(self, wanted: Callable[[Reader], Awaitable[Route]], verify: bool) -> RouteChange:
        """Write what is wanted, if what it resolves to at that moment is what was verified."""
        verified = ""
        endpoints: tuple[ValidatedEndpoint, ...] = ()
        for _ in range(_MOST_ROUNDS):
            if verify:
                async with self._store.read() as reader:
                    route = await wanted(reader)
                    resolved = resolve(route, await _provider_of(reader, route))
                verified = _called(resolved)
                endpoints = await self._verify(resolved, route.provider_name)
            async with self._store.write() as writer:
                route = await wanted(writer)
                resolved = resolve(route, await _provider_of(writer, route))
                if verify and _called(resolved) != verified:
                    continue
                stored = await writer.put_route(route)
            self._say(
                f"route {stored.name} of {stored.account}: version {stored.version}, {stored.provider_name} → "
                f"{stored.model}, timeout {stored.timeout_seconds or DEFAULT_TIMEOUT_SECONDS} s"
                f"{'' if verify else ', not verified'}"
            )
            return RouteChange(stored, verify, endpoints)
        raise NotPossibleNow("the records changed again and again while they were being verified; try again")

    async def get(self, account: str, name: str) -> Route:
        """One route. Raises NotFound."""
        async with self._store.read() as reader:
            route = await reader.route(account, name)
        if route is None:
            raise _no_route(name)
        return route

    async def list(self, account: str) -> Sequence[Route]:
        """All of an account's, by name."""
        async with self._store.read() as reader:
            return await reader.routes(account)

    async def delete(self, account: str, name: str) -> bool:
        """Whether there was one."""
        async with self._store.write() as writer:
            deleted = await writer.delete_route(account, name)
        if deleted:
            self._say(f"route {name} of {account}: deleted")
        return deleted

    async def problem(self, account: str, route: Route) -> str:
        """Why the route cannot be used at present; empty when it can."""
        async with self._store.read() as reader:
            try:
                resolve(route, await _provider_of(reader, route))
            except ControlError as error:
                return error.text
        return ""


def _called(resolved: ResolvedRoute) -> str:
    """What a verification is about: a timeout changes nothing of what an upstream is asked."""
    return revision(b"", (replace(resolved, timeout_seconds=0),))


def _check(route: Route) -> None:
    """Raises InvalidRequest for what cannot be a route."""
    if route.name not in RESERVED_NAMES:
        check_name(route.name, "route's name")
    if not route.provider_name:
        raise InvalidRequest("provider_name is required: the name of a provider record")
    if not route.model:
        raise InvalidRequest("model_id is required: the model as the provider spells it")
    if len(route.model) > LONGEST_MODEL or not route.model.isprintable():
        raise InvalidRequest(f"the model has over {LONGEST_MODEL} characters, or some that cannot be printed")
    if not 0 <= route.timeout_seconds <= LONGEST_TIMEOUT_SECONDS:
        raise InvalidRequest(
            f"a timeout of {route.timeout_seconds} s; between 1 and {LONGEST_TIMEOUT_SECONDS}, or 0 for the default"
        )


async def _provider_of(reader: Reader, route: Route) -> Provider:
    provider = await reader.provider(route.account, route.provider_name)
    if provider is None:
        raise NotPossibleNow(
            f"provider {route.provider_name[:64]!r} not found; create it first: pointsman provider create --name NAME"
        )
    return provider


def _no_route(name: str) -> NotFound:
    if name in RESERVED_NAMES:
        flag = " --system" if name != RESERVED_NAMES[0] else ""
        return NotFound(f"inference route {name!r} is not configured; next: pointsman inference set{flag}")
    return NotFound(f"there is no route {name[:64]!r}; see: pointsman route list")
