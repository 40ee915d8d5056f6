"""Records as OCSF 1.8 events: network activity for what was refused, API activity for each inference.

Class and activity numbers are the schema's; which record gets which is our decision.
"""

from typing import Any

from pointsman.core.version import VERSION
from pointsman.events.record import Outcome, Record, printable

_NETWORK_ACTIVITY = 4001
_API_ACTIVITY = 6003
_OPEN, _REFUSE, _FAIL, _OTHER = 1, 5, 4, 99
_INFO, _LOW, _MEDIUM = 1, 2, 3
_SUCCESS, _FAILURE = 1, 2

_PRODUCT = {"name": "Pointsman", "vendor_name": "Pointsman", "version": VERSION}


def ocsf_event(record: Record) -> dict[str, Any]:
    """One event, ready to be encoded as a JSON line."""
    if record.outcome is Outcome.REJECTED:
        return _refusal(record)
    activity, severity, status = {
        Outcome.COMPLETED: (_OTHER, _INFO, _SUCCESS),
        Outcome.CANCELLED: (_OTHER, _INFO, _FAILURE),
        Outcome.FAILED: (_OTHER, _LOW, _FAILURE),
        Outcome.TRUNCATED: (_OTHER, _MEDIUM, _FAILURE),
    }[record.outcome]
    event = _event(record, _API_ACTIVITY, activity, severity)
    event["metadata"]["profiles"] = ["ai_operation"]
    event["activity_name"] = record.outcome.value
    event["status_id"] = status
    event["actor"] = {"app_name": "sandbox"}
    event["api"] = {"operation": f"{printable(record.method, 16)} {printable(record.path)}"}
    event["src_endpoint"] = {"name": "sandbox"}
    event["http_response"] = {"code": record.status, "length": record.sent}
    event["ai_model"] = {"name": printable(record.model), "ai_provider": printable(record.endpoint)}
    unmapped: dict[str, Any] = {
        "route": printable(record.route),
        "protocol": record.protocol,
        "request_bytes": record.received,
        "latency_ms": round(record.seconds * 1000, 3),
    }
    if record.usage is not None:
        unmapped["input_tokens"] = record.usage.input_tokens
        unmapped["output_tokens"] = record.usage.output_tokens
    event["unmapped"] = unmapped
    return event


def _refusal(record: Record) -> dict[str, Any]:
    denied = record.status == 403
    event = _event(record, _NETWORK_ACTIVITY, _OPEN if denied else _REFUSE, _MEDIUM)
    event["action_id"] = 2
    event["disposition_id"] = 2 if denied else 25
    event["status_id"] = _FAILURE
    event["dst_endpoint"] = {"hostname": "inference.local", "port": 443}
    event["unmapped"] = {"http_status": record.status}
    return event


def _event(record: Record, class_uid: int, activity: int, severity: int) -> dict[str, Any]:
    event: dict[str, Any] = {
        "class_uid": class_uid,
        "category_uid": class_uid // 1000,
        "activity_id": activity,
        "type_uid": class_uid * 100 + activity,
        "severity_id": severity,
        "time": int(record.time * 1000),
        "metadata": {"version": "1.8.0", "product": _PRODUCT, "uid": record.request_id},
    }
    if record.detail:
        event["status_detail"] = printable(record.detail)
    return event
