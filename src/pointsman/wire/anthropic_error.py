"""The error object that clients of Anthropic's interface read."""

import msgspec

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def anthropic_error_body(status: int, message: str, request_id: str) -> bytes:
    """`{"type": "error", "error": {"type", "message"}, "request_id"}`; the inner type follows from the status."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": request_id})
