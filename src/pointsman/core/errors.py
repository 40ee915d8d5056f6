"""Everything that can go wrong with a request, and what the client hears of it.

    RouterError
    ├── RequestRejected          the request itself is at fault
    │   ├── MalformedRequest 400
    │   ├── NotInference 403
    │   ├── NoCompatibleRoute 400
    │   ├── RequestTimeout 408
    │   ├── BodyTooLarge 413
    │   ├── TargetTooLong 414
    │   ├── EncodedBody 415
    │   ├── ExpectationFailed 417
    │   └── HeadTooLarge 431
    ├── NotConfigured 503        no route is there yet
    ├── Overloaded 503           too much is held for other requests
    └── UpstreamError
        ├── UpstreamUnavailable 503
        └── UpstreamProtocol 502

`detail` is for the operator's log and may name hosts; the client gets `text`, which is constant per class.
"""

from typing import ClassVar


class RouterError(Exception):
    """Base of what a client can be told before its response has started."""

    status: ClassVar[int] = 502
    text: ClassVar[str] = "inference service error"
    hint: ClassVar[str] = ""
    reason: ClassVar[str] = ""
    """The word of the logs, where it is not the name of the class."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.text)
        self.detail = detail or self.text


class RequestRejected(RouterError):
    """The request is at fault; no upstream saw it."""

    status = 400
    text = "bad request"


class MalformedRequest(RequestRejected):
    """Broken HTTP or a body that is not what it claims to be."""


class NotInference(RequestRejected):
    """No inference pattern matches, or the target is not `inference.local`."""

    status = 403
    text = "connection not allowed by policy"

    def __init__(self, detail: str = "", asked: str = "") -> None:
        super().__init__(detail)
        self.asked = asked
        """Where the client wanted to go, when that is not the door: an authority or an absolute URL, as sent."""


class NoCompatibleRoute(RequestRejected):
    """Routes exist, none speaks the client's dialect."""

    text = "no compatible inference route available"

    def __init__(self, detail: str = "", told: str = "") -> None:
        super().__init__(detail)
        self.told = told or self.text
        """What whoever named a model hears."""


class RequestTimeout(RequestRejected):
    """The client stopped sending in the middle of a request."""

    status = 408
    text = "request timeout"


class BodyTooLarge(RequestRejected):
    """The body exceeds `Limits.body_bytes`."""

    status = 413
    text = "payload too large"


class TargetTooLong(RequestRejected):
    """The request line exceeds `Limits.request_line_bytes`."""

    status = 414
    text = "request target too long"


class EncodedBody(RequestRejected):
    """The request body carries a Content-Encoding."""

    status = 415
    text = "encoded request bodies are not accepted"


class ExpectationFailed(RequestRejected):
    """An Expect header asks for something other than 100-continue."""

    status = 417
    text = "expectation failed"


class HeadTooLarge(RequestRejected):
    """The head exceeds `Limits.head_bytes` or `Limits.head_fields`."""

    status = 431
    text = "request header fields too large"


class NotConfigured(RouterError):
    """The request matched a pattern, but no route exists at all."""

    status = 503
    text = "inference is not configured"
    hint = (
        "with a gateway, the operator runs 'pointsman inference set --provider NAME --model ID', unless the sandbox's "
        "log has fetch_failed, which says why no route came; without one, the operator adds a route to the file given "
        "with --inference-routes; 'pointsman sandbox routes check FILE' looks at it"
    )


class Overloaded(RouterError):
    """All connections together exceed `Limits.connections` or, with their bodies, `Limits.held_body_bytes`."""

    status = 503
    text = "inference service unavailable"


class UpstreamError(RouterError):
    """The upstream failed before a byte of its response reached the client."""


class UpstreamUnavailable(UpstreamError):
    """The upstream cannot be reached or did not answer in time."""

    status = 503
    text = "inference service unavailable"


class UpstreamProtocol(UpstreamError):
    """The upstream answered with something that is not an HTTP response, or we failed ourselves."""
