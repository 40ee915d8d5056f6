"""A look at the beginning of an event stream before anybody is told of it."""

from collections.abc import Callable

from pointsman.proxy.relay import Relay
from pointsman.routing.first_event import FirstEvent, Verdict


class Preview:
    """Holds a body back until its first event is judged; then it is the relay's, or nobody's.

    `commit` makes the relay, at the moment of the commit; `abandon` ends the response.
    `most_bytes` are looked at.
    """

    __slots__ = ("_abandon", "_commit", "_first", "_held", "relay")

    def __init__(self, commit: Callable[[], Relay], abandon: Callable[[], None], most_bytes: int) -> None:
        self._commit = commit
        self._abandon = abandon
        self._first = FirstEvent(most_bytes)
        self._held: list[bytes] = []
        self.relay: Relay | None = None
        """What the client gets; None before the commit."""

    def start(self) -> None:
        """The head waits for the first event."""

    def body(self, data: bytes, *, last: bool) -> None:
        """Take the next bytes."""
        if self.relay is not None:
            self.relay.body(data, last=last)
            return
        self._held.append(data)
        verdict = self._first.receive(data)
        if verdict is Verdict.UNDECIDED and last:
            verdict = self._first.end()
        if verdict is Verdict.COMMIT:
            held, self._held = b"".join(self._held), []
            self.relay = self._commit()
            self.relay.body(held, last=last)
        elif verdict is Verdict.FAILED:
            self._held = []
            self._abandon()
