"""From a stored chain and the records of its providers to what can be verified, and to what a sandbox is told of it.

What the gateway itself needs to call a chain (quotas, mappings, key files) is not here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pointsman.core.profiles import LOCAL_GGUF, LOCAL_PROTOCOLS, POINTSMAN
from pointsman.core.provider import Provider
from pointsman.core.route import DIRECT, Route, RouteCandidate
from pointsman.core.secret import Secret
from pointsman.routing.members import MODEL, MODEL_PATH
from pointsman.routing.resolve import ResolvedRoute, Unresolvable, resolve

GATEWAY_WAIT_SECONDS = 620
"""How long a sandbox waits for the head of a gateway's answer: a runner's lifetime of 600 s, and air."""


@dataclass(frozen=True, slots=True)
class ResolvedMember:
    """One provider of a chain, or its fallback."""

    provider_name: str
    protocols: tuple[str, ...]
    route: ResolvedRoute | None
    """What would be called; None for a model file, which the gateway runs itself."""


def members_of(route: Route) -> tuple[RouteCandidate, ...]:
    """Whom a direct route or a chain may ask, the fallback last."""
    if route.kind == DIRECT:
        return (RouteCandidate(route.provider_name, route.model),)
    return (*route.candidates, *((RouteCandidate(route.fallback),) if route.fallback else ()))


def resolve_member(route: Route, member: RouteCandidate, provider: Provider) -> ResolvedMember:
    """What a member of a route leads to, by the record that its provider has now. Raises Unresolvable."""
    if provider.type.strip().lower() == LOCAL_GGUF and route.kind != DIRECT:
        if not provider.config.get(MODEL_PATH, "").strip():
            raise Unresolvable(
                f"provider {provider.name} names no model file; set it with "
                f"'pointsman provider update {provider.name} --config {MODEL_PATH}=FILE'"
            )
        return ResolvedMember(provider.name, tuple(map(str, LOCAL_PROTOCOLS)), None)
    model = member.model or provider.config.get(MODEL, "").strip()
    if not model:
        raise Unresolvable(
            f"provider {provider.name} has no model of its own; name one, {provider.name}=MODEL, or set it with "
            f"'pointsman provider update {provider.name} --config {MODEL}=NAME'"
        )
    resolved = resolve(replace(route, model=model), provider)
    return ResolvedMember(provider.name, resolved.protocols, resolved)


def through_gateway(name: str, base_url: str, members: Iterable[ResolvedMember]) -> ResolvedRoute:
    """A route that its gateway executes, as a bundle carries it: one candidate, with the dialects of all members.

    It has no key: the sandbox shows its own token.
    """
    protocols = tuple(dict.fromkeys(protocol for member in members for protocol in member.protocols))
    return ResolvedRoute(name, base_url, protocols, Secret(""), name, POINTSMAN, GATEWAY_WAIT_SECONDS)
