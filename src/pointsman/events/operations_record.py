"""One request on its way through a route, as the attempt loop tells it; and the journal that gathers what is told.

While a request runs, an event costs a small object and an append. Lines are formed, token counts read and metrics
counted when a batch is written.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from pointsman.core.attempts import Member, Plan, Skipped
from pointsman.core.policy import PolicyHit
from pointsman.events import operations
from pointsman.events.operation_log import Lines
from pointsman.events.operations import Happening, Subject
from pointsman.events.record import UsageSource

_FLUSH_SECONDS = 0.2
_MOST_PENDING = 256
"""Forming them takes about half a millisecond, and the loop stands still meanwhile."""


class Watcher(Protocol):
    """Sees every event once, in order, when a batch is written; token counts have been read by then."""

    def watch(self, happenings: Sequence[Happening], /) -> None:
        """Count them. Must not raise."""


class OperationJournal:
    """Gathers events; gives them to `lines` as JSON and to every watcher as they are.

    `wall_clock` tells seconds since the epoch, `clock` durations. Use it on one event loop.
    """

    def __init__(
        self,
        lines: Lines | None,
        watchers: Sequence[Watcher] = (),
        *,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._lines = lines
        self._watchers = tuple(watchers)
        self._silent = lines is None and not watchers
        self.wall_clock = wall_clock
        self.clock = clock
        self._pending: list[Happening] = []
        self._timer: asyncio.TimerHandle | None = None

    def started(self, subject: Subject, final_fallback: Member | None = None) -> "Operation":
        """Note a request that was accepted. `final_fallback`: the chain's, if it has one."""
        return Operation(self, subject, final_fallback)

    def append(self, happening: Happening) -> None:
        """Note what has happened."""
        if self._silent:
            return
        pending = self._pending
        pending.append(happening)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
        elif len(pending) >= _MOST_PENDING:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        if not pending:
            return
        for each in pending:
            if each.usage is not None:
                each.settle()
        if self._lines is not None:
            self._lines.write("".join([operations.event_line(each) for each in pending]))
            self._lines.flush()
        for watcher in self._watchers:
            watcher.watch(pending)


class Operation:
    """One request on its way. Exactly one of `completed`, `failed` and `cancelled` ends it; more are ignored."""

    __slots__ = (
        "_began",
        "_calling",
        "_ended",
        "_final_fallback",
        "_first",
        "_is_fallback",
        "_journal",
        "_model",
        "_streams",
        "attempts",
        "provider",
        "subject",
    )

    def __init__(self, journal: OperationJournal, subject: Subject, final_fallback: Member | None) -> None:
        self._journal = journal
        self.subject = subject
        self._final_fallback = final_fallback
        self._began = journal.clock()
        self._first: Member | None = None
        self._is_fallback = False
        self._model = ""
        self._calling = False
        self._streams = False
        self._ended = False
        self.attempts = 0
        """Calls of providers so far, retries included."""
        self.provider = ""
        """Who is being asked, or was last; empty when nobody was."""
        journal.append(Happening(operations.INFER_STARTED, journal.wall_clock(), subject))

    def ordering(self, plan: Plan) -> None:
        """The plan is made: note it, and who has no room."""
        now = self._journal.wall_clock()
        self._first = plan.attempts[0] if plan.attempts else None
        self._journal.append(Happening(operations.INFER_ORDERING, now, self.subject, plan=plan))
        for each in plan.skipped:
            if each.reason in operations.QUOTA_REASONS:
                self._limit_hit(each, now)

    def skipped(self, skipped: Skipped, following: Member | None = None) -> None:
        """A provider of the plan is not called when its turn has come, mostly since its last place has gone meanwhile.

        `following` is who is next, or nobody.
        """
        now = self._journal.wall_clock()
        if skipped.reason in operations.QUOTA_REASONS:
            self._limit_hit(skipped, now)
        else:
            self._fell_back(operations.INFER_FALLBACK, skipped.provider, following, skipped.reason)

    def attempting(self, member: Member, model: str) -> None:
        """A provider of the plan is called, for the first time or again. `model` is what it is asked for."""
        self.calling(member.provider, model)
        self._is_fallback = member is not self._first or member is self._final_fallback

    def calling(self, provider: str, model: str) -> None:
        """A provider is called, for the first time or again, because a route leads to it and to no other."""
        self.attempts += 1
        self._calling = True
        self.provider = provider
        self._model = model

    def attempt_failed(self, member: Member, reason: str, following: Member | None) -> None:
        """It failed, or could not be called, and who is next: the same again, another, or nobody."""
        event = operations.INFER_RETRIED if following is member else operations.INFER_FALLBACK
        self._fell_back(event, member.provider, following, reason)

    def _fell_back(self, event: str, provider: str, following: Member | None, reason: str) -> None:
        called, self._calling = self._calling, False
        self._journal.append(
            Happening(
                event,
                self._journal.wall_clock(),
                self.subject,
                provider=provider,
                following=following.provider if following is not None else "",
                reason=reason,
                ends_attempt=called,
            )
        )

    def policy_hit(self, hit: PolicyHit, version: int, *, is_enforced: bool) -> None:
        """A rule of the account's policy has matched."""
        now = self._journal.wall_clock()
        self._journal.append(
            Happening(operations.POLICY_HIT, now, self.subject, hit=hit, attempts=version, fallback=is_enforced)
        )

    def stream_started(self) -> None:
        """The first byte of an event stream goes to the client."""
        self._streams = True
        journal = self._journal
        seconds = journal.clock() - self._began
        journal.append(
            Happening(
                operations.STREAM_STARTED, journal.wall_clock(), self.subject, provider=self.provider, seconds=seconds
            )
        )

    def completed(self, status: int, usage: UsageSource | None) -> None:
        """The answer, a success, went through whole. `usage` is read later."""
        if self._streams and not self._ended:
            self._end(operations.STREAM_COMPLETED, status, usage=usage)
            self._ended = False
        self._end(operations.INFER_COMPLETED, status, usage=usage)

    def failed(self, reason: str, status: int) -> None:
        """The client got an error, or half of an answer. `status`: what the client was sent; 0 for nothing."""
        self._end(operations.INFER_FAILED, status, reason)

    def cancelled(self, reason: str = "client_gone") -> None:
        """The client went away, or had to go."""
        self._end(operations.INFER_CANCELLED, 0, reason)

    def _end(self, event: str, status: int, reason: str = "", usage: UsageSource | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        journal = self._journal
        journal.append(
            Happening(
                event,
                journal.wall_clock(),
                self.subject,
                self.provider,
                self._model,
                reason=reason,
                usage=usage,
                seconds=journal.clock() - self._began,
                attempts=self.attempts,
                status=status,
                fallback=self._is_fallback,
                ends_attempt=self._calling,
            )
        )

    def _limit_hit(self, skipped: Skipped, now: float) -> None:
        self._journal.append(
            Happening(
                operations.RATE_LIMIT_HIT,
                now,
                self.subject,
                provider=skipped.provider,
                reason=skipped.reason,
                until=skipped.until,
            )
        )
