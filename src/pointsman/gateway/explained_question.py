"""What may be asked of `explain`, and what a listener looks at before it knows a request's route. Pure."""

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.control_errors import InvalidRequest
from pointsman.core.errors import BodyTooLarge, MalformedRequest
from pointsman.core.explanation import Question
from pointsman.core.limits import Limits
from pointsman.core.route import LONGEST_MODEL
from pointsman.core.source_network import is_address
from pointsman.gateway.data_listener import HEALTH_PATH
from pointsman.gateway.listed_models import MODELS_PATH
from pointsman.wire.json_model import splice_model
from pointsman.wire.request import RequestHead, parse_head

MOST_HEADERS = 100
"""Names that are asked about at once: what a listener takes of fields (`Limits.head_fields`)."""


def check(question: Question) -> None:
    """Raises InvalidRequest for a question that cannot be meant."""
    if question.key_name and question.sandbox:
        raise InvalidRequest("a request comes with a key or from a sandbox; name one of them")
    if question.model == INFERENCE_LOCAL and question.key_name:
        raise InvalidRequest(f"{INFERENCE_LOCAL} is reached from sandboxes; name a sandbox's token instead of a key")
    if question.model and question.model != INFERENCE_LOCAL and question.body is not None:
        raise InvalidRequest("the body names the model; leave the model out, or the body")
    if not question.model and question.body is None and not question.sandbox:
        raise InvalidRequest("name a model, or give the body of a request; 'pointsman route list' shows the routes")
    if len(question.model) > LONGEST_MODEL:
        raise InvalidRequest(f"the model has {len(question.model)} characters; at most {LONGEST_MODEL}")
    if question.address and not is_address(question.address):
        raise InvalidRequest(f"{question.address[:64]!r} is no IP address; write it as 192.0.2.7 or 2001:db8::7")
    if len(question.headers) > MOST_HEADERS:
        raise InvalidRequest(f"{len(question.headers)} header names; at most {MOST_HEADERS}")


def head_of(target: str, limits: Limits) -> RequestHead:
    """The head of a request to a path, held to the grammar of a client's. Raises RouterError."""
    method = "GET" if target.partition("?")[0].startswith(MODELS_PATH) else "POST"
    if not target.startswith("/") or not target.isascii() or not target.isprintable() or "#" in target:
        raise MalformedRequest("request target is not a path")
    return parse_head(f"{method} {target} HTTP/1.1\r\nHost: {INFERENCE_LOCAL}\r\n".encode(), limits)


def check_served(head: RequestHead) -> None:
    """Raises InvalidRequest for what a listener answers itself, without a route."""
    path = head.target.partition("?")[0]
    if path in (HEALTH_PATH, MODELS_PATH) or path.startswith(MODELS_PATH + "/"):
        raise InvalidRequest(f"{path[:64]} is answered by the gateway itself; no provider is asked")


def check_size(body: bytes, limits: Limits) -> None:
    """Raises BodyTooLarge."""
    if len(body) > limits.body_bytes:
        raise BodyTooLarge


def check_body(body: bytes, limits: Limits) -> None:
    """Raises what a body is refused with when its model is put in place: BodyTooLarge or MalformedRequest."""
    check_size(body, limits)
    splice_model(body, b'""', limits.json_keys)
