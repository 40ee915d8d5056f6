"""What is refused before an operation is asked, and the one shape of every error.

Nothing of a request is repeated in an error when it could be a credential that got into the wrong place.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from starlette.responses import JSONResponse

from pointsman.core.control_errors import ControlError, Unauthenticated

_SHORTEST_MASKED = 24
"""Characters. Names are shorter, as a rule; keys that providers give out are longer."""
_SHORTEST_TOKEN = 16
"""Characters of what is looked at: what looks like a key is masked when it is shorter, too."""
_AT_LEAST = f"{{{_SHORTEST_TOKEN},}}"
_TOKENS = (re.compile(r"[A-Za-z0-9_\-+/=.~]" + _AT_LEAST), re.compile(r"[A-Za-z0-9_\-]" + _AT_LEAST))
"""With and without the characters that also join what we say to what was sent."""
_EDGES = "_-+/=.~"
_VENDORS = "sk|pk|rk|gsk|hf|xai|nvapi|AIza|ghp|pointsman-sandbox|pointsman-key|pointsman-runner"
_VENDOR_KEY = re.compile(rf"({_VENDORS})[-_]?[A-Za-z0-9_-]{{16,}}")
_RANDOM_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_MOST_PROBLEMS = 5


class MalformedBody(ControlError):
    """The body is no JSON that can be read in one way only."""

    code = "INVALID_ARGUMENT"
    http_status = 400


class BodyTooLarge(ControlError):
    """The body is longer than any right one."""

    code = "PAYLOAD_TOO_LARGE"
    http_status = 413


class BodyTooSlow(ControlError):
    """The body did not arrive in time."""

    code = "REQUEST_TIMEOUT"
    http_status = 408


class NotJson(ControlError):
    """The body says that it is something else, or nothing: a form of another site can say no better."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    http_status = 415


class NoSuchPath(ControlError):
    """Nothing is there."""

    code = "NOT_FOUND"
    http_status = 404


class NoSuchMethod(ControlError):
    """The path exists, for other methods."""

    code: ClassVar[str] = "METHOD_NOT_ALLOWED"
    http_status = 405


class NoSuchVersion(ControlError):
    """Another HTTP than 1.0 and 1.1."""

    code = "HTTP_VERSION_NOT_SUPPORTED"
    http_status = 505


class InternalError(ControlError):
    """Ours. The text tells nothing; the log tells where."""

    def __init__(self) -> None:
        super().__init__("internal error; the gateway's log says where")


def error_response(
    error: ControlError, sent: Iterable[str] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer for an error; `sent` is every text of the request."""
    fields = dict(headers or {})
    if isinstance(error, Unauthenticated):
        fields["www-authenticate"] = "Bearer"
    text = masked(error.text, sent).encode("utf-8", "replace").decode()
    return JSONResponse({"error": {"code": error.code.lower(), "message": text}}, error.http_status, fields)


def masked(text: str, sent: Iterable[str]) -> str:
    """`text` without what is long and came with the request: it might be a key, and answers end in logs of others."""
    everything = ""
    for pattern in _TOKENS:
        for found in sorted(pattern.findall(text), key=len, reverse=True):
            if len(found) < _SHORTEST_MASKED and not looks_like_a_credential(found):
                continue
            everything = everything or "\0".join(sent)
            for token in (found, found.strip(_EDGES)):
                if len(token) >= _SHORTEST_TOKEN and token in everything:
                    text = text.replace(token, "***")
    return text


def looks_like_a_credential(text: str) -> bool:
    """Whether a name can only be a slip: someone's key where its name belongs."""
    if _VENDOR_KEY.match(text):
        return True
    return any(
        any(c.isdigit() for c in run) and any(c.isupper() for c in run) and any(c.islower() for c in run)
        for run in _RANDOM_RUN.findall(text)
    )


def shape_problems(errors: Sequence[Mapping[str, Any]]) -> str:
    """Pydantic's findings as one line: where and what, never the value."""
    told = [_problem(each) for each in errors[:_MOST_PROBLEMS]]
    more = len(errors) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"][1:] if part != "[key]")
    kind, place = error["type"], error["loc"][0]
    if kind == "extra_forbidden":
        return f"unknown field {where!r}; see /api/v1/openapi.json"
    if kind == "missing" and where:
        return f"{where} is required"
    if not where and kind in ("missing", "model_type", "model_attributes_type"):
        return "a JSON object is required"
    said = error["ctx"]["error"] if kind == "value_error" else error["msg"].removeprefix("Input ")
    return f"{where or place}: {said}"
