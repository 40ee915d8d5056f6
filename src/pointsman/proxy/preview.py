"""A look at the beginning of an answer before anybody is told of it."""

from collections.abc import Callable
from typing import Protocol

from pointsman.proxy.relay import Relay
from pointsman.routing.first_event import Verdict


class Judge(Protocol):
    """Says what a beginning means."""

    def receive(self, data: bytes) -> Verdict:
        """Take the next bytes; a verdict once given stays."""

    def end(self) -> Verdict:
        """No more will come; never undecided."""


class Preview:
    """Holds a body back until its beginning is judged; then it is the relay's, or nobody's.

    `commit` makes the relay, at the moment of the commit; `abandon` ends the response.
    """

    __slots__ = ("_abandon", "_commit", "_held", "_judge", "relay")

    def __init__(self, commit: Callable[[], Relay], abandon: Callable[[], None], judge: Judge) -> None:
        self._commit = commit
        self._abandon = abandon
        self._judge = judge
        self._held: list[bytes] = []
        self.relay: Relay | None = None
        """What the client gets; None before the commit."""

    def start(self) -> None:
        """The head waits for the verdict."""

    def body(self, data: bytes, *, last: bool) -> None:
        """Take the next bytes."""
        if self.relay is not None:
            self.relay.body(data, last=last)
            return
        self._held.append(data)
        verdict = self._judge.receive(data)
        if verdict is Verdict.UNDECIDED and last:
            verdict = self._judge.end()
        if verdict is Verdict.COMMIT:
            self._let_go(last=last)
        elif verdict is Verdict.FAILED:
            self._held = []
            self._abandon()

    def cut(self) -> None:
        """What has come is all that will; nothing changes when that was judged before."""
        if self.relay is None and self._judge.receive(b"") is Verdict.UNDECIDED:
            if self._judge.end() is Verdict.COMMIT:
                self._let_go(last=False)
            self._held = []

    def _let_go(self, *, last: bool) -> None:
        held, self._held = b"".join(self._held), []
        self.relay = self._commit()
        self.relay.body(held, last=last)
