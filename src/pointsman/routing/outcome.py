"""What an upstream's answer means for a chain, and whether the same provider is asked again.

Whether an answer may still be replaced by another is the attempt loop's to know; when an exhausted provider may be
asked again is `recovery`'s.
"""

import msgspec

from pointsman.core.attempts import ErrorCategory, Member
from pointsman.core.limits import DEFAULT_LIMITS

LONGEST_ERROR_BODY = DEFAULT_LIMITS.error_body_bytes
"""Bytes; a longer body is not searched for an error code, and the status speaks alone. Errors have a few hundred."""

_BY_STATUS = {
    401: ErrorCategory.AUTH_ERROR,
    402: ErrorCategory.AUTH_ERROR,
    403: ErrorCategory.AUTH_ERROR,
    404: ErrorCategory.MODEL_UNAVAILABLE,
    410: ErrorCategory.MODEL_UNAVAILABLE,
    429: ErrorCategory.RATE_LIMIT,
}
"""DESIGN section 5; what is not here goes by its hundred."""


def classify(status: int, body: bytes, member: Member) -> ErrorCategory | None:
    """What an answer means by its status and, where the operator has mapped codes, its body; None is success.

    The operator's mappings with a code come before those of a status alone, and these before the built-in table. A 2xx
    is always success: its body belongs to the client and is not waited for.
    """
    if 200 <= status <= 299:
        return None
    mapped = _mapped(status, body, member)
    if mapped is not None:
        return mapped
    if 400 <= status <= 499:
        return _BY_STATUS.get(status, ErrorCategory.REQUEST_REJECTED)
    return ErrorCategory.SERVER_ERROR


def needs_body(status: int, member: Member) -> bool:
    """Whether an answer's meaning depends on its body, which need not be read otherwise."""
    return any(mapping.http_status == status and mapping.error_code for mapping in member.error_mappings)


def may_retry(category: ErrorCategory, status: int, attempt: int) -> bool:
    """Whether the same provider is asked once more, at once.

    `attempt` counts its tries for this request from 1. `status` is that of its answer, 0 where none came: who cannot be
    reached, redirects, or breaks off is not asked twice (DESIGN section 5).
    """
    return category is ErrorCategory.SERVER_ERROR and status >= 400 and attempt == 1


def _mapped(status: int, body: bytes, member: Member) -> ErrorCategory | None:
    mappings = [mapping for mapping in member.error_mappings if mapping.http_status == status]
    if any(mapping.error_code for mapping in mappings):
        code = error_code(body, member.error_code_path).casefold()
        for mapping in mappings:
            if mapping.error_code and mapping.error_code.casefold() == code:
                return mapping.category
    return next((mapping.category for mapping in mappings if not mapping.error_code), None)


def error_code(body: bytes, path: str) -> str:
    """The text or whole number at a dotted path of a JSON body, a number in it being a place in a list.

    Empty when there is none, when it is no code, or when the body is no JSON or longer than `LONGEST_ERROR_BODY`.
    """
    if len(body) > LONGEST_ERROR_BODY:
        return ""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and int(step[:6]) < len(value):
            value = value[int(step[:6])]
        else:
            return ""
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
