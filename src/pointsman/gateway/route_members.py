"""Whom a route may ask, by the records of this moment, and whether they answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pointsman.config.secrets import SecretUnreadable, read_secret
from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.model_table import Target
from pointsman.core.provider import Provider
from pointsman.core.route import ALIAS, CHAIN, MODEL, RUNNER, Route, ValidatedEndpoint
from pointsman.core.runner_model import RunnerModel
from pointsman.engine.model_file import check_model_file
from pointsman.gateway.named_routes import model_target, named_route
from pointsman.routing.members import target_of
from pointsman.store.interface import Reader

Verify = Callable[[Candidate, str], Awaitable[tuple[ValidatedEndpoint, ...]]]
"""Asks an upstream, of the provider with that name. Raises NotPossibleNow."""
_MOST_AT_ONCE = 32
"""Members that are verified together: the longest chain takes three rounds of 30 s, and our commands wait for 120."""
_MOST_TOLD = 8
"""Members whose failure is told in full: a gRPC status has room for 8 KiB."""
_GGUF, _RUNNER = "gguf", "runner"


async def providers_of(reader: Reader, route: Route) -> Mapping[str, Provider]:
    """The records that a direct route or a chain names, as far as there are any."""
    found = [await reader.provider(route.account, name) for name in route.provider_names]
    return {provider.name: provider for provider in found if provider is not None}


async def followed(reader: Reader, route: Route) -> Route:
    """The route that an alias leads to; any other is its own. Raises NotPossibleNow for one that leads nowhere."""
    if route.kind != ALIAS:
        return route
    target = await named_route(reader, route.account, route.target)
    if target is None:
        raise NotPossibleNow(
            f"{route.name} leads to route {route.target[:64]!r}, which does not exist; see: pointsman route list"
        )
    return target


async def members_of(reader: Reader, route: Route) -> tuple[Member, ...]:
    """Whom a route may ask, the fallback last; an alias' are its target's. Raises why the first cannot be used."""
    route = await followed(reader, route)
    if route.kind in (RUNNER, MODEL):
        return _members(await model_target(reader, route))
    return _members(target_of(route, await providers_of(reader, route)))


async def usable_target(reader: Reader, route: Route) -> Target:
    """What a route leads to, of a chain without those who cannot be used. Raises why, when there is nobody."""
    if route.kind in (RUNNER, MODEL):
        return await model_target(reader, route)
    return target_of(route, await providers_of(reader, route), left_out=_ignored)


def _ignored(name: str, error: Exception) -> None:
    """Told by whoever serves the chain."""


def _members(target: Target) -> tuple[Member, ...]:
    if isinstance(target, Chain):
        return target.all_members
    if isinstance(target, RunnerModel):
        target = target.candidate
    return (target if isinstance(target, Member) else Member(target.provider, target),)


def protocols_of(target: Target) -> tuple[str, ...]:
    """The dialects of all members."""
    return tuple(dict.fromkeys(each for member in _members(target) for each in member.candidate.protocols))


def called(members: Sequence[Member]) -> Sequence[object]:
    """What a verification of them is about, to be compared; a timeout changes nothing of what an upstream is asked.

    A model file is not loaded to verify it.
    """
    compared = [each for each in members if each.candidate.endpoint.scheme != _GGUF]
    return [(replace(each.candidate, timeout_seconds=0.0), each.key_file) for each in compared]


async def verify_members(verify: Verify, route: Route, members: Sequence[Member]) -> tuple[ValidatedEndpoint, ...]:
    """Ask every member that is reached over a network, several at once. Raises NotPossibleNow unless all answer.

    A key that is in a file is read for it. Of a local model the beginning of its file is looked at. Whether a runner is
    connected is for whoever has its line to say.
    """
    places = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ask(member: Member) -> tuple[ValidatedEndpoint, ...] | NotPossibleNow:
        async with places:
            try:
                if member.candidate.endpoint.scheme == _GGUF:
                    return await asyncio.to_thread(_look_at_model, member)
                if member.candidate.endpoint.scheme == _RUNNER:
                    return ()
                return await verify(_with_key(member), member.provider)
            except NotPossibleNow as error:
                return error

    answers = await asyncio.gather(*map(ask, members))
    failures = [each for each in answers if isinstance(each, NotPossibleNow)]
    if failures and route.kind != CHAIN and len(members) == 1:
        raise failures[0]
    if failures:
        told = "; ".join(each.text.rpartition(", or store")[0] or each.text for each in failures[:_MOST_TOLD])
        more = f"; and {len(failures) - _MOST_TOLD} more" if len(failures) > _MOST_TOLD else ""
        raise NotPossibleNow(
            f"{len(failures)} of {len(members)} providers did not pass: {told}{more}; or store the route unverified "
            "with --no-verify"
        )
    return tuple(endpoint for each in answers if not isinstance(each, NotPossibleNow) for endpoint in each)


def _look_at_model(member: Member) -> tuple[()]:
    """Raises NotPossibleNow for a model that no engine could load."""
    try:
        check_model_file(Path(member.candidate.endpoint.path))
    except ValueError as error:
        raise NotPossibleNow(
            f"cannot verify provider {member.provider}: {error}; fetch the model, or correct MODEL_PATH, or store the "
            "route unverified with --no-verify"
        ) from None
    return ()


def _with_key(member: Member) -> Candidate:
    """Raises NotPossibleNow for a key file that cannot be used."""
    if not member.key_file:
        return member.candidate
    try:
        return replace(member.candidate, api_key=read_secret(member.key_file))
    except SecretUnreadable as error:
        raise NotPossibleNow(
            f"cannot verify provider {member.provider}: its key file {error}, or store the route unverified with "
            "--no-verify"
        ) from None
