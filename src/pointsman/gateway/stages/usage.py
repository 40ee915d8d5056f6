"""A usage row per inference request of the data listener: gathered while requests run, written behind their backs.

Owns what becomes a row, when rows are written, how many may wait while the store is away, and when old ones go. What a
row holds is `core.usage_row`'s, how it is stored the store's.
"""

import asyncio
import contextlib
import itertools
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import lru_cache

from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import ControlError
from pointsman.core.fault_place import fault_place
from pointsman.core.money import MOST
from pointsman.core.price import NO_PRICES, PriceTable, Tokens
from pointsman.core.usage_row import ESTIMATED, REPORTED, UsageRow
from pointsman.events.printable import printable
from pointsman.events.record import Record, StageNotes
from pointsman.gateway.stages.tokens import tokens_of
from pointsman.gateway.stages.usage_tally import UsageTally
from pointsman.proxy.background import finishing, running
from pointsman.proxy.stages import Passage
from pointsman.routing.tokens_used import NOTHING
from pointsman.store.interface import Store
from pointsman.wire.upstream_request_id import find_upstream_request_id

FORMED_AT_ONCE = 200
"""Records that become rows together, which takes less than a millisecond."""
WRITTEN_AT_ONCE = 2000
"""Rows of one transaction: it costs the loop some 1.5 ms, however few they are."""
WAIT_SECONDS = 0.5
"""From a request's end to its row's write: what a gateway that is killed loses, and tells of when it starts again."""
MOST_WAITING = 20_000
"""Rows that are kept while the store is away, about 10 MiB; more are lost, and counted."""
RETRY_SECONDS = 1.0
_STOP_SECONDS = 5.0
_DAY = 86_400.0
_PRUNE_AGAIN_SECONDS = 600.0
_RETRIES = b"x-stainless-retry-count"
"""Of OpenAI's and Anthropic's libraries: how often they had sent this request before."""
_COUNT = re.compile(rb"[0-9]{1,4}")
_LONGEST = 256  # characters of a model's name; a client may have chosen it

_NO_NOTES = StageNotes()
"""Of what was refused before any stage."""


class UsageRows:
    """`record` is called as each request ends; `follow` writes. `now` tells seconds since the epoch.

    `prices_of` gives an account's prices of the moment.
    """

    def __init__(
        self,
        store: Store,
        say: Callable[[str], None],
        now: Callable[[], float],
        *,
        keep_days: int,
        most_waiting: int = MOST_WAITING,
        prices_of: Callable[[str], PriceTable] = lambda _: NO_PRICES,
    ) -> None:
        self._store = store
        self._say = say
        self._now = now
        self._keep_days = keep_days
        self._most_waiting = most_waiting
        self._prices_of = prices_of
        self.tally = UsageTally()
        """Of what a kill would lose; a process's own takes its place before any request comes."""
        self._ended: list[Record] = []
        self._rows: deque[UsageRow] = deque()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._away = False
        """Whether the last write failed: it may have been made all the same."""
        self._full = False
        self.lost = 0
        """Rows that were given up since the start."""

    async def open(self, passage: Passage) -> None:
        """Count a request that is under way: the stage `usage_open`."""
        told = passage.request.head.values.get(_RETRIES)
        if told is not None:
            passage.notes.client_retries = int(told) if _COUNT.fullmatch(told) else 0
        self.tally.began()

    def record(self, record: Record) -> None:
        """Note a request that has ended: the stage `usage_record`."""
        self.tally.ended(had_begun=record.notes is not None)
        ended = self._ended
        ended.append(record)
        if len(ended) == 1:
            self._wake.set()
        elif len(ended) >= FORMED_AT_ONCE:
            self.form()

    def form(self) -> None:
        """Make rows, at the prices of the moment, of what has ended. They are small; records hold ends of bodies."""
        ended, self._ended = self._ended, []
        room = self._most_waiting - len(self._rows)
        if len(ended) > room:
            if not self._full:
                self._full = True
                self._say(f"usage: {self._most_waiting} rows wait for the database; more are lost until it answers")
            self.lost += len(ended) - room
            self.tally.settled(len(ended) - room)
            del ended[room:]
        for record in ended:
            try:
                self._rows.append(row_of(record, self._prices_of(record.caller.account)))
            except Exception as error:  # requests end here, and must
                self._lose(1, f"internal error: {fault_place(error)}")

    async def follow(self) -> None:
        """Write what ends, in batches, until `stop`; then what is left."""
        while not self._stopping.is_set():
            await self._wake.wait()
            await self._pause(WAIT_SECONDS)
            self._wake.clear()
            self.form()
            while self._rows and not await self._write():
                await self._pause(RETRY_SECONDS)
                if self._stopping.is_set():
                    break
        self.form()
        while self._rows and await self._write():
            pass

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _write(self) -> bool:
        """Whether the store took all that waits, one batch after the other."""
        while self._rows:
            batch = list(itertools.islice(self._rows, WRITTEN_AT_ONCE))
            try:
                await self._store.append_usage(batch, again=self._away)
            except ControlError as error:
                if not self._away:
                    self._away = True
                    self._say(f"usage: rows wait for the database: {error.text}")
                return False
            except Exception as error:
                # A batch that can never be written must not keep those behind it.
                self._lose(len(batch), f"internal error: {fault_place(error)}")
            else:
                self.tally.settled(len(batch))
            for _ in batch:
                self._rows.popleft()
        if self._away or self._full:
            self._away = self._full = False
            self._say(f"usage: rows are written again; {self.lost} were lost since the start")
        return True

    def stop(self) -> None:
        """Let `follow` write what is left, and end."""
        self._stopping.set()
        self._wake.set()

    def give_up(self) -> None:
        """Count and tell what nobody will write any more."""
        self.form()
        if self._rows:
            self._lose(len(self._rows), "the database did not take them before the end")
            self._rows.clear()

    def _lose(self, number: int, reason: str) -> None:
        self.lost += number
        self.tally.settled(number)
        self._say(f"usage: rows lost: {number}: {reason}")

    async def prune_daily(self) -> None:
        """Remove rows that are older than they are kept, at once and then every day, until cancelled."""
        while True:
            days, again = self._keep_days, _DAY
            try:
                removed = await self._store.prune_usage(self._now() - days * _DAY)
                if removed:
                    self._say(f"usage: {removed} rows older than {days} days were removed")
            except ControlError:  # the store says what is wrong
                again = _PRUNE_AGAIN_SECONDS
            except Exception as error:
                self._say(f"usage: old rows stay for now: internal error: {fault_place(error)}")
            await asyncio.sleep(again)


@contextlib.asynccontextmanager
async def keeping(rows: UsageRows) -> AsyncIterator[None]:
    """Writes and prunes until it is left; then writes what is left, for 5 s at most."""
    try:
        async with (
            finishing(rows.follow(), "usage rows", rows.stop, _STOP_SECONDS),
            running(rows.prune_daily(), "usage retention"),
        ):
            yield
    finally:
        rows.give_up()


def row_of(record: Record, prices: PriceTable = NO_PRICES) -> UsageRow:
    """What is kept of a request that has ended. `prices`: its account's."""
    tokens, caller, notes = tokens_of(record), record.caller, record.notes or _NO_NOTES
    answering = record.candidate if record.is_answered else None
    used = NOTHING if tokens is None else tokens
    return UsageRow(
        caller.account,
        record.request_id,
        record.time + record.seconds,
        record.route,
        answering.provider if answering is not None else "",
        printable(answering.model, _LONGEST) if answering is not None else "",
        record.status,
        None if tokens is None else tokens.input,
        None if tokens is None else tokens.output,
        record.attempts,
        record.seconds * 1000,
        caller.shown_name,
        record.method,
        _kept(record.path),
        record.protocol,
        used.cached_input,
        used.reasoning,
        "" if tokens is None else ESTIMATED if tokens.is_estimated else REPORTED,
        None if tokens is None or record.candidate is None else _cost(record.candidate, tokens, prices),
        prices.version,
        record.reason,
        len(notes.hits),
        notes.saved_tokens,
        caller.user,
        record.requested_model and _kept(record.requested_model),
        "" if record.candidate is None else record.candidate.ai_model_id,
        find_upstream_request_id(record.answer_fields) if record.answer_fields and answering is not None else "",
        notes.finish_reason,
        printable(record.detail) if record.reason else "",
        notes.client_retries,
        1 if record.is_fallback and answering is not None else 0,
        notes.budgets and printable(notes.budgets, _LONGEST),
        notes.refused_budget,
    )


@lru_cache(maxsize=64)
def _kept(text: str) -> str:
    """Of a path, a model: most requests have one of a few."""
    return printable(text, _LONGEST)


def _cost(candidate: Candidate, tokens: Tokens, prices: PriceTable) -> int | None:
    """Within what a database holds, whatever an upstream reports."""
    cost = prices.cost(candidate.provider, candidate.model, tokens)
    return None if cost is None else min(cost, MOST)
