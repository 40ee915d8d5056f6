"""Whether the servers are there that chains of the configuration file fall back on: one GET of each base URL.

No key is sent, and any status counts: a server that answers is there. What to make of one that does not is the
caller's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pointsman.config.gateway_records import FileRecords
from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import ControlError
from pointsman.core.errors import RouterError
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.provider import Provider
from pointsman.gateway.file_layer import NO_RECORDS
from pointsman.gateway.provider_health import HealthLimits, upstreams
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.call import Call
from pointsman.routing.members import member_of
from pointsman.wire.request import RequestHead

REACH_LIMITS = HealthLimits(at_once=64)
"""5 s for each, as for a provider whose health is asked for; so many together that a start waits for few rounds."""


async def unreachable_fallbacks(
    records: FileRecords, known: FileRecords = NO_RECORDS, limits: HealthLimits = REACH_LIMITS
) -> tuple[str, ...]:
    """A line for each fallback of `records` that does not answer, without a next step.

    Those that are the same in `known` are not asked. Each may take `limits.seconds`.
    """
    before = _fallbacks(known)
    asked = {name: found for name, found in _fallbacks(records).items() if before.get(name, (None,))[0] != found[0]}
    places = asyncio.Semaphore(limits.at_once)
    with upstreams(limits) as backend:

        async def one(provider: Provider, chains: Sequence[str]) -> str:
            candidate = _keyless_candidate(provider)
            if candidate is None:
                return ""
            async with places:
                reason = await _reason(candidate, backend, limits.seconds)
            return reason and _line(provider, chains, candidate, reason)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*found)) for found in asked.values()]
    return tuple(line for line in (each.result() for each in tasks) if line)


def _fallbacks(records: FileRecords) -> Mapping[str, tuple[Provider, Sequence[str]]]:
    """By name, each with the chains that end with it."""
    providers = {each.name: each for each in records.providers}
    chains: dict[str, list[str]] = {}
    for route in records.routes:
        if route.fallback in providers:
            chains.setdefault(route.fallback, []).append(route.name)
    return {name: (providers[name], routes) for name, routes in chains.items()}


def _keyless_candidate(provider: Provider) -> Candidate | None:
    """None for what is not reached over HTTP, and for a record that leads nowhere, which is told elsewhere."""
    try:
        candidate = member_of(provider, "", forwards_model=True).candidate
    except ControlError:
        return None
    return replace(candidate, api_key=None) if candidate.endpoint.scheme in ("http", "https") else None


async def _reason(candidate: Candidate, backend: HttpBackend, seconds: float) -> str:
    """Why it does not answer; nothing when it does."""
    path = "" if candidate.endpoint.path else "/"
    call = Call(candidate, InferenceProtocol.MODEL_DISCOVERY, RequestHead("GET", path, 1, []), path, b"")
    try:
        async with asyncio.timeout(seconds):
            response = await backend.open(call)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except RouterError as error:
        return error.detail
    response.close()
    return ""


def _line(provider: Provider, chains: Sequence[str], candidate: Candidate, reason: str) -> str:
    endpoint = candidate.endpoint
    more = f" and {len(chains) - 1} more" if len(chains) > 1 else ""
    return (
        f"provider {provider.name}, the fallback of route {chains[0]}{more}, does not answer at "
        f"{endpoint.scheme}://{endpoint.authority}{endpoint.path}: {reason}"
    )
