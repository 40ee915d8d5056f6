"""One occurrence for every kind of event, made as the data plane makes it: for the reference page and its tests."""

from collections.abc import Iterator

from pointsman.core.candidate import Bundle, Candidate, make_bundle
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.errors import MalformedRequest, NotInference, RouterError, UpstreamProtocol, UpstreamUnavailable
from pointsman.core.event_kinds import (
    EVENT_KINDS,
    FETCH_FAILED,
    FETCH_RECOVERED,
    INFER_CANCELLED,
    INTERNAL_ERROR,
    REQUEST_MATCHED,
    ROUTE_LEFT_OUT,
    ROUTES_UPDATED,
    EventKind,
)
from pointsman.events.reasons import reason_of
from pointsman.events.record import (
    Loss,
    Occurrence,
    Record,
    Refusal,
    RoutesState,
    failed_handshake,
    refusal_kind,
    routes_states,
)
from pointsman.wire.handshake import explain_handshake
from pointsman.wire.usage import TokenUsage

_TIME = 1_700_000_000.25
_CLIENT = ("127.0.0.1", 40312)
_CANDIDATE = Candidate(
    "inference.local",
    parse_endpoint("https://api.example.com/v1"),
    "large-model",
    ("openai_chat_completions",),
    "openai",
)


def _request(number: int) -> Record:
    record = Record(f"5f0c2a9be1d4-{number:x}", _TIME, "POST", "/v1/chat/completions", "openai_chat_completions")
    record.received, record.candidate, record.announced = 1043, _CANDIDATE, True
    return record


def _ended(number: int, error: RouterError | None = None) -> Record:
    record = _request(number)
    record.seconds = 0.8125
    if error is not None:
        record.fail(error)
        record.status = error.status
    return record


def _refused(number: int, error: RouterError, *, inside: bool) -> Refusal:
    kind = refusal_kind(error, inside=inside)
    refusal = Refusal(kind, f"5f0c2a9be1d4-{number:x}", _TIME, reason_of(error), error.detail)
    refusal.status = error.status
    if inside:
        refusal.method, refusal.path = "POST", "/v1/images/generations"
    else:
        refusal.host, refusal.port, refusal.peer = "example.com", "443", _CLIENT
    return refusal


def _inferences() -> Iterator[Occurrence]:
    completed = _ended(1)
    completed.status, completed.sent, completed.usage = 200, 761, TokenUsage(25, 120)
    yield completed
    cancelled = _ended(2)
    cancelled.status, cancelled.sent, cancelled.kind, cancelled.reason = 200, 96, INFER_CANCELLED, "client_gone"
    yield cancelled
    yield _ended(3, UpstreamUnavailable("cannot connect to api.example.com:443: Connection refused"))
    truncated = _ended(4)
    truncated.status, truncated.sent, truncated.usage = 200, 18201, TokenUsage(25, -1)
    truncated.truncate("upstream read error")
    yield truncated
    yield _ended(5, MalformedRequest("request body is not a JSON object"))
    broken = _ended(6, UpstreamProtocol("internal error: KeyError in Relay.body, relay.py line 70"))
    broken.fault, broken.reason = INTERNAL_ERROR, "internal_error"
    yield broken


def _gateway_states(bundle: Bundle) -> Iterator[Occurrence]:
    failed = RoutesState(FETCH_FAILED, _TIME, bundle, "gateway", "build-7")
    failed.reason, failed.detail = "gateway_unreachable", "http://127.0.0.1:8782: connect: Connection refused (111)"
    yield failed
    recovered = RoutesState(FETCH_RECOVERED, _TIME, bundle, "gateway", "build-7")
    recovered.detail = "3 fetches had failed"
    yield recovered
    yield RoutesState(ROUTES_UPDATED, _TIME, bundle, "gateway", "build-7")
    left_out = RoutesState(ROUTE_LEFT_OUT, _TIME, bundle, "gateway", "build-7")
    left_out.route, left_out.reason = "sandbox-system", "route_unusable"
    left_out.detail = "its base URL is a link-local or metadata address, which no route may lead to"
    yield left_out


def examples() -> Iterator[tuple[EventKind, Occurrence]]:
    """Every kind once, in the order of the vocabulary."""
    bundle = make_bundle((_CANDIDATE,))
    elsewhere = NotInference("CONNECT to 'example.com' port '443'; only inference.local:443 is served")
    occurrences: list[Occurrence] = [
        *routes_states(_TIME, bundle, "file", "build-7"),
        *routes_states(_TIME, make_bundle(()), "file", "build-7"),
        *_gateway_states(make_bundle((_CANDIDATE,), "6f1d0c5b9a")),
        _refused(7, elsewhere, inside=False),
        failed_handshake("5f0c2a9be1d4-8", _TIME, *explain_handshake("TLSV1_ALERT_UNKNOWN_CA"), _CLIENT),
        _refused(9, NotInference("no inference pattern matches this method and path"), inside=True),
        *_inferences(),
        Loss(_TIME, 118),
    ]
    found: dict[EventKind, Occurrence] = {REQUEST_MATCHED: _request(1)}
    for each in occurrences:
        for kind in each.kinds():
            found.setdefault(kind, each)
    return ((kind, found[kind]) for kind in EVENT_KINDS)
