"""Events as OCSF 1.8 objects: network activity, API activity, configuration state, application errors.

Which kind is which class is `core.event_kinds`'; here is what else the schema wants, and where each fact goes.
Formed when a batch is written, never while a request runs.
"""

from functools import lru_cache
from typing import Any

import msgspec

from pointsman.core.candidate import INFERENCE_LOCAL, Candidate
from pointsman.core.candidate_cache import CandidateCache
from pointsman.core.event_kinds import (
    CONNECTION_DENIED,
    EVENT_KINDS,
    OCSF_VERSION,
    REQUEST_MATCHED,
    REQUEST_REFUSED,
    ROUTE_LEFT_OUT,
    STREAM_TRUNCATED,
    EventKind,
    OcsfClass,
)
from pointsman.core.version import VERSION
from pointsman.events.ocsf_gateway import gateway_facts, gateway_piece
from pointsman.events.printable import printable, told_path
from pointsman.events.record import Loss, Occurrence, Record, Refusal, RoutesState

Json = dict[str, Any]

_encode = msgspec.json.encode

_PRODUCT = {"name": "Pointsman", "vendor_name": "Pointsman", "version": VERSION}
_SANDBOX = {"name": "sandbox"}
_ACTOR = {"app_name": "sandbox"}
_SERVICE = {"name": INFERENCE_LOCAL}
_SERVICE_PIECE = '{"service":{"name":"inference.local"}'
_DOOR = {"hostname": INFERENCE_LOCAL, "port": 443}
_STATES = {
    "fetch_failed": "stale",
    "fetch_recovered": "current",
    "routes_loaded": "loaded",
    "routes_updated": "updated",
    "route_left_out": "incomplete",
    "inference_enabled": "enabled",
    "inference_disabled": "disabled",
}
_ACTIVITY_NAME = "Infer"


def ocsf_line(kind: EventKind, occurrence: Occurrence) -> str:
    """One event as JSON, without a line end."""
    if isinstance(occurrence, Record):
        if kind is REQUEST_MATCHED:
            return _matched(kind, occurrence)
        if kind.ocsf_class is OcsfClass.API_ACTIVITY:
            return _inference(kind, occurrence)
        return _encoded(_fault(kind, occurrence))
    if isinstance(occurrence, Refusal):
        return _encoded(_refusal(kind, occurrence))
    return _encoded(_routes(kind, occurrence) if isinstance(occurrence, RoutesState) else _loss(kind, occurrence))


def _encoded(value: object) -> str:
    return _encode(value).decode()


def _constants(kind: EventKind) -> Json:
    constants: Json = {
        "class_uid": int(kind.ocsf_class),
        "category_uid": kind.ocsf_class // 1000,
        "activity_id": kind.activity_id,
        "type_uid": kind.type_uid,
        "severity_id": int(kind.severity),
        "status_id": 1 if kind.success else 2,
    }
    if kind.ocsf_class is OcsfClass.API_ACTIVITY:
        constants["activity_name"] = _ACTIVITY_NAME
        constants |= {"actor": _ACTOR, "src_endpoint": _SANDBOX}
    if kind.ocsf_class is OcsfClass.NETWORK_ACTIVITY:
        constants["src_endpoint"] = _SANDBOX
    if kind.verdict is not None:
        constants |= {"action_id": kind.verdict.action_id, "disposition_id": int(kind.verdict)}
    if kind.state_id is not None:
        constants |= {"state_id": kind.state_id, "state": _STATES[kind.name]}
    return constants


def _constant_metadata(kind: EventKind) -> Json:
    profiles = ["security_control"] if kind.verdict is not None else []
    if kind.ocsf_class is OcsfClass.API_ACTIVITY:
        profiles.append("ai_operation")
    metadata: Json = {"version": OCSF_VERSION, "product": _PRODUCT, "event_code": kind.name}
    return {**metadata, "profiles": profiles} if profiles else metadata


_CONSTANTS = {kind: _constants(kind) for kind in EVENT_KINDS}
_METADATA = {kind: _constant_metadata(kind) for kind in EVENT_KINDS}


def _event(kind: EventKind, seconds: float, request_id: str = "") -> Json:
    metadata = _METADATA[kind]
    if request_id:
        metadata = {**metadata, "uid": f"{request_id}.{kind.name}", "correlation_uid": request_id}
    return {**_CONSTANTS[kind], "time": int(seconds * 1000), "metadata": metadata}


def _why(event: Json, reason: str, detail: str) -> None:
    if reason:
        event["status_code"] = reason
    if detail:
        event["status_detail"] = printable(detail)


# The two events of every request: put together from pieces that are encoded once, which costs a third of encoding
# the whole event. What varies between the pieces is numbers and the request id, which need no escapes.


def _head(kind: EventKind) -> tuple[str, str]:
    metadata = _encoded(_METADATA[kind])[:-1]
    return f'{_encoded(_CONSTANTS[kind])[:-1]},"metadata":{metadata},"correlation_uid":"', f'.{kind.name}"}},"time":'


_HEADS = {kind: _head(kind) for kind in EVENT_KINDS}


def _matched(kind: EventKind, record: Record) -> str:
    head, uid = _HEADS[kind]
    return (
        f'{head}{record.request_id}","uid":"{record.request_id}{uid}{int(record.time * 1000)},'
        f"{_door_piece(record.method, record.path, record.protocol)}{record.received}}}}}"
    )


@lru_cache(maxsize=128)
def _door_piece(method: str, path: str, protocol: str) -> str:
    unmapped = {"method": method, "protocol": protocol, "request_bytes": 0}
    return _encoded({"dst_endpoint": _DOOR, "url": _url(path), "unmapped": unmapped})[1:-3]


def _inference(kind: EventKind, record: Record) -> str:
    head, uid = _HEADS[kind]
    # Whole microseconds, or what is rounded here would be cut there.
    start, milliseconds = int(record.time * 1000), int(record.seconds * 1_000_000) / 1000
    duration = int(milliseconds)
    outer, unmapped = ("", "") if record.candidate is None else _candidate_pieces.get(record.candidate)
    asked, protocol = _request_pieces(record.method, record.path, record.protocol)
    return (
        f'{head}{record.request_id}","uid":"{record.request_id}{uid}{start + duration},"start_time":{start},'
        f'"end_time":{start + duration},"duration":{duration},{_ending(record, duration)}{outer}{asked}'
        f'{record.received}}},"unmapped":{{{gateway_piece(record)}{unmapped}{protocol}{milliseconds:.3f}}}}}'
    )


@lru_cache(maxsize=128)
def _request_pieces(method: str, path: str, protocol: str) -> tuple[str, str]:
    api = {"operation": f"{method} {told_path(path)}", "service": _SERVICE}
    request = {"http_method": method, "url": _url(path), "body_length": 0}
    unmapped = {"protocol": protocol, "latency_ms": 0}
    return _encoded({"api": api, "http_request": request})[1:-3], _encoded(unmapped)[1:-2]


def _pieces_of(candidate: Candidate) -> tuple[str, str]:
    model = {"name": printable(candidate.model), "ai_provider": _provider(candidate)}
    unmapped = {"route": printable(candidate.route), "provider_type": printable(candidate.provider_type)}
    outer = {"ai_model": model, "dst_endpoint": _upstream(candidate)}
    return _encoded(outer)[1:-1] + ",", _encoded(unmapped)[1:-1] + ","


_candidate_pieces = CandidateCache(_pieces_of)


def _ending(record: Record, duration: int) -> str:
    text = ""
    if record.status:
        text = f'"http_response":{{"code":{record.status},"body_length":{record.sent},"latency":{duration}}},'
    if record.usage is not None:
        incoming, outgoing = record.usage[:2]
        text += f'"message_context":{_SERVICE_PIECE}'
        text += f',"prompt_tokens":{incoming}' if incoming >= 0 else ""
        text += f',"completion_tokens":{outgoing}' if outgoing >= 0 else ""
        text += f',"total_tokens":{incoming + outgoing}}},' if incoming >= 0 and outgoing >= 0 else "},"
    if record.reason:
        text += f'"status_code":"{record.reason}",'
    if record.detail:
        text += f'"status_detail":{_encoded(printable(record.detail))},'
    return text


def _provider(candidate: Candidate) -> str:
    return f"{candidate.endpoint.scheme}://{candidate.endpoint.authority}" if candidate.endpoint.host else "local"


def _upstream(candidate: Candidate) -> Json:
    endpoint = candidate.endpoint
    if not endpoint.host:
        return {"name": "local"}
    return {"hostname": endpoint.host, "port": endpoint.port} if endpoint.port else {"hostname": endpoint.host}


def _url(path: str) -> Json:
    return {"hostname": INFERENCE_LOCAL, "path": told_path(path)}


# Everything else is rare


def _fault(kind: EventKind, record: Record) -> Json:
    """What went wrong with a request that had matched."""
    event = _event(kind, record.time + record.seconds, record.request_id)
    _why(event, record.reason, record.detail)
    event["duration"] = int(record.seconds * 1000)
    unmapped: Json = {}
    if kind is REQUEST_REFUSED:  # only its body showed that it cannot be served
        event["url"] = _url(record.path)
        unmapped = {"method": record.method, "http_status": record.status, "request_bytes": record.received}
    if kind.ocsf_class is OcsfClass.NETWORK_ACTIVITY:
        event["dst_endpoint"] = (
            _DOOR if kind is REQUEST_REFUSED or record.candidate is None else _upstream(record.candidate)
        )
    if kind is STREAM_TRUNCATED:
        event["traffic"] = {"bytes_in": record.sent, "bytes_out": record.received}
    if record.candidate is not None:
        unmapped["route"] = printable(record.candidate.route)
    unmapped |= gateway_facts(record)
    return {**event, "unmapped": unmapped} if unmapped else event


def _refusal(kind: EventKind, refusal: Refusal) -> Json:
    event = _event(kind, refusal.time, refusal.request_id)
    _why(event, refusal.reason, refusal.detail)
    unmapped: Json = {}
    if refusal.peer is not None:
        event["src_endpoint"] = {**_SANDBOX, "ip": refusal.peer[0], "port": refusal.peer[1]}
    event["dst_endpoint"] = _DOOR
    if kind is CONNECTION_DENIED and refusal.host:
        event["dst_endpoint"] = {"hostname": refusal.host}
        if refusal.port.isascii() and refusal.port.isdecimal() and int(refusal.port) <= 65535:
            event["dst_endpoint"]["port"] = int(refusal.port)
        elif refusal.port:
            unmapped["port"] = refusal.port
    if refusal.path:
        event["url"] = {"hostname": refusal.host or INFERENCE_LOCAL, "path": told_path(refusal.path)}
    if refusal.method:
        unmapped["method"] = printable(refusal.method, 32)
    if refusal.status:
        unmapped["http_status"] = refusal.status
    if unmapped:
        event["unmapped"] = unmapped
    return event


def _routes(kind: EventKind, state: RoutesState) -> Json:
    event = _event(kind, state.time)
    _why(event, state.reason, state.detail)
    event["device"] = {"type_id": 0, "hostname": state.host}
    bundle = state.bundle
    event["unmapped"] = {
        "source": state.source,
        "routes": len(bundle.routes),
        "system_routes": len(bundle.system_routes),
        "revision": printable(bundle.revision),
    }
    if kind is ROUTE_LEFT_OUT:
        event["unmapped"]["route"] = printable(state.route)
    return event


def _loss(kind: EventKind, loss: Loss) -> Json:
    event = _event(kind, loss.time)
    event["count"] = loss.count
    event["status_detail"] = "these events could not be written, or came faster than they were taken"
    return event
