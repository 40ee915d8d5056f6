"""The record of one request."""

from enum import StrEnum

from pointsman.wire.usage import TokenUsage


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "infer_completed"
    REJECTED = "infer_rejected"
    FAILED = "infer_failed"
    TRUNCATED = "stream_truncated"
    CANCELLED = "infer_cancelled"


class Record:
    """Counts, sizes, times and names of one request. Not a dataclass: one is made per request, on the hot path."""

    __slots__ = (
        "detail",
        "endpoint",
        "heard_out",
        "method",
        "model",
        "outcome",
        "path",
        "protocol",
        "provider_type",
        "received",
        "request_id",
        "route",
        "seconds",
        "sent",
        "status",
        "time",
        "usage",
    )

    def __init__(self, request_id: str, time: float, method: str = "", path: str = "") -> None:
        self.request_id = request_id
        self.time = time
        """Seconds since the epoch, at the start."""
        self.method = method
        self.path = path
        """Without the query."""
        self.protocol = ""
        self.route = ""
        self.model = ""
        self.provider_type = ""
        self.endpoint = ""
        """Host and port; for the operator's eyes only."""
        self.status = 0
        self.received = 0
        """Bytes of the request body."""
        self.sent = 0
        """Bytes of the response body."""
        self.seconds = 0.0
        self.outcome = Outcome.COMPLETED
        self.heard_out = False
        """The last event of a stream has reached the client."""
        self.detail = ""
        """Why it failed, for the operator."""
        self.usage: TokenUsage | None = None


def printable(text: str, most: int = 200) -> str:
    """Text from outside, fit for one line of a log: control characters escaped, length bounded."""
    if text.isprintable() and len(text) <= most:
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:most])


def human_line(record: Record) -> str:
    """One line for a person. Method and path have passed the request grammar; the rest is escaped."""
    what = f"{record.method} {record.path[:200]}" if record.method else "connection"
    line = f"pointsman: {record.outcome.value} {what} status={record.status}"
    if record.route:
        line += f" route={printable(record.route)} model={printable(record.model)}"
    if record.usage is not None:
        line += f" tokens={record.usage.input_tokens}+{record.usage.output_tokens}"
    if record.outcome is not Outcome.REJECTED:
        line += f" in={record.received} out={record.sent} ms={record.seconds * 1000:.0f}"
    if record.detail:
        line += f" detail={printable(record.detail)!r}"
    return line
