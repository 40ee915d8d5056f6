"""The ledger that databases share: what is asked of them, what is known without asking, what is still to be written.

Not here: the statements (`quota_statements`), how one is run (`quota_sqlite`, `quota_postgresql`).

What is counted is never less than what was acknowledged. It may be more, for a day at most: by the reservations that
were under way in a process that was killed, and by places whose return could not be written before it ended.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pointsman.core.fault_place import fault_place
from pointsman.core.quota import Counters, LedgerUnavailable, Quota, QuotaKey, Reservation
from pointsman.core.quota_book import DayCount, Exhausted, QuotaBook
from pointsman.core.quota_window import DayCalendar, minute_of
from pointsman.core.time_zones import zone_named
from pointsman.store import quota_statements as statements

PATIENCE_SECONDS = 1.0
"""How long a statement may take, waiting for others included, before the ledger counts as unavailable."""
LOOK_SECONDS = 1.0
"""How old what is known of other processes' counts may be. A plan that is wrong for so long costs a refusal."""
KEPT_DAYS = 35
"""Counts of older dates are deleted. No date needs more than two days; a month lets an operator look back."""
MOST_UNWRITTEN = 10_000
"""Returns that wait for the database; beyond, the oldest are given up, and too much is counted."""


class UnknownEnd(LedgerUnavailable):
    """The database was lost while it did it: perhaps it was done, perhaps not."""


Rows = Sequence[tuple[Any, ...]]
Values = Mapping[str, str | int | float]
Asked = tuple[str, str, str, str, int, int, int, float]
"""Of a reservation: `quota_statements.RESERVE_VALUES`."""
AddedTo = tuple[int, int, str, str, str]
"""What is added to one budget's counter: the amount, the limit, and its key: `budget_statements.ADD_VALUES`."""
Abandoned = Callable[[Rows | None], None]
"""Told what a statement gave whose caller was cancelled: its rows, or None when it was not run."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a database holds of the last days."""

    counts: Rows
    exhausted: Rows


class CountingDatabase(Protocol):
    """Runs statements, each a transaction.

    Every method raises LedgerUnavailable; then nothing was changed, unless it is UnknownEnd.
    """

    adds_at_once: bool
    """Whether `add_at_once` ever does."""

    def count_at_once(self, asked: Asked) -> DayCount | None:
        """A place taken on a date that has places already, without waiting; None: nothing was done, `run` can tell why.

        Never raises.
        """

    def join_crowd(self, asked: Asked) -> "asyncio.Future[DayCount | None] | None":
        """The same together with others of this turn of the event loop; None: `count_at_once` is as good."""

    def add_at_once(self, counters: Sequence[AddedTo]) -> bool:
        """Whether it was added to all of these, which were there and had room, without waiting; else to none of them.

        Never raises: `run_whole` can tell why nothing was done.
        """

    async def run(self, statement: str, values: Values, abandoned: Abandoned) -> Rows:
        """One of `quota_statements`, within PATIENCE_SECONDS."""

    async def run_whole(self, statement: str, values: Values, count: int, abandoned: Abandoned) -> Rows:
        """The same of `budget_statements`: all of so many rows, or no row, and then nothing was changed."""

    async def look(self, since: str, prune: Values | None) -> Seen:
        """Counts since a day, after deleting what is old, off the event loop's time."""

    async def settle(self) -> None:
        """Wait for statements that go on after their callers were cancelled."""

    async def close(self) -> None:
        """Let the database go."""


class SqlQuotaLedger:
    """The QuotaLedger of `proxy.ledger`, for one event loop. A composition root runs `watch` beside it."""

    def __init__(self, database: CountingDatabase) -> None:
        self._database = database
        self._book = QuotaBook()
        self._calendar = DayCalendar(zone_named)
        self._unwritten: deque[tuple[str, Values]] = deque(maxlen=MOST_UNWRITTEN)
        self._learning: set[QuotaKey] = set()
        self._pruned = ""
        self._trouble = ""
        """Why the last reservation, or the last look, was in vain; empty when it was not."""
        self._is_of_look = False
        self._told = ""

    @property
    def database(self) -> CountingDatabase:
        """For another ledger beside this one, which closes it."""
        return self._database

    def counters(self, key: QuotaKey, quota: Quota, now: float) -> Counters:
        """See QuotaLedger: exact for what was done here, LOOK_SECONDS old for what others did."""
        return self._book.counters(key, self._calendar.at(quota.reset_timezone, now), now)

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        """See QuotaLedger."""
        if self._book.exhausted_until(key, now):
            return None
        day = self._calendar.at(quota.reset_timezone, now)
        asked = (*key, day.name, day.ahead_name, minute_of(now), quota.daily_requests, quota.requests_per_minute, now)
        crowd = self._database.join_crowd(asked)
        count = self._database.count_at_once(asked) if crowd is None else await self._in_crowd(crowd, key, day.name)
        if count is None:
            count = await self._reserve(key, day.name, asked)
        if self._trouble:
            self._trouble = ""
        if count is not None:
            self._book.learn(key, day.name, count)
            return Reservation(key, day.name, count.minute)
        # A crowd that is refused at once asks once.
        if key not in self._learning:
            self._learning.add(key)
            try:
                await self._learn(key, day.name, now)
            finally:
                self._learning.discard(key)
        return None

    async def _in_crowd(self, place: "asyncio.Future[DayCount | None]", key: QuotaKey, day: str) -> DayCount | None:
        try:
            return await place
        except asyncio.CancelledError:
            count = place.result() if place.done() and not place.cancelled() else None
            if count is not None:
                self._write_later(statements.RELEASE, _release_values(Reservation(key, day, count.minute)))
            raise

    async def _reserve(self, key: QuotaKey, day: str, asked: Asked) -> DayCount | None:
        def give_up(rows: Rows | None) -> None:
            if rows:
                self._write_later(statements.RELEASE, _release_values(Reservation(key, day, rows[0][1])))

        values: Values = dict(zip(statements.RESERVE_VALUES, asked, strict=True))
        try:
            rows = await self._database.run(statements.RESERVE, values, give_up)
        except LedgerUnavailable as error:
            self._trouble, self._is_of_look = str(error), False
            raise
        return DayCount(*rows[0]) if rows else None

    async def _learn(self, key: QuotaKey, day: str, now: float) -> None:
        """Why there was no room, so that the next plan knows."""
        of_key: Values = {"account": key.account, "provider": key.provider}
        with contextlib.suppress(LedgerUnavailable):
            for row in await self._database.run(statements.COUNTS_OF_DAY, {**of_key, "day": day}, _forget):
                self._book.learn(key, day, DayCount(*row))
            for row in await self._database.run(statements.EXHAUSTED_OF, of_key, _forget):
                self._book.exhaust(key, Exhausted(*row), now)

    async def release(self, reservation: Reservation) -> None:
        """See QuotaLedger."""
        if reservation.is_returned:
            return
        reservation.is_returned = True
        for row in await self._write(statements.RELEASE, _release_values(reservation)):
            self._book.learn(reservation.key, reservation.day, DayCount(*row))

    async def exhaust(self, key: QuotaKey, until: float, now: float) -> None:
        """See QuotaLedger."""
        self._book.exhaust(key, Exhausted(until, now), now)
        await self._write(
            statements.EXHAUST, {"account": key.account, "provider": key.provider, "until": until, "now": now}
        )

    async def _write(self, statement: str, values: Values) -> Rows:
        """Now, or later when it cannot be now."""

        def give_up(rows: Rows | None) -> None:
            if rows is None:
                self._write_later(statement, values)

        try:
            return await self._database.run(statement, values, give_up)
        except LedgerUnavailable as error:
            if not _may_be_done(statement, error):
                self._write_later(statement, values)
            return ()

    def _write_later(self, statement: str, values: Values) -> None:
        self._unwritten.append((statement, values))

    async def look(self, now: float) -> None:
        """Write what could not be written, learn what others counted, delete what is old. Raises LedgerUnavailable."""
        await self._write_unwritten()
        moment = datetime.fromtimestamp(now, UTC)
        today = moment.date().isoformat()
        prune: Values | None = None
        if today != self._pruned:
            oldest = moment - timedelta(days=KEPT_DAYS)
            prune = {"oldest_day": oldest.date().isoformat(), "oldest": oldest.timestamp()}
        changes = self._book.changes
        seen = await self._database.look((moment - timedelta(days=2)).date().isoformat(), prune)
        self._pruned = today
        self._book.replace(((QuotaKey(row[0], row[1]), row[2], DayCount(*row[3:])) for row in seen.counts), changes)
        for account, provider, until, said_at in seen.exhausted:
            self._book.exhaust(QuotaKey(account, provider), Exhausted(until, said_at), now)

    async def _write_unwritten(self) -> None:
        for _ in range(len(self._unwritten)):
            statement, values = self._unwritten.popleft()
            await self._rewrite(statement, values)

    async def _rewrite(self, statement: str, values: Values) -> None:
        def give_up(rows: Rows | None) -> None:
            if rows is None:
                self._write_later(statement, values)

        try:
            await self._database.run(statement, values, give_up)
        except LedgerUnavailable as error:
            if not _may_be_done(statement, error):
                self._write_later(statement, values)
            raise

    async def watch(self, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        """Look every LOOK_SECONDS, until cancelled. `clock` gives epoch seconds.

        `say` hears of counters that cannot be used, once for each reason, and when a place was counted again.
        """
        while True:
            try:
                await self.look(clock())
                if self._is_of_look:  # on a full disk, say, reading goes on: only who failed can tell that it is over
                    self._trouble = ""
            except LedgerUnavailable as error:
                self._trouble, self._is_of_look = str(error), True
            except Exception as error:  # one that was not foreseen must not end the looking
                self._trouble = f"quotas: internal error: {fault_place(error)}; what others count is not learnt"
                self._is_of_look = True
            self._tell(say)
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, say: Callable[[str], None]) -> None:
        if self._trouble == self._told:
            return
        self._told = self._trouble
        say(self._trouble or "quotas are counted again")

    async def close(self) -> None:
        """Write what could not be written, if that can be done now, and let the database go."""
        await self._database.settle()
        with contextlib.suppress(LedgerUnavailable):
            await self._write_unwritten()
        await self._database.close()


def _release_values(reservation: Reservation) -> Values:
    key = reservation.key
    return {
        "account": key.account,
        "provider": key.provider,
        "day": reservation.day,
        "minute": reservation.minute,
    }


def _may_be_done(statement: str, error: LedgerUnavailable) -> bool:
    """Whether to leave it: a place given back twice would be counted too little. An exhaustion can be said twice."""
    return statement == statements.RELEASE and isinstance(error, UnknownEnd)


def _forget(_: Rows | None) -> None:
    """Nothing depends on it."""
