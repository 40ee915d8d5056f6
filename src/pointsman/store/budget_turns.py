"""Reservations of the same counters take turns within a process, and share what is done and learnt while they wait.

A server's rows are changed by one transaction at a time anyway; a crowd that waits here takes no connections from
others. Whoever's turn it is asks for all that wait; once there is no room for them all, each asks for itself; and they
are refused together once there is none.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from pointsman.core.budget import BudgetRefusal, Charge, Hold
from pointsman.core.quota import LedgerUnavailable
from pointsman.routing.budgets import refusal_of
from pointsman.store.quota_ledger import PATIENCE_SECONDS

_PARTS = 4
_SLOW = (
    "budgets cannot be counted: those who asked before have waited for the database for too long; "
    "look whether its disk or its server is busy, and whether something keeps a transaction open"
)


class CounterKey(NamedTuple):
    """Which counter; in the order in which a database is asked."""

    budget: str
    subject: str
    window: str


Key = tuple[str, str, str]
"""The same without names, where some are made per request."""


def key_of(charge: Charge) -> Key:
    """Of what is charged."""
    return charge[:3]


class _Crowd:
    """All that ask for the same counters now."""

    __slots__ = ("error", "failed_after", "is_short", "is_taken", "looked_after", "members", "used", "waiting")

    def __init__(self) -> None:
        self.is_taken = False
        """Whether it is somebody's turn."""
        self.waiting: deque[Turn] = deque()
        """Those whose turn is to come, in order; some may have gone."""
        self.is_short = False
        """Whether there was no room for all."""
        self.members = 0
        self.used: Mapping[Key, int] = {}
        self.looked_after = 0
        """The last of those who had asked when it was looked at."""
        self.error: LedgerUnavailable | None = None
        self.failed_after = 0


class Turn:
    """One reservation's place in its crowd."""

    __slots__ = ("_called", "_crowd", "_holds", "_mine", "charges", "hold", "is_added", "keys")

    def __init__(self, keys: tuple[Key, ...], crowd: _Crowd, mine: int) -> None:
        self.keys = keys
        self._crowd = crowd
        self._mine = mine
        self._holds = False
        self._called: asyncio.Future[None] | None = None
        self.hold = Hold("", ())
        self.charges: Sequence[Charge] = ()
        self.is_added = False
        """Whether another has asked for it: it has what it came for."""

    def wants(self, hold: Hold, charges: Sequence[Charge]) -> None:
        """What it came for: `charges` are those that are counted now, in the order of `keys`."""
        self.hold, self.charges = hold, charges

    async def come(self) -> None:
        """Wait until it is this one's turn, or `is_added`.

        Raises LedgerUnavailable, also for what another's turn has shown since.
        """
        crowd = self._crowd
        if not crowd.is_taken:
            crowd.is_taken = self._holds = True
            return
        called = self._called = asyncio.get_running_loop().create_future()
        crowd.waiting.append(self)
        try:
            # In parts: a loop that stood still, for a disk say, uses up one of them and not all patience.
            for _ in range(_PARTS):
                if not called.done():
                    await asyncio.wait([called], timeout=PATIENCE_SECONDS / _PARTS)
        finally:
            called.cancel()  # no effect on one that has been called
        if self.is_added:
            return
        if not self._holds:
            raise LedgerUnavailable(_SLOW)
        if crowd.error is not None and self._mine <= crowd.failed_after:
            raise crowd.error

    def others(self) -> Sequence["Turn"]:
        """All that wait for room within the same limits; none once there was not enough for all."""
        if self._crowd.is_short:
            return ()
        limits = [each.limit for each in self.charges]
        return [
            each
            for each in self._crowd.waiting
            if each._is_waiting and [charge.limit for charge in each.charges] == limits
        ]

    def let_in(self, turns: Iterable["Turn"]) -> list["Turn"]:
        """These have what they came for; those of them that have gone meanwhile."""
        gone = []
        for each in turns:
            if each._called is not None and each._is_waiting:
                each.is_added = True
                each._called.set_result(None)
            else:
                gone.append(each)
        return gone

    def fall_short(self) -> None:
        """There is no room for all."""
        self._crowd.is_short = True

    @property
    def _is_waiting(self) -> bool:
        return self._called is not None and not self._called.done()

    def known(self, charges: Sequence[Charge]) -> BudgetRefusal | None:
        """That there was no room, if somebody has looked since this one came: the charge whose window is over last."""
        crowd = self._crowd
        if self._mine > crowd.looked_after:
            return None
        return refusal_of(charges, lambda each: crowd.used.get(key_of(each), 0))

    def learn(self, used: Mapping[Key, int], asked: int) -> Self:
        """What counters have, looked at when so many had asked."""
        self._crowd.used, self._crowd.looked_after = used, asked
        return self

    def fail(self, error: LedgerUnavailable, asked: int) -> None:
        """Nothing could be counted, for all who have asked by now."""
        if self._holds:
            self._crowd.error, self._crowd.failed_after = error, asked

    def end(self) -> None:
        """The next one's turn."""
        if not self._holds:
            return
        self._holds = False
        waiting = self._crowd.waiting
        while waiting:
            following = waiting.popleft()
            if following._called is not None and following._is_waiting:
                following._holds = True
                following._called.set_result(None)
                return
        self._crowd.is_taken = False


class Turns:
    """For one event loop."""

    def __init__(self) -> None:
        self._crowds: dict[tuple[Key, ...], _Crowd] = {}

    def has_some(self, keys: tuple[Key, ...]) -> bool:
        """Whether anybody asks for the same now: whoever comes next waits for them."""
        return keys in self._crowds

    @contextlib.contextmanager
    def joined(self, keys: tuple[Key, ...], mine: int) -> Iterator[Turn]:
        """A place behind all that ask for the same; `mine` is a number that grows with each that asks for anything."""
        crowd = self._crowds.get(keys)
        if crowd is None:
            crowd = self._crowds[keys] = _Crowd()
        crowd.members += 1
        turn = Turn(keys, crowd, mine)
        try:
            yield turn
        finally:
            turn.end()
            crowd.members -= 1
            if not crowd.members:
                del self._crowds[keys]
