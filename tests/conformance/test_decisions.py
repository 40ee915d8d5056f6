"""Decisions on their way into the audit record: batches, floods, an outage, the end."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from pointsman.core.audit import AuditDraft, AuditEntry, AuditQuery
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import StoreUnavailable
from pointsman.gateway.audit_layer import AuditLayer
from pointsman.gateway.stages.decisions import MOST_OF_A_KIND, MOST_WAITING, OMITTED, WINDOW_SECONDS, Decisions, noting
from pointsman.store.interface import Store
from tests.support.databases import Database
from tests.support.waiting import until


class Away(AuditLayer):
    """Its database is away as long as a test says so."""

    failure: Exception | None = None
    is_lost_after_the_commit = False

    async def append_audit(self, drafts: Sequence[AuditDraft]) -> ChainHead:
        if self.failure is not None and not self.is_lost_after_the_commit:
            raise self.failure
        head = await super().append_audit(drafts)
        if self.failure is not None:
            raise self.failure
        return head


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def entries(store: Store) -> list[AuditEntry]:
    async with store.read() as reader:
        return list(await reader.audit(AuditQuery(100_000)))


async def until_written(store: Store, number: int) -> list[AuditEntry]:
    async with asyncio.timeout(60):
        while len(found := await entries(store)) < number:
            await asyncio.sleep(0.02)
    return found


def note(decisions: Decisions, subject: str = "r-1", account: str = "default") -> None:
    decisions.note_decision(account, "key:laptop", "policy.block", subject, {"rule": "no-shell", "revision": 7})


async def test_a_decision_is_an_entry_soon_after(database: Database) -> None:
    async with database.opened() as store:
        decisions = Decisions(store, print, Clock())
        async with noting(decisions):
            before = await store.generation()
            note(decisions)
            (found,) = await until_written(store, 1)
            assert await store.generation() == before
        assert (found.account, found.actor, found.action) == ("default", "key:laptop", "policy.block")
        assert (found.subject, found.before, found.at) == ("r-1", "", 1000.0)
        assert json.loads(found.after) == {"rule": "no-shell", "revision": 7}
        assert decisions.lost == 0


async def test_what_waits_at_the_end_is_written(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        decisions = Decisions(store, print, Clock())
        async with noting(decisions):
            note(decisions)
        assert len(await entries(store)) == 1


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_a_flood_of_one_kind_is_told_by_its_first_and_a_number(sqlite: Database, more: int) -> None:
    async with sqlite.opened() as store:
        clock = Clock()
        decisions = Decisions(store, print, clock)
        async with noting(decisions):
            for number in range(MOST_OF_A_KIND + more):
                note(decisions, f"r-{number}")
            note(decisions, "another's", "other")
            await until_written(store, MOST_OF_A_KIND + 1)
            clock.now += WINDOW_SECONDS
            note(decisions, "later")
        found = await entries(store)
    told = [entry.subject for entry in found if entry.action == "policy.block"]
    assert told == [*(f"r-{number}" for number in range(MOST_OF_A_KIND)), "another's", "later"]
    counted = [entry for entry in found if entry.action == OMITTED]
    assert [(entry.subject, entry.actor, json.loads(entry.after)["count"]) for entry in counted] == (
        [("policy.block", "gateway", more)] if more else []
    )
    assert decisions.lost == 0


async def test_a_window_that_nothing_follows_is_counted_when_it_is_over(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        clock = Clock()
        decisions = Decisions(store, print, clock)
        async with noting(decisions):
            for _ in range(MOST_OF_A_KIND + 1):
                note(decisions)
            clock.now += WINDOW_SECONDS
            found = await until_written(store, MOST_OF_A_KIND + 1)
            assert found[-1].action == OMITTED


async def test_a_clock_that_is_set_back_a_day_ends_the_window(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        clock = Clock()
        clock.now = 90_000.0
        decisions = Decisions(store, print, clock)
        async with noting(decisions):
            for _ in range(MOST_OF_A_KIND + 2):
                note(decisions)
            clock.now = 3600.0
            note(decisions, "r-2")
            found = await until_written(store, MOST_OF_A_KIND + 2)
        assert json.loads(found[-2].after) == {"action": "policy.block", "count": 2, "seconds": WINDOW_SECONDS}
        assert (found[-1].at, found[-1].subject) == (3600.0, "r-2")


async def test_decisions_wait_for_a_database_that_is_away(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        said: list[str] = []
        away = Away(store, Clock())
        away.failure = StoreUnavailable("it is away")
        decisions = Decisions(away, said.append, Clock())
        async with noting(decisions):
            note(decisions)
            await until(lambda: "audit: decisions wait for the database: it is away" in said)
            away.failure = None
            await until_written(store, 1)
            await until(lambda: len(said) == 2)
        assert said[1:] == ["audit: decisions are written again; 0 were lost since the start"]


async def test_what_was_committed_as_the_database_went_is_not_written_twice(database: Database) -> None:
    async with database.opened() as stored:
        store = Away(stored, Clock())
        decisions = Decisions(store, print, Clock())
        store.failure, store.is_lost_after_the_commit = StoreUnavailable("the database was lost"), True
        async with noting(decisions):
            note(decisions, "r-1")
            note(decisions, "r-2")
            await until_written(stored, 2)
            note(decisions, "r-3")
            store.failure = None
            await until_written(stored, 3)
        assert [each.subject for each in await entries(stored)] == ["r-1", "r-2", "r-3"]
        assert decisions.lost == 0


async def test_what_is_lost_is_counted(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        said: list[str] = []
        away = Away(store, Clock())
        away.failure = StoreUnavailable("it is away")
        decisions = Decisions(away, said.append, Clock())
        async with noting(decisions):
            for number in range(MOST_WAITING + 1):
                note(decisions, account=f"a{number}")
            assert decisions.lost == 1
        assert decisions.lost == MOST_WAITING + 1
        assert f"audit: decisions lost: {MOST_WAITING}: the database did not take them before the end" in said
        assert await entries(store) == []


async def test_a_batch_that_can_never_be_written_does_not_keep_others(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        said: list[str] = []
        away = Away(store, Clock())
        away.failure = RuntimeError("unforeseen")
        decisions = Decisions(away, said.append, Clock())
        async with noting(decisions):
            note(decisions)
            await until(lambda: decisions.lost == 1)
            away.failure = None
            note(decisions, "next")
        assert [entry.subject for entry in await entries(store)] == ["next"]
        assert any("internal error" in line for line in said)
