"""Whether providers answer: one cheap question each, over the data plane's own path to upstreams.

No completion is asked for, so that looking burns no quota, and a local model is not loaded unless that is wanted. What
was found stays for a while, however many ask.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pointsman.core.candidate import Candidate
from pointsman.core.errors import RouterError, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, KIB
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.provider import Provider
from pointsman.core.route import Route
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.call import Call
from pointsman.proxy.sweep import Sweep
from pointsman.proxy.upstream.pool import Pool
from pointsman.proxy.upstream.resolve import Resolver
from pointsman.routing.resolve import Unresolvable, resolve
from pointsman.store.interface import Store
from pointsman.wire.request import RequestHead

_PATH = "/v1/models"
_MOST_TARGETS = 256
"""Of one account, by name; the others are not looked at."""
HEALTHY, NOT_LOADED, UNREACHABLE, UNUSABLE = "healthy", "not_loaded", "unreachable", "unusable"


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Bounds of looking; the InferRouter-compatible design gives the 5 s, the others are ours."""

    seconds: float = 5.0  # for one provider: unreachable
    keep_seconds: float = 30.0  # the same answer for whoever asks meanwhile
    at_once: int = 8  # providers asked at the same time
    body_bytes: int = 64 * KIB  # never read; what an upstream sends unasked is bounded


@dataclass(frozen=True, slots=True)
class Target:
    """A provider to be looked at."""

    provider: str
    candidate: Candidate | None
    """With the key that a request would be sent with; None when the record leads nowhere."""


@dataclass(frozen=True, slots=True)
class Found:
    """How it is."""

    provider: str
    status: str
    """`healthy`, `auth_error`, `rate_limit`, `server_error`, `unexpected`, `unreachable`, `not_loaded`, `unusable`."""
    http_status: int | None = None
    latency_ms: int | None = None
    """Until the head of the answer."""


@dataclass(frozen=True, slots=True)
class Looked:
    """All providers of one account."""

    checked_at: float
    """Seconds since the epoch."""
    found: tuple[Found, ...]


Targets = Callable[[str], Awaitable[Sequence[Target]]]
"""The providers of an account."""
LoadLocal = Callable[[Candidate], Awaitable[None]]
"""Start a local model's engine and wait until it is ready. Raises RouterError."""


async def cannot_load(candidate: Candidate) -> None:
    """For a gateway without an engine. Raises UpstreamUnavailable."""
    raise UpstreamUnavailable("this gateway has no local engine")


def stored_targets(store: Store) -> Targets:
    """The providers that are stored, each as a route to it would be resolved."""

    async def targets(account: str) -> Sequence[Target]:
        async with store.read() as reader:
            providers = await reader.providers(account, _MOST_TARGETS, 0)
        return [Target(each.name, _candidate(each)) for each in providers]

    return targets


def _candidate(provider: Provider) -> Candidate | None:
    try:
        return resolve(Route(provider.account, "health", provider.name, ""), provider).candidate()
    except Unresolvable:
        return None


class ProviderHealth:
    """Looks when asked, one at a time for an account. `wall_clock`: seconds since the epoch."""

    def __init__(
        self,
        targets: Targets,
        *,
        load_local: LoadLocal = cannot_load,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
        limits: HealthLimits = HealthLimits(),
    ) -> None:
        self._targets = targets
        self._load_local = load_local
        self._wall_clock = wall_clock
        self._clock = clock
        self._limits = limits
        self._kept: dict[tuple[str, bool], tuple[float, Looked]] = {}
        self._turn = asyncio.Lock()

    async def look(self, account: str, *, load: bool = False) -> Looked:
        """How the account's providers are, as of at most `keep_seconds` ago. `load`: local models, too."""
        async with self._turn:
            now = self._clock()
            self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < self._limits.keep_seconds}
            kept = self._kept.get((account, load))
            if kept is not None:
                return kept[1]
            looked = Looked(self._wall_clock(), await self._look(await self._targets(account), load))
            self._kept[account, load] = (self._clock(), looked)
            return looked

    async def _look(self, targets: Sequence[Target], load: bool) -> tuple[Found, ...]:
        places = asyncio.Semaphore(self._limits.at_once)
        with upstreams(self._limits) as backend:

            async def one(target: Target) -> Found:
                async with places:
                    return await self._ask(target, backend, load)

            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(one(target)) for target in targets]
        return tuple(each.result() for each in asked)

    async def _ask(self, target: Target, backend: HttpBackend, load: bool) -> Found:
        candidate = target.candidate
        if candidate is None:
            return Found(target.provider, UNUSABLE)
        scheme = candidate.endpoint.scheme
        if scheme == "mock":
            return Found(target.provider, HEALTHY, latency_ms=0)
        if scheme == "gguf" and not load:
            return Found(target.provider, NOT_LOADED)
        began = self._clock()
        try:
            # A model takes as long as it takes; its supervisor bounds that.
            async with asyncio.timeout(None if scheme == "gguf" else self._limits.seconds):
                if scheme == "gguf":
                    await self._load_local(candidate)
                    status = None
                else:
                    status = await _status(candidate, backend)
        except (TimeoutError, RouterError):
            return Found(target.provider, UNREACHABLE)
        latency = round((self._clock() - began) * 1000)
        return Found(target.provider, HEALTHY if status is None else _word(status), status, latency)


async def _status(candidate: Candidate, backend: HttpBackend) -> int:
    head = RequestHead("GET", _PATH, 1, [])
    response = await backend.open(Call(candidate, InferenceProtocol.MODEL_DISCOVERY, head, _PATH, b""))
    try:
        return response.head.status
    finally:
        response.close()


def _word(status: int) -> str:
    if 200 <= status <= 299 or status in (404, 405):
        return HEALTHY  # a server that has no list of models answers all the same
    if status in (401, 402, 403):
        return "auth_error"
    if status == 429:
        return "rate_limit"
    return "server_error" if status >= 500 else "unexpected"


@contextmanager
def upstreams(limits: HealthLimits) -> Iterator[HttpBackend]:
    """The data plane's path to upstreams, with connections of its own that end with it."""
    bounds = replace(DEFAULT_LIMITS, response_body_bytes=limits.body_bytes)
    loop = asyncio.get_running_loop()
    sweep = Sweep(loop, bounds.sweep_seconds, loop.time)
    resolver = Resolver()
    pool = Pool(bounds, sweep, resolver)
    try:
        yield HttpBackend(pool, bounds, sweep)
    finally:
        pool.close()
        resolver.close()
        sweep.close()
