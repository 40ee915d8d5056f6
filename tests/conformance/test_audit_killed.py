"""A store that is killed in the middle of changes: no entry without its change, no change without its entry."""

import random

import pytest

from pointsman.core.audit import AuditQuery
from pointsman.gateway.audit import Audit
from tests.conformance.records import ACCOUNT
from tests.conformance.writer import WriterProcess
from tests.support.databases import Database

KILLS = 20


async def whole(database: Database, before: int, said: int) -> int:
    """The number of changes of a record that verifies and tells of each, acknowledged ones included."""
    async with database.opened() as store:
        found = await Audit(store).verify()
        assert (found.problems, found.is_complete) == ([], True)
        async with store.read() as reader:
            entries = await reader.audit(AuditQuery(100_000))
            providers = await reader.provider_names(ACCOUNT)
            routes = await reader.routes(ACCOUNT)
            changes = await reader.generation()
        assert before + said <= changes <= before + said + 1
        expected = [f"provider.create p{number}" for number in range(1, changes + 1)]
        assert [f"{each.action} {each.subject}" for each in entries[::2]] == expected
        assert {each.action for each in entries[1::2]} <= {"route.create", "route.update"}
        assert found.head.sequence == len(entries) == 2 * changes
        assert (len(providers), sum(each.version for each in routes)) == (changes, changes)
    return changes


@pytest.mark.guarantee("W1")
@pytest.mark.timeout(240)
async def test_twenty_writers_are_killed_and_every_change_has_its_entry(sqlite: Database) -> None:
    numbers = random.Random(20)
    changes = 0
    for _ in range(KILLS):
        writer = WriterProcess(sqlite.settings, audited=True)
        said = [writer.next() for _ in range(numbers.randrange(1, 4))]
        # Somewhere within the writes after that, which take some milliseconds each.
        writer.wait(numbers.random() * 0.02)
        said += writer.kill()
        changes = await whole(sqlite, changes, len(said))
    assert changes >= KILLS
