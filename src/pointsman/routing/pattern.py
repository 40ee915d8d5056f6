"""Which requests are inference: the target and method table of the door.

Matching is on the bytes that would be sent on. Nothing is decoded or normalised, so what was matched is what the
upstream reads.
"""

import re
from collections.abc import Callable

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.errors import MalformedRequest, NotInference
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.wire.request import RequestHead

_MESSAGES = "/v1/messages"
_EXACT = {
    ("POST", "/v1/chat/completions"): P.CHAT_COMPLETIONS,
    ("POST", "/v1/completions"): P.COMPLETIONS,
    ("POST", "/v1/responses"): P.RESPONSES,
    ("POST", _MESSAGES): P.MESSAGES,
    ("GET", "/v1/models"): P.MODEL_DISCOVERY,
}
_WHERE_LISTED = {
    # Only where some route lists the dialect: the published table has six patterns.
    ("POST", "/v1/embeddings"): P.EMBEDDINGS,
    ("POST", "/v1/messages/count_tokens"): P.MESSAGES,
}
_MODEL_SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})+"
_MODEL_PATH = re.compile(rf"/v1/models/{_MODEL_SEGMENT}(?:/{_MODEL_SEGMENT})*")
_UNSAFE_ESCAPE = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff]|2[EeFf35]|3[BbFf]|5[Cc])")
_DOT_SEGMENT = re.compile(r"/\.{1,2}(?:/|$)")
_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(/[^#]*)?")
_DOOR = re.compile(rb"inference\.local\.?(?::443)?", re.I)


class Target:
    """Where a request wants to go inside the door."""

    __slots__ = ("path", "query")

    def __init__(self, path: str, query: str) -> None:
        self.path = path
        self.query = query
        """With its question mark, as sent; empty when there is none."""


def read_target(head: RequestHead) -> Target:
    """Path and query of a request through the tunnel.

    Raises MalformedRequest when the Host is not the tunnel's, when an absolute-form authority differs from it, or
    for any other form of target.
    """
    if head.host != b"inference.local" and not _DOOR.fullmatch(head.host):
        raise MalformedRequest("Host is not inference.local")
    target = head.target
    if target[0] != "/":
        match = _ABSOLUTE.fullmatch(target)
        if match is None or match[1].lower() != "https" or not _DOOR.fullmatch(match[2].encode("ascii")):
            raise MalformedRequest("request target is not a path on inference.local")
        target = match[3] or "/"
    if "#" in target:
        raise MalformedRequest("request target has a fragment")
    path, mark, query = target.partition("?")
    return Target(path, mark + query)


def match_pattern(method: str, path: str, spoken: Callable[[str], bool]) -> P:
    """The dialect of a request. `spoken`: whether any route lists a dialect. Raises NotInference for no match."""
    protocol = _EXACT.get((method, path))
    if protocol is not None:
        return protocol
    protocol = _WHERE_LISTED.get((method, path))
    if protocol is not None and spoken(protocol):
        return protocol
    if method == "GET" and _is_model_path(path):
        return P.MODEL_DISCOVERY
    raise NotInference("no inference pattern matches this method and path")


def dialect_of(target: str) -> str:
    """In whose words a request is refused, whatever its method; empty for the listener's own. Takes a whole target."""
    path = target.partition("?")[0]
    return P.MESSAGES if path == _MESSAGES or path.startswith(f"{_MESSAGES}/") else ""


def _is_model_path(path: str) -> bool:
    if not _MODEL_PATH.fullmatch(path):
        return False
    return not _UNSAFE_ESCAPE.search(path) and not _DOT_SEGMENT.search(path)


def is_door(host: str, port: str) -> bool:
    """Whether a CONNECT authority is the door: that name in any case, one trailing dot allowed, port 443."""
    return port == "443" and host.lower().removesuffix(".") == INFERENCE_LOCAL
