"""The BudgetLedger of `proxy.budgets` on a database that counts quotas: its file or server, its connections.

Owns what is asked of the database, and what is still to be written. A reservation is one transaction. What requests
came to is written in batches, SETTLE_SECONDS after they ended at the latest, and at the end; so a process that is
killed leaves too much counted, by what was under way and what was not written yet, and what soft budgets counted in
that time is lost. How a statement is run is `quota_sqlite`'s and `quota_postgresql`'s.
"""

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.core.budget import MOST, BudgetRefusal, Charge, Hold
from pointsman.core.fault_place import fault_place
from pointsman.core.quota import LedgerUnavailable
from pointsman.store import budget_statements as statements
from pointsman.store.budget_turns import CounterKey, Key, Turn, Turns, key_of
from pointsman.store.quota_crowd import Crowd
from pointsman.store.quota_ledger import Abandoned, AddedTo, CountingDatabase, Rows, UnknownEnd, Values

SETTLE_SECONDS = 0.05
"""From a request's end to the write of what it came to."""
RETRY_SECONDS = 1.0
KEPT_SECONDS = 35 * 86_400.0
"""Counts of days and months that have been over for so long are deleted: a clock that was wrong may come back."""
KEPT_HOURS_SECONDS = 86_400.0
"""The same of hours and minutes, of which there are many more."""
_PRUNE_SECONDS = 60.0
MOST_UNWRITTEN = 10_000
"""Counters that wait for the database; of more, what is to be given back is given up, and too much is counted."""
_TRIES = 3
_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Counted:
    """A soft budget's counter has grown. Of all processes one is told of each step."""

    key: CounterKey
    account: str
    before: int
    used: int


@dataclass(frozen=True, slots=True)
class Used:
    """One counter as it is now."""

    key: CounterKey
    used: int
    ends_at: float


@dataclass(slots=True)
class _Change:
    account: str
    ends_at: float
    amount: int
    is_soft: bool


class SqlBudgetLedger:
    """For one event loop. A composition root runs `watch` beside it, and closes it before the database."""

    def __init__(
        self,
        database: CountingDatabase,
        say: Callable[[str], None],
        counted: Callable[[Counted], None] = lambda _: None,
    ) -> None:
        """`say` hears of counters that cannot be used, once for each reason; `counted` of soft budgets' steps."""
        self._database = database
        self._say = say
        self._counted = counted
        self._changes: dict[Key, _Change] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._turns = Turns()
        self._crowd: Crowd[Sequence[AddedTo], bool] = Crowd(self._add_together)
        self._asked = 0
        """Reservations so far, this one included."""
        self._full: set[tuple[Key, ...]] = set()
        """What had no room when it was asked for last: it is looked at first, which holds up nobody."""
        self._told = ""
        self._pruned_at = -math.inf

    async def reserve(self, account: str, charges: Sequence[Charge], now: float) -> Hold | BudgetRefusal:
        """See BudgetLedger. Of soft budgets nothing is counted yet, and nothing is asked."""
        hold = Hold(account, charges)
        hard = [each for each in charges if each.limit is not None]
        if not hard:
            return hold

        hard.sort()  # by their keys, which differ
        keys = tuple([key_of(each) for each in hard])
        if not (keys in self._full or self._turns.has_some(keys)) and await self._add_at_once(hold, hard):
            if self._told:
                self._note("")
            return hold
        self._asked += 1
        with self._turns.joined(keys, self._asked) as turn:
            turn.wants(hold, hard)
            try:
                await turn.come()
                if turn.is_added:
                    return hold
                return turn.known(hard) or await self._reserve(hold, hard, turn, now)
            except asyncio.CancelledError:
                if turn.is_added:
                    self._give_back(hold)
                raise
            except LedgerUnavailable as error:
                turn.fail(error, self._asked)
                raise self._noted(error) from None

    async def _add_at_once(self, hold: Hold, hard: Sequence[Charge]) -> bool:
        """Alone, or with others of this turn of the event loop, which share a commit."""
        added = [_added_to(each, each.limit or 0) for each in hard]
        place = self._crowd.join(added) if self._database.adds_at_once else None
        if place is None:
            return self._database.add_at_once(added)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._give_back(hold)
            raise

    def _add_together(self, crowd: Sequence[Sequence[AddedTo]]) -> Sequence[bool]:
        """For each, whether it was added. What has room for the sum has it for each of them, in any order."""
        if len(crowd) > 1 and self._database.add_at_once(sums_of(crowd)):
            return [True] * len(crowd)
        return [self._database.add_at_once(added) for added in crowd]

    def _give_back(self, hold: Hold) -> None:
        self.settle(hold, [0] * len(hold.charges))

    async def _add_for_all(self, turn: Turn, others: Sequence[Turn]) -> bool:
        """Whether there was room for all that wait; they need not ask then."""
        sums = [
            charge._replace(amount=sum(each.charges[at].amount for each in (turn, *others)))
            for at, charge in enumerate(turn.charges)
        ]
        if any(each.limit is not None and each.amount > each.limit for each in sums):
            return False
        together = Hold(turn.hold.account, sums)
        # Those who wait must hear of it, also when the one who asks for them goes.
        adding = asyncio.get_running_loop().create_task(self._add_all(together, sums), name="budget reservations")
        try:
            is_added = await asyncio.shield(adding)
        except asyncio.CancelledError:
            await asyncio.wait([adding])
            if not adding.cancelled() and adding.exception() is None and adding.result():
                turn.is_added = True
                self._let_in(turn, others)
            raise
        if is_added:
            self._let_in(turn, others)
        return is_added

    def _let_in(self, turn: Turn, others: Sequence[Turn]) -> None:
        for gone in turn.let_in(others):
            self._give_back(Hold(gone.hold.account, gone.charges))

    async def _add_all(self, hold: Hold, hard: Sequence[Charge]) -> bool:
        def give_up(rows: Rows | None) -> None:
            if rows is not None and len(rows) == len(hard):
                self._give_back(hold)

        values: Values = {"account": hold.account, **statements.values_of([_values_of(each) for each in hard])}
        return await self._add(values, len(hard), give_up)

    async def _reserve(self, hold: Hold, hard: Sequence[Charge], turn: Turn, now: float) -> Hold | BudgetRefusal:
        others = turn.others()
        if others and turn.keys not in self._full:
            if await self._add_for_all(turn, others):
                self._note("")
                return hold
            turn.fall_short()

        def give_up(rows: Rows | None) -> None:
            if rows is not None and len(rows) == len(hard):
                self._give_back(hold)

        values: Values = {"account": hold.account, **statements.values_of([_values_of(each) for each in hard])}
        for _ in range(_TRIES):
            if turn.keys not in self._full and await self._add(values, len(hard), give_up):
                self._note("")
                return hold
            refusal = await self._looked(values, hard, turn)
            if refusal is not None:
                if len(self._full) < MOST_UNWRITTEN:
                    self._full.add(turn.keys)
                return refusal
            self._full.discard(turn.keys)
        return BudgetRefusal(hard[0].budget, now + _AGAIN_SECONDS)  # given back and taken again, several times over

    async def _add(self, values: Values, count: int, give_up: Abandoned) -> bool:
        """Whether all was added, or nothing."""
        if count == 1 and await self._database.run(statements.RESERVE_MORE, values, give_up):
            return True
        return bool(await self._database.run_whole(statements.reserve(count), values, count, give_up))

    async def _looked(self, values: Values, hard: Sequence[Charge], turn: Turn) -> BudgetRefusal | None:
        """Whether there is no room even when all that has ended is written, here and in other processes."""
        refusal = await self._look(values, hard, turn)
        if refusal is None or all(each.amount <= 1 for each in hard):
            return refusal
        # What is given back is told late; a client that asks again at once must not be refused for that.
        await asyncio.sleep(2 * SETTLE_SECONDS)
        return await self._look(values, hard, turn)

    async def _look(self, values: Values, hard: Sequence[Charge], turn: Turn) -> BudgetRefusal | None:
        if not self._changes.keys().isdisjoint(turn.keys):
            await self.write()
        asked = self._asked
        rows = await self._database.run(statements.look(len(hard)), values, _forget)
        return turn.learn({row[:3]: row[3] for row in rows}, asked).known(hard)

    async def look(self, account: str, charges: Sequence[Charge]) -> Sequence[int]:
        """See BudgetLedger: exact for this process, SETTLE_SECONDS old for others."""
        if not charges:
            return ()
        await self.write()
        values: Values = {"account": account, **statements.values_of([_values_of(each) for each in charges])}
        rows = await self._database.run(statements.look(len(charges)), values, _forget)
        used = {row[:3]: row[3] for row in rows}
        return [used.get(key_of(each), 0) for each in charges]

    def settle(self, hold: Hold, amounts: Sequence[int]) -> None:
        """See BudgetLedger."""
        if hold.is_settled:
            return
        hold.is_settled = True
        changes = self._changes
        for charge, came_to in zip(hold.charges, amounts, strict=True):
            amount = came_to if charge.limit is None else came_to - charge.amount
            key = key_of(charge)
            known = changes.get(key)
            if known is not None:
                known.amount += amount
            elif amount > 0 or (amount and len(changes) < MOST_UNWRITTEN):
                changes[CounterKey._make(key)] = _Change(hold.account, charge.ends_at, amount, charge.limit is None)
        if not self._wake.is_set():
            self._wake.set()

    async def write(self) -> None:
        """Write what requests came to. Raises LedgerUnavailable; what was not written is written the next time."""
        async with self._writing:
            while self._changes:
                await self._write_some()

    async def _write_some(self) -> None:
        """Of one account, since a statement is."""
        account = next(iter(self._changes.values())).account
        keys = [key for key, change in self._changes.items() if change.account == account]
        taken = {key: self._changes.pop(key) for key in sorted(keys)[: statements.COUNTERS_AT_ONCE]}
        counters = [
            (*key, min(change.amount, MOST), 0, change.ends_at) for key, change in taken.items() if change.amount
        ]
        if not counters:
            return
        values: Values = {"account": account, **statements.values_of(counters)}

        def give_up(rows: Rows | None) -> None:
            if rows is None:
                self._put_back(taken)

        try:
            rows = await self._database.run(statements.settle(len(counters)), values, give_up)
        except LedgerUnavailable as error:
            self._put_back(taken, may_be_done=isinstance(error, UnknownEnd))
            raise self._noted(error) from None
        self._note("")
        for budget, subject, window, used in rows:
            key = CounterKey(budget, subject, window)
            if taken[key].is_soft:
                self._counted(Counted(key, account, used - taken[key].amount, used))

    def _put_back(self, taken: Mapping[Key, _Change], *, may_be_done: bool = False) -> None:
        """What perhaps was done is done again only where that counts too much and not too little."""
        for key, change in taken.items():
            if may_be_done and change.amount < 0:
                continue
            known = self._changes.get(key)
            if known is not None:
                known.amount += change.amount
            else:
                self._changes[key] = change

    async def used(self, account: str, now: float) -> Sequence[Used]:
        """An account's counters whose windows are not over: exact for this process, SETTLE_SECONDS old for others.

        Raises LedgerUnavailable.
        """
        await self.write()
        rows = await self._database.run(statements.USED, {"account": account, "now": now}, _forget)
        return [Used(CounterKey(*row[:3]), row[3], row[4]) for row in rows]

    async def forget(self, budget: str) -> None:
        """Delete the counters of a budget that is no more. Raises LedgerUnavailable."""
        await self._database.run(statements.FORGET, {"budget": budget}, _forget)

    async def prune(self, now: float) -> None:
        """Delete some of what is old, and once a minute look whether there is any. Raises LedgerUnavailable."""
        if abs(now - self._pruned_at) < _PRUNE_SECONDS:
            return
        old: Values = {"recent": now - KEPT_HOURS_SECONDS, "oldest": now - KEPT_SECONDS}
        rows = await self._database.run(statements.PRUNE, old, _forget)
        if len(rows) < statements.PRUNED_AT_ONCE:
            self._pruned_at = now

    async def watch(self, clock: Callable[[], float]) -> None:
        """Write what requests came to, soon after each, until cancelled. `clock` gives epoch seconds."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await self.write()
                await self.prune(clock())
            except LedgerUnavailable:  # it was told
                self._wake.set()
                await asyncio.sleep(RETRY_SECONDS)
            except Exception as error:  # one that was not foreseen must not end the writing
                self._note(f"budgets: internal error: {fault_place(error)}; what requests came to is written later")
                self._wake.set()
                await asyncio.sleep(RETRY_SECONDS)

    def _noted(self, error: LedgerUnavailable) -> LedgerUnavailable:
        text = str(error)
        if text.startswith("quotas"):
            text = f"budgets{text.removeprefix('quotas')}"
        self._note(text)
        return type(error)(text)

    def _note(self, trouble: str) -> None:
        if trouble != self._told:
            self._told = trouble
            self._say(trouble or "budgets are counted again")

    async def close(self) -> None:
        """Write what can be written now. The database stays open."""
        await self._database.settle()
        with contextlib.suppress(LedgerUnavailable):
            await self.write()


def _added_to(charge: Charge, limit: int) -> AddedTo:
    return (min(charge.amount, limit + 1), limit, charge.budget, charge.subject, charge.window)


def sums_of(crowd: Sequence[Sequence[AddedTo]]) -> list[AddedTo]:
    """What all of them add to each counter, in the order of keys. Beyond a limit it is only told that it is."""
    sums: dict[tuple[str, str, str, int], int] = {}
    for amount, limit, budget, subject, window in itertools.chain.from_iterable(crowd):
        counter = (budget, subject, window, limit)
        sums[counter] = min(sums.get(counter, 0) + amount, limit + 1)
    return [
        (amount, limit, budget, subject, window) for (budget, subject, window, limit), amount in sorted(sums.items())
    ]


def _values_of(charge: Charge) -> tuple[str, str, str, int, int, float]:
    limit = charge.limit or 0
    return (charge.budget, charge.subject, charge.window, min(charge.amount, limit + 1), limit, charge.ends_at)


def _forget(_: Rows | None) -> None:
    """Nothing depends on it."""
