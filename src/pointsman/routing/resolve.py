"""From a direct route and the record of its provider to what can be called now.

It happens when a route is used, never when it is stored: a key that was rotated or an endpoint that has moved takes
effect with the next bundle.
"""

from dataclasses import dataclass

from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import InvalidRequest, NotPossibleNow
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.profiles import POINTSMAN, ProviderProfile, known_provider_types, profile_for
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.provider import KEY_FILE, Provider
from pointsman.core.reach import refused_address
from pointsman.core.route import Route
from pointsman.core.secret import Secret


class Unresolvable(InvalidRequest):
    """The provider's record does not lead anywhere. The text holds no credential and no part of a refused URL."""


class NoSuchProvider(Unresolvable):
    """There is no such record; there may be one later."""

    code = NotPossibleNow.code
    http_status = NotPossibleNow.http_status

    def __init__(self, name: str) -> None:
        super().__init__(f"provider {name[:64]!r} not found; create it first: pointsman provider create --name NAME")


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """A route as a bundle carries it. Made here alone, so that its base URL is one that may be called."""

    name: str
    base_url: str
    """As the operator wrote it, without surrounding space."""
    protocols: tuple[str, ...]
    api_key: Secret
    """Empty where it is the caller's to add: a sandbox's own token, or what is in the file of `key_file_of`."""
    model: str
    provider_type: str
    timeout_seconds: int
    """0 means the default of whoever calls it."""

    def candidate(self) -> Candidate:
        """What the data plane calls."""
        return Candidate(
            route=self.name,
            endpoint=parse_endpoint(self.base_url),
            model=self.model,
            protocols=self.protocols,
            provider_type=self.provider_type,
            api_key=self.api_key if self.api_key.reveal() else None,
            timeout_seconds=float(self.timeout_seconds),
        )


def resolve(route: Route, provider: Provider) -> ResolvedRoute:
    """What a route leads to, by the record that its provider has now; without a key when that is in a file.

    Raises Unresolvable for a type that no request can be routed to, for a record without a usable key, and for a base
    URL that is missing, malformed or out of reach (DESIGN section 9).
    """
    profile = profile_for(provider.type)
    if profile is None:
        kinds = ", ".join(known_provider_types())
        raise Unresolvable(
            f"provider {provider.name} is of type {provider.type.strip()!r}, which inference cannot be routed to; "
            f"use a provider of type {kinds}"
        )
    return ResolvedRoute(
        name=route.name,
        base_url=_base_url_of(provider, profile),
        protocols=tuple(str(each) for each in profile.protocols),
        api_key=NO_KEY if key_file_of(provider) else _key_of(provider, profile),
        model=route.model,
        provider_type=profile.provider_type,
        timeout_seconds=route.timeout_seconds,
    )


GATEWAY_WAIT_SECONDS = 620
"""How long a sandbox waits for the head of a gateway's answer: a runner's lifetime of 600 s, and air."""
NO_KEY = Secret("")


def through_gateway(name: str, base_url: str, protocols: tuple[str, ...]) -> ResolvedRoute:
    """A route that its gateway executes, as a bundle carries it. The sandbox shows its own token.

    Models are listed by the gateway itself, whatever the route's own dialects are.
    """
    spoken = tuple(dict.fromkeys((*protocols, InferenceProtocol.MODEL_DISCOVERY.value)))
    return ResolvedRoute(name, base_url, spoken, NO_KEY, name, POINTSMAN, GATEWAY_WAIT_SECONDS)


def key_file_of(provider: Provider) -> str:
    """Where the key of a record lies; empty for one that holds it, as every stored record does."""
    return provider.config.get(KEY_FILE, "").strip() if provider.from_file else ""


def _key_of(provider: Provider, profile: ProviderProfile) -> Secret:
    """The key of a record, the profile's own names first. Raises Unresolvable when there is none that can be sent."""
    for name in (*profile.credential_key_names, *sorted(provider.credentials)):
        secret = provider.credentials.get(name)
        value = secret.reveal().strip() if secret is not None else ""
        if not value:
            continue
        if not all("!" <= character <= "~" for character in value):
            # It becomes a header's value, where anything else is cut, refused or read as another header.
            raise Unresolvable(
                f"the credential {name} of provider {provider.name} holds a space or a character outside ASCII, which "
                f"no key has; set it again with 'pointsman provider update {provider.name} --credential {name}'"
            )
        return Secret(value)
    raise Unresolvable(
        f"provider {provider.name} has no usable key; add one with 'pointsman provider update {provider.name} "
        f"--credential {profile.credential_key_names[0]}'"
    )


def _base_url_of(provider: Provider, profile: ProviderProfile) -> str:
    """The record's base URL, else the profile's. Raises Unresolvable when there is none that may be called."""
    for name in profile.base_url_config_keys:
        text = provider.config.get(name, "").strip()
        if text:
            _check(text, f"the {name} of provider {provider.name}", f"{_update(provider, name)} (http://host:port/v1)")
            return text
    if not profile.default_base_url:
        raise Unresolvable(
            f"provider {provider.name} has no base URL, and type {profile.provider_type} has no default; "
            f"{_update(provider, profile.base_url_config_keys[0])} (http://host:port/v1)"
        )
    return profile.default_base_url


def _update(provider: Provider, name: str) -> str:
    return f"set it with 'pointsman provider update {provider.name} --config {name}=URL'"


def _check(text: str, subject: str, next_step: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        reason = str(error).partition(";")[0]  # its next step is for the author of a route file
        raise Unresolvable(f"{subject} {reason}; {next_step}") from None
    if endpoint.scheme == "gguf":
        raise Unresolvable(f"{subject} names a model file, which no provider serves; {next_step}")
    reason = _out_of_reach(endpoint)
    if reason:
        raise Unresolvable(f"{subject} {reason}, which no route may lead to; {next_step}")


def _out_of_reach(endpoint: Endpoint) -> str:
    if endpoint.scheme == "mock":
        return ""
    try:
        return refused_address(endpoint.host) or ""
    except ValueError:  # a name; what it resolves to is checked when it is dialled
        return ""
