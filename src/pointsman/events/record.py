"""What happened in one case: a request, a refusal, a failed handshake, a change of routes. Never a body or header."""

from collections.abc import Sequence
from typing import Any, Protocol

from pointsman.core.body_hashes import BodyHashes
from pointsman.core.caller import ANYBODY
from pointsman.core.candidate import Bundle, Candidate
from pointsman.core.errors import NoCompatibleRoute, NotInference, RequestRejected, RouterError, UpstreamError
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
from pointsman.events.reasons import reason_of, reason_of_status
from pointsman.wire.headers import Fields
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


class AnswerWatch(UsageSource, Protocol):
    """The same, while the record has it."""

    def finished(self) -> bool:
        """Whether an event stream has said why it ends, or that it does."""

    def finish_reason(self, protocol: str) -> str:
        """Why the model stopped, as it said itself in a dialect; empty for none."""


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

    __slots__ = (
        "answer_policies",
        "budgets",
        "client_retries",
        "finish_reason",
        "hashes",
        "hits",
        "hold",
        "own_lines",
        "policy_version",
        "refused_budget",
        "saved_tokens",
        "tokens",
    )

    def __init__(self) -> None:
        self.hold: object | None = None
        """The places of budgets that it holds, for the stage that gives them back."""
        self.budgets = ""
        """The names of the budgets that it counts for, with commas between."""
        self.refused_budget = ""
        """The one that had no room for it."""
        self.client_retries = 0
        """How often its client had tried before, as its library says."""
        self.hashes: BodyHashes | None = None
        """Of the bodies, where it gets a receipt."""
        self.answer_policies: Sequence[Any] | None = None
        """What its answer is held against: what was in force when the request was held. None: nobody has looked."""
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
        self.finish_reason = ""
        """Why the model stopped, in its own word; known with the record's `usage`."""


class Record:
    """One request that matched. Not a dataclass: one is made per request, on the hot path.

    It is appended to the log twice: when it is admitted and when it has ended. All it holds of the first moment is
    left alone afterwards, so both events can be formed when a batch is written.
    """

    __slots__ = (
        "announced",
        "answer_fields",
        "attempts",
        "caller",
        "came",
        "candidate",
        "detail",
        "fault",
        "has_finished",
        "heard_out",
        "is_answered",
        "is_fallback",
        "is_stream",
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
        "requested_model",
        "route",
        "seconds",
        "sent",
        "status",
        "stopped",
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
        self.requested_model = ""
        """What the client's body named, noted at the end; empty where that is not looked at."""
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
        self.answer_fields: Fields = []
        """Of the answer's head, for what is looked for when the request has ended."""
        self.was_sent = False
        """Whether an upstream may have had the request, and the client got no answer of it: it went away before, or a
        rule has refused the answer."""
        self.is_fallback = False
        """Whether `candidate` is what answers when all others of a chain do not."""
        self.is_stream = False
        """Whether the answer that went through was an event stream."""
        self.status = 0
        """Of the answer; 0 while there is none."""
        self.stopped = ""
        """Why it is ended before its time, in one word of `REASONS`; empty for what is not."""
        self.received = 0
        """Bytes of the request body."""
        self.sent = 0
        """Bytes of the response body."""
        self.came = 0
        """Bytes of the upstream's, where rules stand between the two."""
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
        self.meter: AnswerWatch | None = None
        self.usage: TokenUsage | None = None
        """What the meter read, once the event of its end is formed."""
        self.has_finished = False
        """Known with `usage`, of what was cut: all of the answer had come by then but its formal end."""
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
            if self.kind is not INFER_COMPLETED:
                self.has_finished = not self.is_stream or self.meter.finished()
            if self.notes is not None:
                self.notes.finish_reason = self.meter.finish_reason(self.protocol)
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
