"""The CONNECT request that opens a tunnel."""

from pointsman.core.errors import HeadTooLarge, MalformedRequest, NotInference
from pointsman.core.limits import Limits
from pointsman.wire.headers import BROKEN_EARLY
from pointsman.wire.request import parse_head

ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def read_connect(data: bytes, limits: Limits) -> tuple[str, str, bytes] | None:
    """Host, port and the bytes behind the head; None while the head is incomplete.

    Raises NotInference for any method but CONNECT and for an authority that is not `host:port`, MalformedRequest
    for broken HTTP or one that carries a body, HeadTooLarge beyond `Limits.connect_head_bytes`.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0 or end + 4 > limits.connect_head_bytes:
        # Only up to the limit, so that the answer does not depend on how the bytes were split.
        if BROKEN_EARLY.search(data, 0, limits.connect_head_bytes):
            raise MalformedRequest("malformed CONNECT head")
        if len(data) >= limits.connect_head_bytes:
            raise HeadTooLarge
        return None
    head = parse_head(data[: end + 2], limits)
    if head.method != "CONNECT":
        raise NotInference(f"{head.method} sent to the proxy; only CONNECT is served", head.target)
    if not _FRAMING.isdisjoint(head.values):
        raise MalformedRequest("CONNECT with a body")
    host, _, port = head.target.rpartition(":")
    return host, port, data[end + 4 :]
