"""What happened in one case: a request, a refusal, a failed handshake, a change of routes. Never a body or header."""

import re
from functools import lru_cache
from typing import Protocol

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.caller import ANYBODY
from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import (
    NoCompatibleRoute,
    NotInference,
    RequestRejected,
    RouterError,
    UpstreamError,
)
from pointsman.core.event_kinds import (
    CONNECTION_DENIED,
    EVENTS_DROPPED,
    HANDSHAKE_FAILED,
    INFER_CANCELLED,
    INFER_COMPLETED,
    INFER_FAILED,
    INFERENCE_DISABLED,
    INFERENCE_ENABLED,
    REQUEST_DENIED,
    REQUEST_MATCHED,
    REQUEST_REFUSED,
    ROUTES_LOADED,
    STREAM_TRUNCATED,
    UPSTREAM_FAILED,
    EventKind,
)
from pointsman.core.policy import PolicyHit
from pointsman.core.price import Tokens
from pointsman.wire.usage import TokenUsage

Peer = tuple[str, int] | None
"""Address and port of a client, where it has them."""


def peer_of(address: object) -> Peer:
    """Of what a transport gives; a Unix socket's has neither."""
    match address:
        case (str(host), int(port), *_):
            return host, port
    return None


class UsageSource(Protocol):
    """What watched a response body."""

    def usage(self) -> TokenUsage | None:
        """The counts the body reported, if it did."""


class OperationEnds(Protocol):
    """What the operation log is told of a request by whoever relays its answer."""

    def stream_started(self) -> None:
        """The first byte of an event stream goes to the client."""

    def completed(self, status: int, usage: UsageSource | None) -> None:
        """The answer, a success, went through whole."""

    def failed(self, reason: str, status: int) -> None:
        """The client got an error, or half of an answer."""

    def cancelled(self, reason: str) -> None:
        """The client went away, or had to go."""


class StageNotes:
    """What a gateway's stages note of one request. Not a dataclass: on the hot path."""

    __slots__ = ("hashes", "hits", "hold", "own_lines", "policy_version", "saved_tokens", "tokens")

    def __init__(self) -> None:
        self.hold: object | None = None
        """The places of budgets that it holds, for the stage that gives them back."""
        self.hashes: BodyHashes | None = None
        """Of the bodies, where it gets a receipt."""
        self.hits: tuple[PolicyHit, ...] = ()
        """Rules that matched, of either side."""
        self.policy_version = 0
        """0 where there is none."""
        self.saved_tokens = 0
        """That context optimisation took out, reckoned."""
        self.own_lines = b""
        """Header lines of the answer besides the usual ones, each with its end: `x-pointsman-policy: …`."""
        self.tokens: Tokens | None = None
        """What it used, reckoned where nobody said; None while it runs, and for what was never sent."""


class Record:
    """One request that matched. Not a dataclass: one is made per request, on the hot path.

    It is appended to the log twice: when it is admitted and when it has ended. All it holds of the first moment is
    left alone afterwards, so both events can be formed when a batch is written.
    """

    __slots__ = (
        "announced",
        "attempts",
        "caller",
        "candidate",
        "detail",
        "fault",
        "heard_out",
        "is_answered",
        "is_fallback",
        "kind",
        "meter",
        "method",
        "notes",
        "operation",
        "path",
        "protocol",
        "reason",
        "received",
        "request_id",
        "route",
        "seconds",
        "sent",
        "status",
        "time",
        "usage",
        "was_sent",
    )

    def __init__(self, request_id: str, time: float, method: str, path: str, protocol: str) -> None:
        self.request_id = request_id
        self.time = time
        """Seconds since the epoch, at the start."""
        self.method = method
        self.path = path
        """As asked; it is made fit to be told when the event is formed."""
        self.protocol = protocol
        self.caller = ANYBODY
        self.route = ""
        """The one that was asked for; empty while, or when, none was found."""
        self.candidate: Candidate | None = None
        """Whom it was sent to; None while, or when, no route was chosen."""
        self.operation: OperationEnds | None = None
        """The operation log's account of it; None where there is no such log, and for what matched no route."""
        self.notes: StageNotes | None = None
        """None where there are no stages, and for what was refused before them."""
        self.attempts = 0
        """Calls of upstreams so far."""
        self.is_answered = False
        """Whether `candidate`'s answer is the client's, as far as it went; else it got an error of ours, or nothing."""
        self.was_sent = False
        """Whether the client went away when an upstream may have had the request, and had not answered."""
        self.is_fallback = False
        """Whether `candidate` is what answers when all others of a chain do not."""
        self.status = 0
        """Of the answer; 0 while there is none."""
        self.received = 0
        """Bytes of the request body."""
        self.sent = 0
        """Bytes of the response body."""
        self.seconds = 0.0
        self.kind = INFER_COMPLETED
        """How it ended."""
        self.fault: EventKind | None = None
        """What broke, as an event of its own."""
        self.reason = ""
        """Why it did not complete, in one word of `REASONS`."""
        self.detail = ""
        """The same in prose, for the operator."""
        self.heard_out = False
        """The last event of a stream has reached the client."""
        self.meter: UsageSource | None = None
        self.usage: TokenUsage | None = None
        """What the meter read, once the event of its end is formed."""
        self.announced = False
        """Whether the event of its admission has been formed."""

    def kinds(self) -> tuple[EventKind, ...]:
        """The events it stands for at this point of a batch, in order."""
        if not self.announced:
            self.announced = True
            return _ADMITTED
        self.settle()
        return (self.kind,) if self.fault is None else (self.fault, self.kind)

    def settle(self) -> None:
        """Read what was left for later: the token counts of the body. Once it has ended."""
        if self.meter is not None:
            self.usage, self.meter = self.meter.usage(), None

    def fail(self, error: RouterError) -> None:
        """Note that it ended in an error of ours, before or after its response began."""
        self.reason, self.detail = reason_of(error), error.detail
        self.kind = INFER_FAILED
        if isinstance(error, UpstreamError):
            self.fault = STREAM_TRUNCATED if self.status else UPSTREAM_FAILED
        elif isinstance(error, RequestRejected) and not isinstance(error, NoCompatibleRoute):
            self.kind = REQUEST_REFUSED

    def finish_operation(self) -> None:
        """Tell the operation log how it ended."""
        operation = self.operation
        if operation is None:
            return
        if self.kind is INFER_COMPLETED:
            operation.completed(self.status, self.meter)
        elif self.kind is INFER_CANCELLED:
            operation.cancelled(self.reason)
        else:
            operation.failed(self.reason, self.status)

    def truncate(self, reason: str) -> None:
        """Note that its body was cut."""
        self.kind, self.fault, self.reason, self.detail = INFER_FAILED, STREAM_TRUNCATED, "stream_truncated", reason

    def answered(self, status: int, *, unfinished: bool = False) -> None:
        """Note that the upstream's answer went through whole; `unfinished`: an event stream without its last event."""
        if status >= 300:
            self.kind, self.reason = INFER_FAILED, reason_of_status(status)
        elif unfinished:
            self.kind, self.reason = INFER_FAILED, "stream_truncated"
            self.detail = "the upstream ended its event stream without a last event"


_ADMITTED = (REQUEST_MATCHED,)

REASONS = {
    "rate_limit": "the upstream answered 429",
    "auth_error": "the upstream answered 401, 402 or 403: it does not take the route's key",
    "model_unavailable": "the upstream answered 404 or 410",
    "request_rejected": "the upstream answered another 4xx: it does not like the request",
    "server_error": "the upstream answered 3xx or 5xx",
    "upstream_unavailable": "no connection, no TLS, or no response head in time",
    "upstream_protocol": "what the upstream sent is not an HTTP response",
    "stream_truncated": "the response body was cut, or an event stream ended without its last event",
    "exhausted": "nobody of a chain was left: all had no room, or failed before a byte of theirs reached the client",
    "runner_offline": "the runner of the model is not connected, or went while it answered",
    "runner_busy": "the runner of the model answers as many requests as it may",
    "runner_model_not_allowed": "the runner's own allowlist has no such model, or with another address or name",
    "runner_proxy_timeout": "the runner sent no frame in time, or the exchange took too long as a whole",
    "runner_request_too_large": "the request body exceeds what is sent to runners",
    "runner_frame_too_large": "the model answered with more at once than one frame may hold",
    "runner_response_limit": "the model's answer is longer than a runner's may be",
    "runner_proxy_error": "what the runner sent is no frame, or none of this request",
    "runner_upstream_error": "the model's server refused the request, or sent what is no completion",
    "runner_upstream_unavailable": "the runner cannot reach the model's server",
    "runner_upstream_read_error": "the model's server broke off its answer",
    "not_configured": "there is no route at all",
    "overloaded": "more connections, or more of all request bodies together, than their limit",
    "no_compatible_route": "no route speaks the client's dialect",
    "internal_error": "a bug of ours",
    "client_gone": "the client closed its connection",
    "client_stalled": "the client took no byte for too long",
    "shutting_down": "the proxy was told to stop",
    "pipelined_too_much": "the client sent too much behind a request in progress",
    "not_inference": "not a target, method or path that is served",
    "unknown_path": "not a path that the data listener serves",
    "no_model": "the route sends the client's model, and the request names none that can be sent",
    "no_such_model": "`model` names no route of the caller's",
    "insufficient_quota": "a hard budget has no room for the request",
    "budget_uncounted": "a hard budget cannot be counted: the counters' disk is full, or their database gone or held",
    "invalid_key": "no key of the data listener's, or none that is valid",
    "model_not_authorized": "the key or sandbox token may not use the route that `model` names",
    "loop_detected": "the request has been through this gateway before",
    "malformed_request": "broken HTTP, or a body that is not what it claims to be",
    "request_timeout": "the client stopped sending in the middle of a request or a CONNECT",
    "body_too_large": "the request body exceeds its limit",
    "head_too_large": "the request head, or a CONNECT, exceeds its limit",
    "target_too_long": "the request line exceeds its limit",
    "encoded_body": "the request body has a Content-Encoding",
    "expectation_failed": "an Expect other than 100-continue",
    "gateway_unreachable": "no connection to the gateway, or no TLS",
    "gateway_timeout": "the gateway did not answer in time",
    "gateway_error": "the gateway answered with an error of its own",
    "token_refused": "the gateway does not take the sandbox's token, nor what is in its file now",
    "token_unreadable": "the gateway does not take the sandbox's token, and its file cannot be used",
    "certificate_unreadable": "a certificate or key file for the line to the gateway cannot be used any more",
    "not_permitted": "the gateway takes the token, but not for a bundle",
    "bundle_too_large": "the gateway's answer exceeds its limit, in bytes or routes",
    "route_unusable": "a route in the gateway's answer is not what a route must be",
    "ca_not_trusted": "the client does not trust the proxy's CA",
    "wrong_name": "the client asked TLS for another host than inference.local",
    "not_tls": "the client sent something other than TLS into the tunnel",
    "tls_version": "the client and the proxy have no TLS version or cipher in common",
    "handshake_timeout": "the TLS handshake took too long",
    "handshake_ended": "the client closed the connection in the middle of the handshake",
    "handshake_error": "another TLS error",
}
"""`status_code` of an event: why, in one stable word."""


def reason_of(error: RouterError) -> str:
    """The word for an error: its own, or else the name of its class in snake case."""
    return error.reason or _snake_case(type(error).__name__)


@lru_cache(maxsize=64)
def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def reason_of_status(status: int) -> str:
    """The word for an upstream's answer that is not a success."""
    if status == 429:
        return "rate_limit"
    if status in (401, 402, 403):
        return "auth_error"
    if status in (404, 410):
        return "model_unavailable"
    return "request_rejected" if 400 <= status < 500 else "server_error"


class Refusal:
    """Something refused before it became a request that is served, or a handshake that failed."""

    __slots__ = ("detail", "host", "kind", "method", "path", "peer", "port", "reason", "request_id", "status", "time")

    def __init__(self, kind: EventKind, request_id: str, time: float, reason: str, detail: str) -> None:
        self.kind = kind
        self.request_id = request_id
        self.time = time
        self.reason = reason
        self.detail = detail
        self.status = 0
        """Of our answer; 0 when there is none."""
        self.method = ""
        self.path = ""
        self.host = ""
        self.port = ""
        """Where the client wanted to go, when that is not the door."""
        self.peer: Peer = None

    def kinds(self) -> tuple[EventKind, ...]:
        """The one event it stands for."""
        return (self.kind,)


def refusal_kind(error: RouterError, *, inside: bool) -> EventKind:
    """What a refusal is: `inside` the door, or at the proxy's own port."""
    if isinstance(error, NotInference):
        return REQUEST_DENIED if inside else CONNECTION_DENIED
    return REQUEST_REFUSED


def failed_handshake(request_id: str, time: float, reason: str, detail: str, peer: Peer) -> Refusal:
    """A TLS handshake that did not come about."""
    refusal = Refusal(HANDSHAKE_FAILED, request_id, time, reason, detail)
    refusal.peer = peer
    return refusal


class RoutesState:
    """The routes that are now in force, and what there is to say of them."""

    __slots__ = ("bundle", "detail", "host", "kind", "reason", "route", "source", "time")

    def __init__(self, kind: EventKind, time: float, bundle: Bundle, source: str, host: str) -> None:
        self.kind = kind
        self.time = time
        self.bundle = bundle
        self.source = source
        """`file` or `gateway`."""
        self.host = host
        """The name of this machine."""
        self.reason = ""
        """Why there are no newer ones, in one word of `REASONS`."""
        self.detail = ""
        """The same in prose, for the operator."""
        self.route = ""
        """The one that is left out."""

    def kinds(self) -> tuple[EventKind, ...]:
        """The one event it stands for."""
        return (self.kind,)


def routes_states(time: float, bundle: Bundle, source: str, host: str) -> list[RoutesState]:
    """What is told when routes have been loaded."""
    then = INFERENCE_ENABLED if bundle.routes else INFERENCE_DISABLED
    return [RoutesState(kind, time, bundle, source, host) for kind in (ROUTES_LOADED, then)]


class Loss:
    """Events that could not be written."""

    __slots__ = ("count", "time")

    kind = EVENTS_DROPPED

    def __init__(self, time: float, count: int) -> None:
        self.time = time
        self.count = count

    def kinds(self) -> tuple[EventKind, ...]:
        """The one event it stands for."""
        return (self.kind,)


Occurrence = Record | Refusal | RoutesState | Loss
