"""Requests on chains, told as an attempt loop tells them, on clocks that stand still."""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from pointsman.core.attempts import Member, Plan, Skipped
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.secret import Secret
from pointsman.events.operations import Subject
from pointsman.events.operations_record import Operation, OperationJournal, Watcher
from pointsman.testing import FakeClock
from pointsman.wire.usage import TokenUsage
from tests.support.canary import KEY

MIDNIGHT = 1_796_083_200.0
"""2026-12-01T00:00:00Z."""


def member(name: str, model: str = "") -> Member:
    url = f"https://{name}.example/secret-path/v1" if name.isalnum() else "https://odd.example/v1"
    candidate = Candidate("fast", parse_endpoint(url), model or f"{name}-model", (), api_key=Secret(KEY))
    return Member(name, candidate)


GROQ, GEMINI, LOCAL = member("groq"), member("gemini"), member("local")


class Counted:
    """A body that reported its tokens."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._usage = TokenUsage(incoming, outgoing)

    def usage(self) -> TokenUsage | None:
        return self._usage


class Told:
    """Lines as they were given to a place for lines."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


class Journal:
    """A journal that writes to `told`, on one wall clock that also measures durations."""

    def __init__(self, *watchers: Watcher, lines: Any = None, now: float = MIDNIGHT - 3600) -> None:
        self.told = Told()
        self.clock = FakeClock(now)
        self.journal = OperationJournal(lines or self.told, watchers, wall_clock=self.clock, clock=self.clock)
        self._count = 0

    def request(self, route: str = "fast", account: str = "default", fallback: Member | None = LOCAL) -> Operation:
        self._count += 1
        return self.journal.started(Subject(f"r-{self._count}", account, route), fallback)

    @property
    def events(self) -> list[dict[str, Any]]:
        self.journal.flush()
        return self.told.events


def succeed(
    record: Operation, journal: Journal, *members: Member, skipped: Sequence[Skipped] = (), reason: str = ""
) -> None:
    """The last of the members answers, all before it fail."""
    record.ordering(Plan(members, tuple(skipped)))
    for each, following in itertools.pairwise(members):
        record.attempting(each, each.candidate.model)
        journal.clock.advance(0.1)
        record.attempt_failed(each, reason or "server_error", following)
    record.attempting(members[-1], members[-1].candidate.model)
    journal.clock.advance(0.5)
    record.completed(200, Counted(12, 34))


def scripted(tell: Callable[[Journal], object], *watchers: Watcher, lines: Any = None) -> list[dict[str, Any]]:
    """What a journal tells of a script, which runs on a loop of its own."""

    async def run() -> list[dict[str, Any]]:
        journal = Journal(*watchers, lines=lines)
        tell(journal)
        return journal.events

    return asyncio.run(run())


async def a_day_with_an_outage(journal: Journal) -> None:
    """A request every two minutes; groq fails from 09:00 to 11:00, gemini has no room from 10:00 on."""
    clock = journal.clock
    start = clock.now
    for number in range(720):
        clock.now = start + number * 120.0
        hour = number / 30
        record = journal.request()
        no_room = [Skipped("gemini", "quota_daily", MIDNIGHT)] if hour >= 10 else []
        others = [LOCAL] if no_room else [GEMINI, LOCAL]
        record.ordering(Plan((GROQ, *others), tuple(no_room)))
        record.attempting(GROQ, "groq-model")
        answering = GROQ
        if 9 <= hour < 11:
            record.attempt_failed(GROQ, "server_error", GROQ)
            record.attempting(GROQ, "groq-model")
            record.attempt_failed(GROQ, "server_error", others[0])
            answering = others[0]
            record.attempting(answering, answering.candidate.model)
        clock.advance(0.75)
        record.completed(200, Counted(10, 20))
    journal.journal.flush()
