"""Events as lines for a person: `pointsman: KIND key=value …`, with the same keys in the same order for one kind."""

from functools import lru_cache

from pointsman.core.candidate import Candidate
from pointsman.core.candidate_cache import CandidateCache
from pointsman.core.event_kinds import (
    CONNECTION_DENIED,
    INTERNAL_ERROR,
    REQUEST_MATCHED,
    REQUEST_REFUSED,
    ROUTE_LEFT_OUT,
    STREAM_TRUNCATED,
    EventKind,
    OcsfClass,
)
from pointsman.events.printable import printable, quoted, told_path
from pointsman.events.record import Loss, Occurrence, Record, Refusal, RoutesState


def human_line(kind: EventKind, occurrence: Occurrence) -> str:
    """One event without its line end. Values are bare words, or quoted with backslash escapes."""
    if isinstance(occurrence, Record):
        if kind.ocsf_class is OcsfClass.API_ACTIVITY:
            return _inference(kind, occurrence)
        return _request(kind, occurrence)
    if isinstance(occurrence, Refusal):
        return _refusal(kind, occurrence)
    if isinstance(occurrence, RoutesState):
        return _routes(kind, occurrence)
    return _loss(kind, occurrence)


def _why(reason: str, detail: str) -> str:
    text = f" reason={reason}" if reason else ""
    return f"{text} detail={quoted(printable(detail))}" if detail else text


@lru_cache(maxsize=128)
def _asked(method: str, path: str) -> str:
    return f" method={method} path={quoted(told_path(path))}"


def _candidate_of(candidate: Candidate) -> str:
    return f" route={quoted(printable(candidate.route))} model={quoted(printable(candidate.model))}"


_candidates = CandidateCache(_candidate_of)


def _inference(kind: EventKind, record: Record) -> str:
    candidate = _candidates.get(record.candidate) if record.candidate is not None else ""
    tokens = ""
    if record.usage is not None:
        incoming, outgoing = record.usage[:2]
        tokens = f" tokens_in={incoming}" if incoming >= 0 else ""
        tokens += f" tokens_out={outgoing}" if outgoing >= 0 else ""
    return (
        f"pointsman: {kind.name} id={record.request_id}{_asked(record.method, record.path)} status={record.status}"
        f"{candidate}{tokens} bytes_in={record.received} bytes_out={record.sent} ms={record.seconds * 1000:.0f}"
        f"{_why(record.reason, record.detail) if record.reason else ''}"
    )


def _request(kind: EventKind, record: Record) -> str:
    line = f"pointsman: {kind.name} id={record.request_id}{_asked(record.method, record.path)}"
    if kind is REQUEST_MATCHED:
        return f"{line} protocol={record.protocol} bytes_in={record.received}"
    if kind is REQUEST_REFUSED:
        line += f" status={record.status}"
    elif kind is not INTERNAL_ERROR and record.candidate is not None:
        line += f" route={quoted(printable(record.candidate.route))}"
        line += f" upstream={quoted(printable(record.candidate.endpoint.authority))}"
    if kind is STREAM_TRUNCATED:
        line += f" bytes_in={record.received} bytes_out={record.sent}"
    return line + _why(record.reason, record.detail)


def _refusal(kind: EventKind, refusal: Refusal) -> str:
    line = f"pointsman: {kind.name} id={refusal.request_id}"
    if refusal.method:
        line += f" method={quoted(printable(refusal.method, 32))}"
    if refusal.path:
        line += f" path={quoted(told_path(refusal.path))}"
    if kind is CONNECTION_DENIED and refusal.host:
        line += f" host={quoted(refusal.host)}"
        line += f" port={quoted(refusal.port)}" if refusal.port else ""
    if refusal.status:
        line += f" status={refusal.status}"
    if refusal.peer is not None:
        line += f" client={refusal.peer[0]}:{refusal.peer[1]}"
    return line + _why(refusal.reason, refusal.detail)


def _routes(kind: EventKind, state: RoutesState) -> str:
    bundle = state.bundle
    line = f"pointsman: {kind.name} source={state.source} routes={len(bundle.routes)}"
    line += f" system_routes={len(bundle.system_routes)}"
    line += f" revision={quoted(printable(bundle.revision))}" if bundle.revision else ""
    line += f" route={quoted(printable(state.route))}" if state.kind is ROUTE_LEFT_OUT else ""
    return line + _why(state.reason, state.detail)


def _loss(kind: EventKind, loss: Loss) -> str:
    return f"pointsman: {kind.name} count={loss.count}"
