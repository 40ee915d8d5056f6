"""Whom a stored route may ask, by the records of this moment, and whether they answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pointsman.core.control_errors import ControlError, NotPossibleNow
from pointsman.core.route import ALIAS, CHAIN, Route, RouteCandidate, ValidatedEndpoint
from pointsman.routing.resolve import ResolvedRoute
from pointsman.routing.resolve_chain import ResolvedMember, members_of, resolve_member
from pointsman.store.interface import Reader

Verify = Callable[[ResolvedRoute, str], Awaitable[tuple[ValidatedEndpoint, ...]]]
"""Asks the upstream of a resolved route, of the provider with that name. Raises NotPossibleNow."""
_MOST_AT_ONCE = 32
"""Members that are verified together: the longest chain takes three rounds of 30 s, and our commands wait for 120."""
_MOST_TOLD = 8
"""Members whose failure is told in full: a gRPC status has room for 8 KiB."""


async def resolved_members(reader: Reader, route: Route) -> tuple[ResolvedMember, ...]:
    """All members of a route, or of the one that an alias leads to. Raises why the first of them cannot be used."""
    route = await _followed(reader, route)
    return tuple([await _resolved(reader, route, each) for each in members_of(route)])


async def usable_members(reader: Reader, route: Route) -> tuple[ResolvedMember, ...]:
    """Those that can be used, at least one. Raises, when there is none, why the first cannot."""
    route = await _followed(reader, route)
    found: list[ResolvedMember] = []
    problems: list[ControlError] = []
    for each in members_of(route):
        try:
            found.append(await _resolved(reader, route, each))
        except ControlError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    return tuple(found)


async def _followed(reader: Reader, route: Route) -> Route:
    if route.kind != ALIAS:
        return route
    target = await reader.route(route.account, route.target)
    if target is None:
        raise NotPossibleNow(
            f"{route.name} leads to route {route.target[:64]!r}, which does not exist; see: pointsman route list"
        )
    return target


async def _resolved(reader: Reader, route: Route, member: RouteCandidate) -> ResolvedMember:
    provider = await reader.provider(route.account, member.provider_name)
    if provider is None:
        raise NotPossibleNow(
            f"provider {member.provider_name[:64]!r} not found; create it first: pointsman provider create --name NAME"
        )
    return resolve_member(route, member, provider)


async def verify_members(
    verify: Verify, route: Route, members: Sequence[ResolvedMember]
) -> tuple[ValidatedEndpoint, ...]:
    """Ask every member that is reached over a network, several at once. Raises NotPossibleNow unless all answer.

    A model file is not loaded for it.
    """
    places = asyncio.Semaphore(_MOST_AT_ONCE)
    asked = [(each.route, each.provider_name) for each in members if each.route is not None]

    async def ask(resolved: ResolvedRoute, name: str) -> tuple[ValidatedEndpoint, ...] | NotPossibleNow:
        async with places:
            try:
                return await verify(resolved, name)
            except NotPossibleNow as error:
                return error

    answers = await asyncio.gather(*(ask(resolved, name) for resolved, name in asked))
    failures = [each for each in answers if isinstance(each, NotPossibleNow)]
    if failures and route.kind != CHAIN and len(members) == 1:
        raise failures[0]
    if failures:
        told = "; ".join(each.text.rpartition(", or store")[0] or each.text for each in failures[:_MOST_TOLD])
        more = f"; and {len(failures) - _MOST_TOLD} more" if len(failures) > _MOST_TOLD else ""
        raise NotPossibleNow(
            f"{len(failures)} of {len(asked)} providers did not pass: {told}{more}; or store the route unverified with "
            "--no-verify"
        )
    return tuple(endpoint for each in answers if not isinstance(each, NotPossibleNow) for endpoint in each)
