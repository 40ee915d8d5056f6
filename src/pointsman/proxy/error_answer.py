"""An upstream's error whose meaning is in its body: held while that is read, and judged as soon as it can be.

No more is held than is searched: what is the client's goes on to the client from there, what is not is not read on.
"""

from pointsman.core.attempts import ErrorCategory, Member
from pointsman.proxy.answering import REPLACED_BODIES
from pointsman.routing.first_event import Verdict
from pointsman.routing.outcome import classify


class ErrorBody:
    """Judges an error by its body, for a `Preview`: committed to when it is the client's answer, as it came."""

    __slots__ = ("_held", "_member", "_most_bytes", "_status", "category", "verdict")

    def __init__(self, status: int, member: Member, most_bytes: int) -> None:
        """A body of more than `most_bytes` is not searched: the status speaks alone."""
        self._status = status
        self._member = member
        self._most_bytes = most_bytes
        self._held = b""
        self.verdict = Verdict.UNDECIDED
        self.category: ErrorCategory | None = None
        """Known with the verdict."""

    def receive(self, data: bytes) -> Verdict:
        """Take the body's next bytes; a verdict once given stays."""
        if self.verdict is Verdict.UNDECIDED:
            if len(self._held) + len(data) > self._most_bytes:
                return self._judge(b"")
            self._held += data
        return self.verdict

    def end(self) -> Verdict:
        """No more will come, or is waited for."""
        return self._judge(self._held) if self.verdict is Verdict.UNDECIDED else self.verdict

    def _judge(self, body: bytes) -> Verdict:
        self._held = b""
        self.category = classify(self._status, body, self._member)
        # A body that is replaced is nobody's, whoever's the answer is.
        is_relayed = self.is_clients and self._status not in REPLACED_BODIES
        self.verdict = Verdict.COMMIT if is_relayed else Verdict.FAILED
        return self.verdict

    @property
    def is_clients(self) -> bool:
        """Whether the request is at fault, and the answer the client's."""
        return self.category is None or self.category is ErrorCategory.REQUEST_REJECTED
