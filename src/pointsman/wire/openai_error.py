"""The error object that clients of OpenAI's interface read."""

import msgspec

from pointsman.core.errors import RouterError

_CALLER, _SERVER = "invalid_request_error", "server_error"


def openai_error_body(status: int, message: str, code: str | None = None, kind: str = "") -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`; the type follows from the status unless it is given."""
    kind = kind or (_CALLER if status < 500 else _SERVER)
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def openai_error_of(error: RouterError) -> bytes:
    """The same for a request that was refused; nothing in it depends on `error.detail`."""
    return openai_error_body(error.status, f"{error.text}; {error.hint}" if error.hint else error.text)
