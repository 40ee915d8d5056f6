"""The audit record in either database: one sequence without gaps, in the transaction of what it tells of."""

import asyncio
from dataclasses import replace

import pytest

from pointsman.core.audit import AUDIT_PURPOSE, AuditDraft, AuditQuery, digest_of_entry
from pointsman.core.chain import GENESIS, ChainHead
from pointsman.core.control_errors import StoreUnavailable
from pointsman.store.interface import Store
from tests.conformance.records import ACCOUNT, provider, route
from tests.support.databases import Database

ALL = AuditQuery(100_000)


def draft(number: int, **changes: str) -> AuditDraft:
    entry = AuditDraft(1000.1 + number, ACCOUNT, "admin", "route.update", f"r{number}", '{"a":1}', '{"a":"\\u00fc"}')
    return replace(entry, **changes)  # type: ignore[arg-type]


async def change_and_note(store: Store, *drafts: AuditDraft) -> None:
    async with store.write() as writer:
        await writer.insert_provider(provider())
        await writer.append_audit(drafts)
        if not drafts[-1].subject:
            raise ZeroDivisionError


async def subjects(store: Store, query: AuditQuery) -> list[str]:
    async with store.read() as reader:
        return [entry.subject for entry in await reader.audit(query)]


async def test_entries_are_numbered_from_one_and_chained_across_transactions(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            assert await writer.audit_head() == ChainHead(0, GENESIS)
            assert (await writer.append_audit([draft(1), draft(2)])).sequence == 2
        head = await store.append_audit([draft(3)])
        key = store.derive(AUDIT_PURPOSE)
    async with database.opened() as store, store.read() as reader:
        found = await reader.audit(ALL)
        assert await reader.audit_head() == head == ChainHead(3, found[-1].digest)
    assert [entry.sequence for entry in found] == [1, 2, 3]
    assert [entry.previous for entry in found] == [GENESIS, *(entry.digest for entry in found[:-1])]
    assert [entry.digest for entry in found] == [digest_of_entry(entry, key) for entry in found]
    assert (found[0].at, found[0].after) == (1001.1, '{"a":"\\u00fc"}')


async def test_an_undone_change_leaves_no_entry_and_its_number_is_used_again(database: Database) -> None:
    async with database.opened() as store:
        with pytest.raises(ZeroDivisionError):
            await change_and_note(store, draft(1), draft(2, subject=""))
        async with store.read() as reader:
            assert await reader.audit(ALL) == []
        assert (await store.append_audit([draft(2)])).sequence == 1


async def test_entries_of_no_record_leave_the_generation_and_none_leave_everything(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()
        await store.append_audit([draft(1)])
        assert await store.append_audit([]) == await store.append_audit([])
        assert await store.generation() == before
        async with store.read() as reader:
            assert await reader.generation() == before


@pytest.mark.parametrize("number", [499, 500, 501])
async def test_many_entries_are_one_addition(database: Database, number: int) -> None:
    async with database.opened() as store:
        assert (await store.append_audit([draft(n) for n in range(number)])).sequence == number
        assert await subjects(store, ALL) == [f"r{n}" for n in range(number)]


async def test_a_query_takes_what_it_names(database: Database) -> None:
    async with database.opened() as store:
        await store.append_audit(
            [
                draft(1, action="key.create"),
                draft(2, action="key.revoke", actor="key:laptop"),
                draft(3, action="keys.list", account="other"),
                draft(4, action="key", subject="r1"),
                draft(5, action="key/x"),
            ]
        )
        assert await subjects(store, AuditQuery(2)) == ["r1", "r2"]
        assert await subjects(store, AuditQuery(2, newest_first=True)) == ["r5", "r1"]
        assert await subjects(store, AuditQuery(9, after=3)) == ["r1", "r5"]
        assert await subjects(store, AuditQuery(9, account="other")) == ["r3"]
        assert await subjects(store, AuditQuery(9, actor="key:laptop")) == ["r2"]
        assert await subjects(store, AuditQuery(9, subject="r1")) == ["r1", "r1"]
        assert await subjects(store, AuditQuery(9, action="key")) == ["r1", "r2", "r1"]
        assert await subjects(store, AuditQuery(9, action="key.revoke")) == ["r2"]
        assert await subjects(store, AuditQuery(9, since=1003.1)) == ["r3", "r1", "r5"]


@pytest.mark.timeout(120)
async def test_writers_of_two_processes_and_of_both_kinds_leave_no_gap(database: Database) -> None:
    """Changes of records queue at the generation, other entries do not: both queue at the record's head."""
    async with database.opened() as one, database.opened() as other:

        async def change(store: Store, name: str) -> None:
            async with store.write() as writer:
                await writer.put_route(replace(route(name), provider_name="p"))
                await writer.append_audit([draft(0, subject=name)])

        async def note(store: Store, name: str) -> None:
            await store.append_audit([draft(0, subject=name), draft(0, subject=name)])

        jobs = [change(store, f"c{n}") for n in range(15) for store in (one, other)]
        jobs += [note(store, f"n{n}") for n in range(15) for store in (one, other)]
        await asyncio.gather(*jobs)
        async with one.read() as reader:
            found = await reader.audit(ALL)
            head = await reader.audit_head()
        assert [entry.sequence for entry in found] == list(range(1, 91))
        assert [entry.previous for entry in found[1:]] == [entry.digest for entry in found[:-1]]
        assert head == ChainHead(90, found[-1].digest)
        # What was added together stands together.
        noted = [entry.subject for entry in found if entry.subject.startswith("n")]
        assert noted[::2] == noted[1::2]


async def test_without_its_head_the_record_takes_nothing_and_no_change_is_made(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer._connection.exec_driver_sql("DELETE FROM audit_head")
        with pytest.raises(StoreUnavailable, match="pointsman audit verify"):
            await change_and_note(store, draft(1))
        async with store.read() as reader:
            assert await reader.provider(ACCOUNT, provider().name) is None


async def test_an_entry_that_has_the_next_number_already_stops_every_change(database: Database) -> None:
    async with database.opened() as store:
        await store.append_audit([draft(1), draft(2)])
        async with store.write() as writer:
            await writer._connection.exec_driver_sql("UPDATE audit_head SET sequence = 1")
        with pytest.raises(StoreUnavailable, match="pointsman audit verify"):
            await store.append_audit([draft(3)])
        assert await subjects(store, ALL) == ["r1", "r2"]


async def test_values_of_foreign_types_are_read_as_what_no_digest_fits(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await store.append_audit([draft(1)])
        async with store.write() as writer:
            await writer._connection.exec_driver_sql(
                "UPDATE audit SET digest = 'text', previous = 7, at = 'noon', subject = x'ff'"
            )
        async with store.read() as reader:
            (found,) = await reader.audit(ALL)
    assert (found.digest, found.previous, found.at, found.subject) == (b"", b"", 0.0, "")
