"""The operation log's vocabulary, and how an event becomes a line: what became of each request, and by way of whom.

Owns the words and the form alone. When events arise is `operations_record`'s, where lines end `operations_file`'s.
No event holds a body, a header, a key or a URL; every name is made fit for one line.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from pointsman.core.attempts import Plan, Skipped
from pointsman.core.policy import Effect, PolicyHit
from pointsman.events.printable import printable
from pointsman.events.record import UsageSource
from pointsman.wire.usage import TokenUsage

INFER_STARTED = "infer_started"
INFER_ORDERING = "infer_ordering"
RATE_LIMIT_HIT = "rate_limit_hit"
INFER_FALLBACK = "infer_fallback"
INFER_RETRIED = "infer_retried"
STREAM_STARTED = "stream_started"
STREAM_COMPLETED = "stream_completed"
INFER_COMPLETED = "infer_completed"
INFER_FAILED = "infer_failed"
INFER_CANCELLED = "infer_cancelled"
POLICY_HIT = "policy_hit"
EVENTS_DROPPED = "events_dropped"

QUOTA_REASONS = frozenset({"quota_daily", "quota_minute", "exhausted"})
"""Of a skip: those that mean that a provider has no room (`core.attempts.Skipped`)."""


class Subject:
    """Whom an event is about: one request on one route."""

    __slots__ = ("account", "request_id", "route")

    def __init__(self, request_id: str, account: str, route: str) -> None:
        self.request_id = request_id
        """Made by us, of letters, digits and hyphens."""
        self.account = account
        self.route = route


class Happening(msgspec.Struct):
    """One event, as raw as it was noted. A struct, for one is made several times per request."""

    event: str
    time: float
    """Seconds since the epoch."""
    subject: Subject
    provider: str = ""
    model: str = ""
    following: str = ""
    """The provider that is tried next; empty when there is none."""
    reason: str = ""
    until: float = 0.0
    """Seconds since the epoch; 0 when nobody knows."""
    plan: Plan | None = None
    hit: PolicyHit | None = None
    usage: UsageSource | None = None
    """Read when the event is formed, and then replaced by `tokens`."""
    tokens: TokenUsage | None = None
    seconds: float = 0.0
    attempts: int = 0
    status: int = 0
    fallback: bool = False
    ends_attempt: bool = False
    """Whether a call of the provider has ended with it; not told."""

    def settle(self) -> None:
        """Read what was left for later: the token counts of the body."""
        if self.usage is not None:
            self.tokens, self.usage = self.usage.usage(), None


@dataclass(frozen=True, slots=True)
class EventShape:
    """What lines of one event hold behind `ts`, `request_id` and `event`."""

    name: str
    when: str
    fields: Mapping[str, str]
    """Name and meaning, in the order of the line."""
    form: Callable[[Happening], str]
    """The same fields with their values, as they stand in the line."""


COMMON_FIELDS = {
    "ts": "when, RFC 3339 in UTC, to the millisecond",
    "request_id": "the `x-pointsman-request-id` of the answer",
    "event": "one of the names below",
}
_PROVIDER = "the provider's name"
_MODEL = "the model that was asked of it"
_ACCOUNT, _ROUTE = "whose route it is", "the route's name"
_ATTEMPTS = "calls of providers so far, retries included"
_LATENCY = "whole milliseconds since `infer_started`"
_TOKENS = "as the provider reported it; 0 when it did not"
_HTTP = "status of the answer; 0 when none was begun"
_UNTIL = "when there is room again, RFC 3339; null when nobody knows"


def _timestamp(seconds: float) -> str:
    return _moment(int(seconds * 1000))


@lru_cache(maxsize=64)
def _moment(milliseconds: int) -> str:
    """Of events that are written together many share one."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _until(seconds: float) -> str:
    try:
        return f'"{_timestamp(seconds)}"' if seconds > 0 else "null"
    except (ValueError, OverflowError, OSError):  # a provider's Retry-After may lie beyond any calendar
        return "null"


@lru_cache(maxsize=1024)
def _text(name: str) -> str:
    """A name as JSON. Names recur: of routes, accounts, providers, models and reasons."""
    return msgspec.json.encode(printable(name)).decode()


@lru_cache(maxsize=256)
def _place(account: str, route: str) -> str:
    return f'"route":{_text(route)},"account":{_text(account)}'


def _started(happening: Happening) -> str:
    subject = happening.subject
    return _place(subject.account, subject.route)


def _tokens(happening: Happening) -> str:
    tokens = happening.tokens
    if tokens is None:
        return '"prompt_tokens":0,"completion_tokens":0'
    incoming, outgoing = tokens[:2]
    return f'"prompt_tokens":{max(incoming, 0)},"completion_tokens":{max(outgoing, 0)}'


def _provider(happening: Happening) -> str:
    return f'"provider":{_text(happening.provider)}'


def _ordering(happening: Happening) -> str:
    plan = happening.plan or Plan(())
    ordered = ",".join([_text(member.provider) for member in plan.attempts])
    skipped = ",".join([_skipped(each) for each in plan.skipped])
    return f'"ordered_providers":[{ordered}],"skipped":[{skipped}]'


def _skipped(each: Skipped) -> str:
    return f'{{"provider":{_text(each.provider)},"reason":{_text(each.reason)},"until":{_until(each.until)}}}'


def _completed(happening: Happening) -> str:
    return (
        f'"provider":{_text(happening.provider)},"model":{_text(happening.model)},{_tokens(happening)},'
        f'"latency_ms":{round(happening.seconds * 1000)},"fallback":{"true" if happening.fallback else "false"},'
        f'"status":"ok","attempts":{happening.attempts},{_started(happening)}'
    )


def _limit_hit(happening: Happening) -> str:
    return f'{_provider(happening)},"reason":{_text(happening.reason)},"until":{_until(happening.until)}'


def _fell_back(happening: Happening) -> str:
    return (
        f'"from_provider":{_text(happening.provider)},"to_provider":{_text(happening.following)},'
        f'"reason":{_text(happening.reason)}'
    )


def _retried(happening: Happening) -> str:
    return f'{_provider(happening)},"reason":{_text(happening.reason)}'


def _stream_completed(happening: Happening) -> str:
    return f'{_provider(happening)},{_tokens(happening)},"latency_ms":{round(happening.seconds * 1000)}'


def _failed(happening: Happening) -> str:
    return f'"reason":{_text(happening.reason)},"http_status":{happening.status},{_ended(happening)}'


def _cancelled(happening: Happening) -> str:
    return f'"reason":{_text(happening.reason)},{_ended(happening)}'


def _ended(happening: Happening) -> str:
    return f'"attempts":{happening.attempts},"latency_ms":{round(happening.seconds * 1000)},{_started(happening)}'


_NO_HIT = PolicyHit("", Effect.FLAG, "")


def _policy_hit(happening: Happening) -> str:
    hit = happening.hit or _NO_HIT
    return (
        f'"rule":{_text(hit.rule)},"effect":{_text(hit.would)},"place":{msgspec.json.encode(hit.place).decode()},'
        f'"version":{happening.attempts},"enforced":{"true" if happening.fallback else "false"},{_started(happening)}'
    )


def _dropped(happening: Happening) -> str:
    return f'"count":{happening.attempts}'


_TOKEN_FIELDS = {"prompt_tokens": _TOKENS, "completion_tokens": _TOKENS}
_PLACE_FIELDS = {"route": _ROUTE, "account": _ACCOUNT}

EVENTS = (
    EventShape(INFER_STARTED, "a request on a route was accepted", _PLACE_FIELDS, _started),
    EventShape(
        INFER_ORDERING,
        "the strategy of a chain has ordered the providers, once per request; a direct route has none",
        {
            "ordered_providers": "who will be tried, in order, the fallback last",
            "skipped": "who will not: a list of `provider`, `reason` and `until`",
        },
        _ordering,
    ),
    EventShape(
        POLICY_HIT,
        "a rule of the account's policy matches a request or an answer",
        {
            "rule": "its id",
            "effect": "`block`, `redact` or `flag`",
            "place": "a JSON pointer to what matched, or nothing for the request as a whole; never what matched",
            "version": "of the policy",
            "enforced": "whether it took effect; false in a dry run",
            **_PLACE_FIELDS,
        },
        _policy_hit,
    ),
    EventShape(
        RATE_LIMIT_HIT,
        "a provider is passed over because it has no room, when planned or when its turn came",
        {"provider": _PROVIDER, "reason": "`quota_daily`, `quota_minute` or `exhausted`", "until": _UNTIL},
        _limit_hit,
    ),
    EventShape(
        INFER_RETRIED,
        "a provider failed and is asked once more",
        {"provider": _PROVIDER, "reason": "what failed"},
        _retried,
    ),
    EventShape(
        INFER_FALLBACK,
        "a provider failed and the next one is asked",
        {
            "from_provider": "who failed",
            "to_provider": "who is next; empty when nobody is",
            "reason": "`rate_limit`, `server_error`, `auth_error`, `model_unavailable`, `unknown_error`; `uncounted`: "
            "its quota cannot be counted at present; `no_model`: neither the request nor its record names a model",
        },
        _fell_back,
    ),
    EventShape(
        STREAM_STARTED, "the first byte of an event stream goes to the client", {"provider": _PROVIDER}, _provider
    ),
    EventShape(
        STREAM_COMPLETED,
        "an event stream went through whole; `infer_completed` follows",
        {"provider": _PROVIDER, **_TOKEN_FIELDS, "latency_ms": _LATENCY},
        _stream_completed,
    ),
    EventShape(
        INFER_COMPLETED,
        "an answer, streamed or not, went through whole",
        {
            "provider": _PROVIDER,
            "model": _MODEL,
            **_TOKEN_FIELDS,
            "latency_ms": _LATENCY,
            "fallback": "whether it came from another than the first in order, or from the chain's final fallback",
            "status": "`ok`",
            "attempts": _ATTEMPTS,
            **_PLACE_FIELDS,
        },
        _completed,
    ),
    EventShape(
        INFER_FAILED,
        "the client got no answer, an error, or half of an answer",
        {
            "reason": "`exhausted` (nobody was left), `request_rejected`, `stream_truncated`, or another word of "
            "[events.md](events.md)",
            "http_status": _HTTP,
            "attempts": _ATTEMPTS,
            "latency_ms": _LATENCY,
            **_PLACE_FIELDS,
        },
        _failed,
    ),
    EventShape(
        INFER_CANCELLED,
        "the client went away",
        {
            "reason": "`client_gone`, `client_stalled`, `pipelined_too_much` or `shutting_down`",
            "attempts": _ATTEMPTS,
            "latency_ms": _LATENCY,
            **_PLACE_FIELDS,
        },
        _cancelled,
    ),
    EventShape(
        EVENTS_DROPPED,
        "lines are missing here: the disk was full, or too slow",
        {"count": "how many"},
        _dropped,
    ),
)
_FORMS = {shape.name: shape.form for shape in EVENTS}
_NOBODY = Subject("", "", "")


def event_line(happening: Happening) -> str:
    """Its line, with the end. Formatted here: an encoder's dictionaries take three times as long."""
    return (
        f'{{"ts":"{_timestamp(happening.time)}","request_id":"{happening.subject.request_id}",'
        f'"event":"{happening.event}",{_FORMS[happening.event](happening)}}}\n'
    )


def loss_line(count: int, seconds: float) -> str:
    """The line that stands for `count` lost ones."""
    return event_line(Happening(EVENTS_DROPPED, seconds, _NOBODY, attempts=count))


def day_of_line(line: bytes) -> str:
    """`YYYY-MM-DD` of a line that `event_line` made."""
    return line[7:17].decode("ascii", "replace")
