"""What a sandbox may call now, resolved from the records of this moment.

Compiled once per change of the store and kept: a thousand sandboxes that poll cost a comparison each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM, Candidate
from pointsman.core.control_errors import ControlError
from pointsman.core.route import MODEL, Route
from pointsman.core.sandbox_token import SandboxToken
from pointsman.gateway.named_routes import named_route
from pointsman.gateway.route_members import followed, protocols_of, providers_of, usable_target
from pointsman.routing.resolve import ResolvedRoute, resolve, through_gateway
from pointsman.routing.revision import revision
from pointsman.store.interface import Reader, Store

_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ServedBundle:
    """The routes of one sandbox. Compared by identity: the same object means that nothing has changed."""

    routes: tuple[ResolvedRoute, ...]
    revision: str
    generated_at: float
    """Seconds since the epoch; of the compilation."""


class Bundles:
    """Compiles bundles. `secret` keys their revisions, so that they tell nothing of the keys inside.

    `data_url` is where sandboxes reach the gateway's data listener, for the routes that it executes itself.
    """

    def __init__(
        self, store: Store, secret: bytes, clock: Callable[[], float], say: Callable[[str], None], data_url: str
    ) -> None:
        self._store = store
        self._data_url = data_url
        self._secret = secret
        self._clock = clock
        self._say = say
        self._kept: dict[tuple[str, str], ServedBundle] = {}
        self._kept_at = -1
        self._told: dict[tuple[str, str], str] = {}
        """Why a route was left out, so that it is told once."""

    async def bundle(self, token: SandboxToken) -> ServedBundle:
        """The bundle that a token entitles to. A route that cannot be resolved is left out; others stay."""
        generation = await self._store.generation()
        if generation != self._kept_at:
            self._kept, self._kept_at = {}, generation
        key = (token.account, token.route)
        bundle = self._kept.get(key)
        if bundle is None:
            bundle = await self._compile(token)
            if self._kept_at == generation and len(self._kept) < _MOST_KEPT:
                self._kept[key] = bundle
        return bundle

    async def _compile(self, token: SandboxToken) -> ServedBundle:
        routes = []
        async with self._store.read() as reader:
            account = await reader.account(token.account)
            if account is not None and account.halted_at is not None:
                return ServedBundle((), revision(self._secret, ()), self._clock())
            for name, source in ((INFERENCE_LOCAL, token.route or INFERENCE_LOCAL), (SANDBOX_SYSTEM, SANDBOX_SYSTEM)):
                resolved = await self._resolve(reader, token.account, source)
                if resolved is not None:
                    routes.append(replace(resolved, name=name))
        found = tuple(routes)
        return ServedBundle(found, revision(self._secret, found), self._clock())

    async def _resolve(self, reader: Reader, account: str, name: str) -> ResolvedRoute | None:
        route = await named_route(reader, account, name)
        problem = ""
        resolved = None
        if route is not None:
            try:
                resolved = await self._resolved(reader, route)
            except ControlError as error:
                problem = error.text
        elif name not in (INFERENCE_LOCAL, SANDBOX_SYSTEM):
            problem = "it has been deleted, and a sandbox token names it"
        if problem != self._told.get((account, name), ""):
            self._told[account, name] = problem
            self._say(f"route {name} of {account}: {f'left out of bundles: {problem}' if problem else 'usable again'}")
        return resolved

    async def _resolved(self, reader: Reader, route: Route) -> ResolvedRoute:
        """Raises ControlError for one that cannot be used."""
        route = await followed(reader, route)
        target = await usable_target(reader, route)
        # A key in a file stays where the file is, and only the gateway holds runners' lines and dials users' addresses.
        if route.via_gateway or route.kind == MODEL or not isinstance(target, Candidate):
            return through_gateway(route.name, self._data_url, protocols_of(target))
        return resolve(route, (await providers_of(reader, route))[route.provider_name])
