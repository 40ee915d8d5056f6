"""The vocabulary of what an operator is told: every kind of event, and what it is in OCSF 1.8.

Class, activity and type numbers are the schema's (schema.ocsf.io, 1.8.0); which kind gets which is our decision.
Only names and numbers: what happened in one case is a record's, how it is written is `events`'.
"""

from dataclasses import dataclass
from enum import IntEnum

OCSF_VERSION = "1.8.0"


class OcsfClass(IntEnum):
    """`class_uid`."""

    NETWORK_ACTIVITY = 4001
    CONFIG_STATE = 5019
    API_ACTIVITY = 6003
    APPLICATION_ERROR = 6008


class Severity(IntEnum):
    """`severity_id`."""

    INFO = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4


class Verdict(IntEnum):
    """`disposition_id` of the profile `security_control`; `action_id` follows from it."""

    BLOCKED = 2
    DETECTED = 15
    REJECTED = 25

    @property
    def action_id(self) -> int:
        """1 allowed, 2 denied."""
        return 1 if self is Verdict.DETECTED else 2


_OPEN, _FAIL, _REFUSE = 1, 4, 5  # network activity
_LOG = 1  # configuration state
_OTHER = 99  # API activity knows create, read, update and delete only
_GENERAL_ERROR = 1
_ENABLED, _DISABLED, _OTHER_STATE = 2, 1, 99


@dataclass(frozen=True, slots=True, eq=False)
class EventKind:
    """One kind of event. Compared, and looked up, by identity: hashing all of its fields is slow."""

    name: str
    """In human lines and in `metadata.event_code`; a contract."""
    ocsf_class: OcsfClass
    activity_id: int
    severity: Severity
    when: str
    """For the reference page."""
    success: bool = True
    """`status_id`."""
    verdict: Verdict | None = None
    state_id: int | None = None
    """Of configuration events."""

    @property
    def type_uid(self) -> int:
        """Class and activity in one number."""
        return self.ocsf_class * 100 + self.activity_id


REQUEST_MATCHED = EventKind(
    "request_matched",
    OcsfClass.NETWORK_ACTIVITY,
    _OPEN,
    Severity.INFO,
    "A request through the door is inference; its body has been read, its route is chosen next.",
    verdict=Verdict.DETECTED,
)
REQUEST_DENIED = EventKind(
    "request_denied",
    OcsfClass.NETWORK_ACTIVITY,
    _OPEN,
    Severity.MEDIUM,
    "A request through the door matches no inference pattern: 403.",
    success=False,
    verdict=Verdict.BLOCKED,
)
CONNECTION_DENIED = EventKind(
    "connection_denied",
    OcsfClass.NETWORK_ACTIVITY,
    _OPEN,
    Severity.MEDIUM,
    "A client asked the proxy for something other than CONNECT inference.local:443: 403.",
    success=False,
    verdict=Verdict.BLOCKED,
)
REQUEST_REFUSED = EventKind(
    "request_refused",
    OcsfClass.NETWORK_ACTIVITY,
    _REFUSE,
    Severity.MEDIUM,
    "A request or CONNECT that is malformed, too large, too late or not understood; no upstream has seen it.",
    success=False,
    verdict=Verdict.REJECTED,
)
HANDSHAKE_FAILED = EventKind(
    "handshake_failed",
    OcsfClass.NETWORK_ACTIVITY,
    _FAIL,
    Severity.MEDIUM,
    "TLS with a client did not come about; most often it does not trust the CA.",
    success=False,
)
UPSTREAM_FAILED = EventKind(
    "upstream_failed",
    OcsfClass.NETWORK_ACTIVITY,
    _FAIL,
    Severity.LOW,
    "No usable response head came: no connection, no TLS, none in time, or no HTTP. `infer_failed` follows.",
    success=False,
)
STREAM_TRUNCATED = EventKind(
    "stream_truncated",
    OcsfClass.NETWORK_ACTIVITY,
    _FAIL,
    Severity.MEDIUM,
    "A response body broke off, went silent, or grew beyond its limit after its head had been sent on. "
    "`infer_failed` follows.",
    success=False,
)
INFER_COMPLETED = EventKind(
    "infer_completed",
    OcsfClass.API_ACTIVITY,
    _OTHER,
    Severity.INFO,
    "The upstream's answer has reached the client to its end.",
)
INFER_FAILED = EventKind(
    "infer_failed",
    OcsfClass.API_ACTIVITY,
    _OTHER,
    Severity.LOW,
    "The client got an error, the upstream's or ours, or an answer that is not whole.",
    success=False,
)
INFER_CANCELLED = EventKind(
    "infer_cancelled",
    OcsfClass.API_ACTIVITY,
    _OTHER,
    Severity.INFO,
    "The client went away, or was sent away, before the end of its answer; the upstream was closed at once.",
    success=False,
)
ROUTES_LOADED = EventKind(
    "routes_loaded",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.INFO,
    "The route file has been read, or the first bundle of a gateway has come.",
    state_id=_OTHER_STATE,
)
INFERENCE_ENABLED = EventKind(
    "inference_enabled",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.INFO,
    "Behind `routes_loaded`, or when the first route comes: there is a route for requests through the door.",
    state_id=_ENABLED,
)
INFERENCE_DISABLED = EventKind(
    "inference_disabled",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.INFO,
    "Behind `routes_loaded`, or when the last route goes: there is none, so every request is answered with 503.",
    state_id=_DISABLED,
)
ROUTES_UPDATED = EventKind(
    "routes_updated",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.INFO,
    "The gateway sent another bundle; requests that begin from now on use it.",
    state_id=_OTHER_STATE,
)
ROUTE_LEFT_OUT = EventKind(
    "route_left_out",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.MEDIUM,
    "A route of the gateway's bundle cannot be used; the others are.",
    success=False,
    state_id=_OTHER_STATE,
)
FETCH_FAILED = EventKind(
    "fetch_failed",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.MEDIUM,
    "No bundle could be had of the gateway; the routes in force stay. Told once for each reason until one comes again.",
    success=False,
    state_id=_OTHER_STATE,
)
FETCH_RECOVERED = EventKind(
    "fetch_recovered",
    OcsfClass.CONFIG_STATE,
    _LOG,
    Severity.INFO,
    "Bundles come again after `fetch_failed`.",
    state_id=_OTHER_STATE,
)
INTERNAL_ERROR = EventKind(
    "internal_error",
    OcsfClass.APPLICATION_ERROR,
    _GENERAL_ERROR,
    Severity.HIGH,
    "A bug of ours ended a request; please report it. `infer_failed` follows.",
    success=False,
)
EVENTS_DROPPED = EventKind(
    "events_dropped",
    OcsfClass.APPLICATION_ERROR,
    _GENERAL_ERROR,
    Severity.MEDIUM,
    "Events could not be written here, and now they can be again: `count` is missing above this line.",
    success=False,
)

EVENT_KINDS = (
    FETCH_FAILED,
    FETCH_RECOVERED,
    ROUTES_LOADED,
    ROUTES_UPDATED,
    ROUTE_LEFT_OUT,
    INFERENCE_ENABLED,
    INFERENCE_DISABLED,
    CONNECTION_DENIED,
    HANDSHAKE_FAILED,
    REQUEST_DENIED,
    REQUEST_REFUSED,
    REQUEST_MATCHED,
    UPSTREAM_FAILED,
    STREAM_TRUNCATED,
    INTERNAL_ERROR,
    INFER_COMPLETED,
    INFER_FAILED,
    INFER_CANCELLED,
    EVENTS_DROPPED,
)
"""In the order of a request's life."""
