"""Whether providers answer: one cheap question each, over the data plane's own path to upstreams.

No completion is asked for, so that looking burns no quota, and a local model is not loaded unless that is wanted. What
was found stays for a while, however many ask. Where a key lies in a file, the key of the moment is sent. Of a runner it
is told whether it is connected; its models' servers are not asked.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pointsman.config.secrets import SecretUnreadable, read_secret
from pointsman.core.attempts import ErrorCategory
from pointsman.core.candidate import Candidate
from pointsman.core.errors import RouterError, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, KIB
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.provider import Provider
from pointsman.gateway.own_upstreams import own_upstreams
from pointsman.gateway.runners import SeenRunner
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.call import Call
from pointsman.routing.members import member_of
from pointsman.routing.registered_models import provider_of_runner
from pointsman.routing.resolve import Unresolvable
from pointsman.store.interface import Store
from pointsman.wire.request import RequestHead

_PATH = "/v1/models"
_MOST_TARGETS = 256
"""Of one account, by name; the others are not looked at."""
OK, NOT_LOADED, UNREACHABLE, UNUSABLE = "ok", "not_loaded", "unreachable", "unusable"
NOT_CONNECTED = "not_connected"
_READY = "ready"
"""Of an engine's states."""


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Bounds of looking; the InferRouter-compatible design gives the 5 s, the others are ours."""

    seconds: float = 5.0  # for one provider: unreachable
    keep_seconds: float = 30.0  # the same answer for whoever asks meanwhile
    at_once: int = 32  # providers asked at the same time
    body_bytes: int = 64 * KIB  # never read; what an upstream sends unasked is bounded


@dataclass(frozen=True, slots=True)
class Target:
    """A provider to be looked at."""

    provider: str
    candidate: Candidate | None
    """With the key that a request is sent with, unless that lies in a file; None when the record leads nowhere."""
    key_file: str = ""
    """Empty when the candidate carries its key, or needs none."""


@dataclass(frozen=True, slots=True)
class Found:
    """How it is."""

    provider: str
    status: str
    """`ok`, a category of the operation log, or `unreachable`, `not_loaded`, `unusable`, `not_connected`."""
    http_status: int | None = None
    latency_ms: int | None = None
    """Until the head of the answer."""


@dataclass(frozen=True, slots=True)
class Looked:
    """All providers of one account, then its runners."""

    checked_at: float
    """Seconds since the epoch."""
    found: tuple[Found, ...]


def health_answer(looked: Looked) -> dict[str, Any]:
    """What `/health/providers` tells; of a provider the first four fields are those that InferRouter's clients know."""
    checked_at = datetime.fromtimestamp(int(looked.checked_at), UTC).isoformat().replace("+00:00", "Z")
    return {"checked_at": checked_at, "providers": [_told(each) for each in looked.found]}


def _told(found: Found) -> dict[str, Any]:
    told = {"name": found.provider, "status": found.status}
    optional = {"http_status": found.http_status, "latency_ms": found.latency_ms}
    return {**told, **{name: value for name, value in optional.items() if value is not None}}


Targets = Callable[[str], Awaitable[Sequence[Target]]]
"""The providers of an account."""
SeenRunners = Callable[[str], Awaitable[Sequence[SeenRunner]]]
"""The runners of an account, by name."""


async def no_runners(account: str) -> Sequence[SeenRunner]:
    """Where there are none."""
    return ()


async def _cannot_load(candidate: Candidate) -> None:
    raise UpstreamUnavailable("this gateway has no local engine")


@dataclass(frozen=True, slots=True)
class LocalModels:
    """What is known of the engines beside the gateway."""

    load: Callable[[Candidate], Awaitable[object]]
    """Start a model's engine and wait until it is ready. Raises RouterError."""
    states: Callable[[], Mapping[str, str]]
    """What each is doing, by the path of its model."""


NO_LOCAL_MODELS = LocalModels(_cannot_load, dict)


def targets_of_records(store: Store) -> Targets:
    """The providers of the records, each as a chain would call it."""

    async def targets(account: str) -> Sequence[Target]:
        async with store.read() as reader:
            providers = await reader.providers(account, _MOST_TARGETS, 0)
        return [_target(each) for each in providers]

    return targets


def _target(provider: Provider) -> Target:
    try:
        member = member_of(provider, "", forwards_model=True)
    except Unresolvable:
        return Target(provider.name, None)
    return Target(provider.name, member.candidate, member.key_file)


class ProviderHealth:
    """Looks when asked, one at a time for an account. `wall_clock`: seconds since the epoch."""

    def __init__(
        self,
        targets: Targets,
        local: LocalModels = NO_LOCAL_MODELS,
        runners: SeenRunners = no_runners,
        *,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
        limits: HealthLimits = HealthLimits(),
    ) -> None:
        self._targets = targets
        self._local = local
        self._runners = runners
        self._wall_clock = wall_clock
        self._clock = clock
        self._limits = limits
        self._kept: dict[tuple[str, bool], tuple[float, Looked]] = {}
        self._turns: defaultdict[tuple[str, bool], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def look(self, account: str, *, load: bool = False) -> Looked:
        """How the account's providers are, as of at most `keep_seconds` ago. `load`: local models, too."""
        # A look that loads a model may take minutes, and holds up none that does not.
        async with self._turns[account, load]:
            now = self._clock()
            self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < self._limits.keep_seconds}
            kept = self._kept.get((account, load))
            if kept is not None:
                return kept[1]
            found = await self._look(await self._targets(account), load)
            there = (await self._runners(account))[:_MOST_TARGETS]
            looked = Looked(self._wall_clock(), (*found, *map(_found_runner, there)))
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
            return Found(target.provider, OK, latency_ms=0)
        began = self._clock()
        if scheme == "gguf":
            word = await self._local_word(candidate, load)
            latency = None if word != OK else round((self._clock() - began) * 1000)
            return Found(target.provider, word, latency_ms=latency)
        try:
            if target.key_file:
                candidate = replace(candidate, api_key=read_secret(target.key_file))
            async with asyncio.timeout(self._limits.seconds):
                status = await _status(candidate, backend)
        except SecretUnreadable:
            return Found(target.provider, ErrorCategory.AUTH_ERROR)
        except (TimeoutError, RouterError):
            return Found(target.provider, UNREACHABLE)
        return Found(target.provider, _word(status), status, round((self._clock() - began) * 1000))

    async def _local_word(self, candidate: Candidate, load: bool) -> str:
        if not load:
            return OK if self._local.states().get(candidate.endpoint.path) == _READY else NOT_LOADED
        try:
            # A model takes as long as it takes; its supervisor bounds that.
            await self._local.load(candidate)
        except RouterError:
            return UNREACHABLE
        return OK


async def _status(candidate: Candidate, backend: HttpBackend) -> int:
    head = RequestHead("GET", _PATH, 1, [])
    response = await backend.open(Call(candidate, InferenceProtocol.MODEL_DISCOVERY, head, _PATH, b""))
    try:
        return response.head.status
    finally:
        response.close()


def _found_runner(seen: SeenRunner) -> Found:
    return Found(provider_of_runner(seen.runner), OK if seen.is_connected else NOT_CONNECTED)


def _word(status: int) -> str:
    if 200 <= status <= 299 or status in (404, 405):
        return OK  # a server that has no list of models answers all the same
    if status in (401, 402, 403):
        return ErrorCategory.AUTH_ERROR
    if status == 429:
        return ErrorCategory.RATE_LIMIT
    return ErrorCategory.SERVER_ERROR if status >= 500 else ErrorCategory.UNKNOWN


@contextmanager
def upstreams(limits: HealthLimits) -> Iterator[HttpBackend]:
    """The data plane's path to upstreams, with connections of its own that end with it."""
    with own_upstreams(replace(DEFAULT_LIMITS, response_body_bytes=limits.body_bytes)) as backend:
        yield backend
