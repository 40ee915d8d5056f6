"""Reservations of the same counters take turns within a process, and share what is learnt while they wait.

A server's rows are changed by one transaction at a time anyway; a crowd that waits here takes no connections from
others, and is refused together once there is no room.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from pointsman.core.budget import BudgetRefusal, Charge
from pointsman.core.quota import LedgerUnavailable
from pointsman.routing.budgets import refusal_of
from pointsman.store.problems import HELD
from pointsman.store.quota_ledger import PATIENCE_SECONDS


class CounterKey(NamedTuple):
    """Which counter; in the order in which a database is asked."""

    budget: str
    subject: str
    window: str


def key_of(charge: Charge) -> CounterKey:
    """Of what is charged."""
    return CounterKey._make(charge[:3])


class _Crowd:
    """All that ask for the same counters now."""

    __slots__ = ("error", "failed_after", "lock", "looked_after", "members", "used")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0
        self.used: Mapping[CounterKey, int] = {}
        self.looked_after = 0
        """The last of those who had asked when it was looked at."""
        self.error: LedgerUnavailable | None = None
        self.failed_after = 0


class Turn:
    """One reservation's place in its crowd."""

    __slots__ = ("_crowd", "_holds", "_mine", "keys")

    def __init__(self, keys: tuple[CounterKey, ...], crowd: _Crowd, mine: int) -> None:
        self.keys = keys
        self._crowd = crowd
        self._mine = mine
        self._holds = False

    async def come(self) -> None:
        """Wait until it is this one's turn. Raises LedgerUnavailable, also for what another's turn has shown since."""
        crowd = self._crowd
        if not crowd.lock.locked():
            await crowd.lock.acquire()
            self._holds = True
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await crowd.lock.acquire()
                self._holds = True
        if not self._holds:
            raise LedgerUnavailable(f"budgets cannot be counted: {HELD}")
        if crowd.error is not None and self._mine <= crowd.failed_after:
            raise crowd.error

    def known(self, charges: Sequence[Charge]) -> BudgetRefusal | None:
        """That there was no room, if somebody has looked since this one came: the charge whose window is over last."""
        crowd = self._crowd
        if self._mine > crowd.looked_after:
            return None
        return refusal_of(charges, lambda each: crowd.used.get(key_of(each), 0))

    def learn(self, used: Mapping[CounterKey, int], asked: int) -> Self:
        """What counters have, looked at when so many had asked."""
        self._crowd.used, self._crowd.looked_after = used, asked
        return self

    def fail(self, error: LedgerUnavailable, asked: int) -> None:
        """Nothing could be counted, for all who have asked by now."""
        if self._holds:
            self._crowd.error, self._crowd.failed_after = error, asked

    def end(self) -> None:
        """The next one's turn."""
        if self._holds:
            self._crowd.lock.release()


class Turns:
    """For one event loop."""

    def __init__(self) -> None:
        self._crowds: dict[tuple[CounterKey, ...], _Crowd] = {}

    def has_some(self, keys: tuple[CounterKey, ...]) -> bool:
        """Whether anybody asks for the same now: whoever comes next waits for them."""
        return keys in self._crowds

    @contextlib.contextmanager
    def joined(self, keys: tuple[CounterKey, ...], mine: int) -> Iterator[Turn]:
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
