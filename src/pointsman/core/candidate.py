"""What can be called: candidates, and the bundle that holds them by route."""

from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.core.endpoint import Endpoint
from pointsman.core.profiles import POINTSMAN, ProviderProfile, profile_of_upstream
from pointsman.core.secret import Secret

INFERENCE_LOCAL = "inference.local"
"""The route, and the host, that agents use."""
SANDBOX_SYSTEM = "sandbox-system"
"""The route that only the supervisor's own calls use; no request through a tunnel reaches it."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Candidate:
    """One resolved thing that can be called now (`ResolvedRoute` on the wire)."""

    route: str
    endpoint: Endpoint
    model: str
    """The upstream model: what is sent, whatever the client asked for."""
    protocols: tuple[str, ...]
    provider_type: str = ""
    api_key: Secret | None = None
    timeout_seconds: float = 0.0
    """0 means the default: see `Limits.response_header_seconds` and `Limits.buffered_seconds`."""

    ca_bundle: str = ""
    """Path of the only certificates its TLS is verified against; empty for the system's store."""
    provider: str = ""
    """The record it was made of, by name; empty where there are no records, in bundles and route files."""

    base_is_whole: bool = False
    """Whether the endpoint's path stands for the `/v1` of a request's, as InferRouter's `BaseUrl` does."""
    is_confined: bool = False
    """Whether it may lead only where `core.reach.DirectReach` allows: a user of an account named the address, and no
    operator."""
    ai_model_id: str = ""
    """The registered model that it was made of; empty for what no user of an account has registered."""

    def speaks(self, protocol: str) -> bool:
        """Whether it can be asked in a dialect."""
        return protocol in self.protocols

    @property
    def profile(self) -> ProviderProfile | None:
        """Built-in knowledge of this provider type, if there is any."""
        return profile_of_upstream(self.provider_type)

    @property
    def is_own_gateway(self) -> bool:
        """Whether it is a Pointsman gateway, which executes the route and says what it did."""
        return self.provider_type == POINTSMAN


@dataclass(frozen=True, slots=True)
class Bundle:
    """A revisioned, immutable set of candidates. A request keeps the one it started with."""

    routes: tuple[Candidate, ...] = ()
    """What a request through the tunnel can reach."""
    system_routes: tuple[Candidate, ...] = ()
    """What only `system_inference` can reach."""
    revision: str = ""

    def speaks(self, protocol: str) -> bool:
        """Whether a request through the tunnel can be answered in a dialect."""
        return any(candidate.speaks(protocol) for candidate in self.routes)


def keys_of(candidates: Iterable[Candidate]) -> tuple[Secret, ...]:
    """The keys that nobody else may see."""
    return tuple(each.api_key for each in candidates if each.api_key is not None)


def make_bundle(candidates: tuple[Candidate, ...], revision: str = "") -> Bundle:
    """Partition candidates by route name: `sandbox-system` to the system routes, every other to the user's."""
    return Bundle(
        routes=tuple(c for c in candidates if c.route != SANDBOX_SYSTEM),
        system_routes=tuple(c for c in candidates if c.route == SANDBOX_SYSTEM),
        revision=revision,
    )
