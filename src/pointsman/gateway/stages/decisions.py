"""Decisions on requests, on their way into the audit record: noted while requests run, written behind their backs.

Owns how many are told one by one: a client that is refused a thousand times a second must not fill a record that is
never shortened. The rest is counted, in the record too. What is decided, and how it is told: whoever notes it.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping

from pointsman.core.audit import AuditDraft, AuditQuery
from pointsman.core.audited import as_json
from pointsman.core.control_errors import ControlError
from pointsman.core.fault_place import fault_place
from pointsman.gateway.actor import GATEWAY
from pointsman.proxy.background import finishing
from pointsman.store.interface import Store

WAIT_SECONDS = 0.5
"""From a decision to its entry's write: what a gateway that is killed loses."""
WINDOW_SECONDS = 60.0
MOST_OF_A_KIND = 60
"""Of one account and action in a window; those after them are counted in one entry at the window's end."""
MOST_WAITING = 10_000
"""Entries that are kept while the store is away; more are lost, and counted."""
OMITTED = "decision.omitted"
WRITTEN_AT_ONCE = 200
"""Entries of one transaction: some milliseconds of the loop, which requests share."""
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 5.0
_LONGEST = 512
_LOOKED_AT = 16

Kind = tuple[str, str]
"""Account and action."""


class Decisions:
    """`note_decision` never waits; `follow` writes. `now` tells seconds since the epoch."""

    def __init__(self, store: Store, say: Callable[[str], None], now: Callable[[], float]) -> None:
        self._store = store
        self._say = say
        self._now = now
        self._waiting: list[AuditDraft] = []
        self._window_ends = 0.0
        self._told: Counter[Kind] = Counter()
        self._omitted: Counter[Kind] = Counter()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_away = False
        self._unsure = 0
        """Of those that wait, how many were in a write that failed: it may have been made all the same."""
        self.lost = 0
        """Decisions since the start that no entry tells of, not even by a number."""

    def note_decision(
        self, account: str, actor: str, action: str, subject: str, detail: Mapping[str, object] | None = None
    ) -> None:
        """Note what was decided on a request: `policy.block`, the request's id, and which rule of which revision.

        `detail` becomes JSON and must hold no text of the request: the record is kept for ever.
        """
        now = self._now()
        if self._is_over(now):
            self._end_window()
            self._window_ends = now + WINDOW_SECONDS
        kind = (account, action)
        if self._told[kind] >= MOST_OF_A_KIND:
            self._omitted[kind] += 1
        else:
            self._told[kind] += 1
            after = as_json(dict(detail)) if detail else ""
            self._add(AuditDraft(now, account, actor, action, subject[:_LONGEST], after=after))
        self._wake.set()

    def _is_over(self, now: float) -> bool:
        """Also when the clock was set back: else nothing more would be told until it is as late again."""
        return not self._window_ends - WINDOW_SECONDS <= now < self._window_ends

    def _end_window(self) -> None:
        """Count what was not told one by one."""
        omitted, self._omitted = self._omitted, Counter()
        self._told.clear()
        for (account, action), number in omitted.items():
            after = as_json({"action": action, "count": number, "seconds": WINDOW_SECONDS})
            self._add(AuditDraft(self._now(), account, GATEWAY, OMITTED, action, after=after), number)

    def _add(self, draft: AuditDraft, stands_for: int = 1) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(draft)
        else:
            self._lose(stands_for)

    def _lose(self, number: int) -> None:
        if not self.lost:
            self._say("audit: decisions are lost from now on, and counted")
        self.lost += number

    async def follow(self) -> None:
        """Write what was noted, in batches, until `stop`; then what is left."""
        while not self._stopping.is_set():
            await self._woken()
            await self._pause(WAIT_SECONDS)
            if self._omitted and self._is_over(self._now()):
                self._end_window()
            while self._waiting and not self._stopping.is_set() and not await self._write():
                await self._pause(_RETRY_SECONDS)
        self._end_window()
        await self._write()

    async def _woken(self) -> None:
        """Until something was noted, or a window is over whose rest has to be counted."""
        left = min(max(0.0, self._window_ends - self._now()), WINDOW_SECONDS) if self._omitted else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.clear()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _write(self) -> bool:
        """Whether the store took all that waits."""
        while self._waiting:
            batch = self._waiting[:WRITTEN_AT_ONCE]
            try:
                if self._unsure and await self._has(batch[0]):
                    batch = batch[: self._unsure]
                else:
                    self._unsure = len(batch)
                    await self._store.append_audit(batch)
            except ControlError as error:
                if not self._is_away:
                    self._is_away = True
                    self._say(f"audit: decisions wait for the database: {error.text}")
                return False
            except Exception as error:  # one that can never be written must not keep those behind it
                self._say(f"audit: internal error: {fault_place(error)}")
                self._lose(len(batch))
            del self._waiting[: len(batch)]
            self._unsure = 0
        if self._is_away:
            self._is_away = False
            self._say(f"audit: decisions are written again; {self.lost} were lost since the start")
        return True

    async def _has(self, draft: AuditDraft) -> bool:
        """Whether the record has this one, and so all that were written with it."""
        query = AuditQuery(_LOOKED_AT, 0, draft.account, draft.actor, draft.action, draft.subject, draft.at)
        async with self._store.read() as reader:
            return any((each.at, each.after) == (draft.at, draft.after) for each in await reader.audit(query))

    def stop(self) -> None:
        """Let `follow` write what is left, and end."""
        self._stopping.set()
        self._wake.set()

    def give_up(self) -> None:
        """Count and tell what nobody will write any more."""
        self._end_window()
        if self._waiting:
            self.lost += len(self._waiting)
            self._say(f"audit: decisions lost: {len(self._waiting)}: the database did not take them before the end")
            self._waiting.clear()


@contextlib.asynccontextmanager
async def noting(decisions: Decisions) -> AsyncIterator[None]:
    """Writes until it is left; then writes what is left, for 5 s at most."""
    try:
        async with finishing(decisions.follow(), "decisions", decisions.stop, _STOP_SECONDS):
            yield
    finally:
        decisions.give_up()
