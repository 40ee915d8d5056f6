"""Values of `core` to protobuf messages and back. No message leaves the gRPC edge."""

from collections.abc import Iterable
from dataclasses import replace

from pointsman.core.account import Account
from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.context_options import written_context
from pointsman.core.data_key import DataKey
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.protocols import normalize_protocols
from pointsman.core.provider import REDACTED, Provider, ProviderDraft
from pointsman.core.received_bundle import MOST_PROTOCOLS, LeftOut, ReceivedBundle, check_received
from pointsman.core.route import Route, RouteCandidate, ValidatedEndpoint
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.rpc.gen import control_pb2, datamodel_pb2, inference_pb2


def provider_message(provider: Provider) -> datamodel_pb2.Provider:
    """A record as anybody may see it."""
    return datamodel_pb2.Provider(
        id=provider.id,
        name=provider.name,
        type=provider.type,
        credentials=dict.fromkeys(provider.credentials, REDACTED),
        config=provider.config,
        from_file=provider.from_file,
    )


def provider_draft(message: datamodel_pb2.Provider) -> ProviderDraft:
    """What a client asks a record to be."""
    credentials = {key: Secret(value) for key, value in message.credentials.items()}
    return ProviderDraft(message.name.strip(), message.type.strip(), credentials, dict(message.config))


def route_message(route: Route, problem: str = "") -> control_pb2.Route:
    """A route as our own commands see it."""
    return control_pb2.Route(
        name=route.name,
        kind=route.kind,
        provider_name=route.provider_name,
        model=route.model,
        timeout_secs=route.timeout_seconds,
        version=route.version,
        problem=problem,
        candidates=[
            control_pb2.RouteCandidate(provider_name=each.provider_name, model=each.model) for each in route.candidates
        ],
        strategy=route.strategy,
        fallback=route.fallback,
        request_timeout_secs=route.request_timeout_seconds,
        target=route.target,
        via_gateway=route.via_gateway,
        from_file=route.from_file,
        context=written_context(route.context),
    )


def route_candidates(messages: Iterable[control_pb2.RouteCandidate]) -> tuple[RouteCandidate, ...]:
    """What a client asks a chain to consist of."""
    return tuple(RouteCandidate(each.provider_name, each.model) for each in messages)


def endpoint_messages(endpoints: Iterable[ValidatedEndpoint]) -> list[inference_pb2.ValidatedEndpoint]:
    """What a verification reached."""
    return [inference_pb2.ValidatedEndpoint(url=each.url, protocol=each.protocol) for each in endpoints]


def token_message(token: SandboxToken) -> control_pb2.SandboxToken:
    """A token without what would let anyone use it."""
    return control_pb2.SandboxToken(
        name=token.name,
        account=token.account,
        route=token.route,
        created_at_ms=_milliseconds(token.created_at),
        expires_at_ms=_milliseconds(token.expires_at),
        revoked_at_ms=_milliseconds(token.revoked_at),
    )


def key_message(key: DataKey) -> control_pb2.Key:
    """A key of the data listener without what would let anyone use it."""
    return control_pb2.Key(
        name=key.name,
        account=key.account,
        permissions=key.permissions,
        routes=key.routes,
        created_at_ms=_milliseconds(key.created_at),
        expires_at_ms=_milliseconds(key.expires_at),
        revoked_at_ms=_milliseconds(key.revoked_at),
        networks=map(str, key.networks),
        user=key.user,
    )


def account_message(account: Account) -> control_pb2.Account:
    """An account."""
    return control_pb2.Account(
        name=account.name,
        created_at_ms=_milliseconds(account.created_at),
        halted_at_ms=_milliseconds(account.halted_at),
    )


def bundle_from(message: inference_pb2.GetInferenceBundleResponse, own_token: Secret | None = None) -> ReceivedBundle:
    """What a gateway sent, as the data plane uses it, and the routes that it cannot use.

    `own_token` is what this sandbox shows to its gateway: the key of routes that the gateway executes itself.
    """
    candidates: list[Candidate] = []
    left_out: list[LeftOut] = []
    for route in message.routes:
        try:
            candidates.append(_candidate(route, own_token))
        except ValueError as error:
            left_out.append(LeftOut(route.name, str(error)))
    return ReceivedBundle(make_bundle(tuple(candidates), message.revision), tuple(left_out))


def _candidate(route: inference_pb2.ResolvedRoute, own_token: Secret | None) -> Candidate:
    if len(route.protocols) > MOST_PROTOCOLS:  # before they are looked at: millions fit into an answer
        raise ValueError(f"it lists over {MOST_PROTOCOLS} protocols")
    candidate = Candidate(
        route=route.name,
        endpoint=_endpoint(route.base_url),
        model=route.model_id,
        protocols=normalize_protocols(route.protocols),
        provider_type=route.provider_type,
        api_key=Secret(route.api_key) if route.api_key else None,
        timeout_seconds=float(route.timeout_secs),
    )
    if candidate.is_own_gateway and candidate.api_key is None:
        candidate = replace(candidate, api_key=own_token)
    check_received(candidate)
    return candidate


def _endpoint(base_url: str) -> Endpoint:
    try:
        return parse_endpoint(base_url)
    except ValueError as error:
        raise ValueError(f"its base URL {str(error).partition(';')[0]}") from None


def _milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1000)
