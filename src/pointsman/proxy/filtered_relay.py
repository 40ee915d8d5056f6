"""A relay whose body goes through a filter: what rules hold back, change or end.

Owns how an answer that a rule ends is told, before and after its first byte. What is held is the filter's.
"""

from collections.abc import Callable

from pointsman.core.policy import Blocked
from pointsman.proxy.meter import Meter
from pointsman.proxy.relay import Relay
from pointsman.proxy.stages import BodyFilter

BLOCKED = "policy_blocked"
"""The reason that an event stream's client is told."""
BROKEN = "the answer cannot be searched, and a policy applies: internal error"
"""Nothing is meant to raise this."""


class FilteredRelay(Relay):
    """`abandon` stops the upstream of an answer of which nothing more may pass.

    The head goes out with the first bytes that may pass: until then a rule can still refuse the answer by a status.
    """

    __slots__ = ("_abandon", "_filter", "_refused", "_seen")

    _abandon: Callable[[], None] | None
    _filter: BodyFilter | None
    _refused: str
    _seen: Meter

    def filter(self, body_filter: BodyFilter, abandon: Callable[[], None]) -> None:
        """Before anything else."""
        self._filter = body_filter
        self._abandon = abandon
        self._refused = ""
        self._seen = Meter(of_responses=self._meter.of_responses)

    @property
    def meter(self) -> Meter:
        """What the upstream said of its cost, whether that was handed on or not."""
        return self._seen

    @property
    def refused(self) -> str:
        """See Relay."""
        return self._refused

    def start(self) -> None:
        """The head waits for what may pass, where anything may be refused."""
        if self._filter is not None and not self._filter.holds:
            super().start()

    def let_go(self) -> None:
        """Of what is held, and of the upstream's answer, which holds this. It has ended, however it did."""
        self._abandon = self._filter = None

    def body(self, data: bytes, *, last: bool) -> None:
        """Take what one upstream read delivered."""
        if self._refused or self._filter is None:
            return
        if self.hashes is not None:
            self.hashes.come(data)
        if data:
            self._seen.watch(data)
        passed = b""
        try:
            passed = self._filter.receive(data)
            if last:
                passed += self._filter.finish()
        except Blocked as blocked:
            passed += blocked.passed
            self._refused = blocked.told
        except Exception:  # what was not searched does not pass, and the connection that brought it goes on
            if self._filter.holds:
                self._refused = BROKEN
            else:
                passed = data
        self._hand(passed, last=last and not self._refused)
        if self._refused and self._abandon is not None:
            self._abandon()

    def _hand(self, data: bytes, *, last: bool) -> None:
        if data or last:
            hashes, self.hashes = self.hashes, None  # has been told what came
            super().body(data, last=last)
            self.hashes = hashes
            if hashes is not None:
                hashes.hand(data)

    def truncate(self, reason: str) -> None:
        """The body ends here. What was held goes first; where a rule ends it, before its first byte, that is all."""
        if not self._refused and self._tail is not None and self._filter is not None:
            passed = b""
            try:
                passed = self._filter.finish(is_whole=False)
            except Blocked as blocked:
                passed, self._refused = blocked.passed, blocked.told
            except Exception:
                self._refused = BROKEN
            self._hand(passed, last=False)
            if self._refused:
                return
        super().start()
        super().truncate(reason)
