"""What `audit verify` finds in a database that somebody else has written to, of either kind."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pointsman.core.audit import AuditDraft, AuditQuery
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import Verification
from pointsman.core.control_errors import InvalidRequest
from pointsman.gateway.audit import MOST_PAGE_CHARACTERS, Audit, AuditPage
from pointsman.gateway.hash_chain import DEFAULT_PAGE, LONGEST_PAGE, MOST_CHECKED, READ_AT_ONCE
from pointsman.store.sql import SqlStore
from tests.support.databases import Database

WRITTEN = 6
COPY = (
    "INSERT INTO audit SELECT {sequence}, at, account, actor, action, subject, before, after, previous, digest "
    "FROM audit WHERE sequence = 3"
)


async def write(store: SqlStore, number: int = WRITTEN, after: str = "{}") -> ChainHead:
    drafts = [AuditDraft(1000.1 + n, "default", "admin", "key.create", f"k{n}", "", after) for n in range(number)]
    return await store.append_audit(drafts)


async def tamper(store: SqlStore, statements: Sequence[str]) -> None:
    async with store.write() as writer:
        for statement in statements:
            await writer._connection.exec_driver_sql(statement)


async def all_pages(audit: Audit, query: AuditQuery) -> list[AuditPage]:
    pages = [await audit.page(query)]
    while pages[-1].next:
        pages.append(await audit.page(replace(query, after=pages[-1].next)))
    return pages


def starts(found: Verification) -> list[str]:
    return [problem.split(":")[0].split(", ")[0] for problem in found.problems]


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        *(
            ([f"UPDATE audit SET {change} WHERE sequence = 3"], ["entry 3 was altered"])
            for change in (
                "at = at + 0.001",
                "account = 'other'",
                "actor = 'gateway'",
                "action = 'key.revoke'",
                "subject = 'k9'",
                "before = '{}'",
                "after = ''",
            )
        ),
        (
            ["UPDATE audit SET previous = digest WHERE sequence = 3"],
            ["entry 3 does not follow the entry before it", "entry 3 was altered"],
        ),
        (
            ["UPDATE audit SET digest = previous WHERE sequence = 3"],
            ["entry 3 was altered", "entry 4 does not follow the entry before it"],
        ),
        (["DELETE FROM audit WHERE sequence = 1"], ["entry 1 is missing"]),
        (["DELETE FROM audit WHERE sequence IN (3, 4)"], ["entries 3 to 4 are missing"]),
        (
            [
                "UPDATE audit SET sequence = 99 WHERE sequence = 3",
                "UPDATE audit SET sequence = 3 WHERE sequence = 4",
                "UPDATE audit SET sequence = 4 WHERE sequence = 99",
            ],
            [
                "entry 3 does not follow the entry before it",
                "entry 3 was altered",
                "entry 4 does not follow the entry before it",
                "entry 4 was altered",
                "entry 5 does not follow the entry before it",
            ],
        ),
        (
            [COPY.format(sequence=7)],
            [
                "entry 7 does not follow the entry before it",
                "entry 7 was altered",
                "the last is entry 7",
            ],
        ),
        ([COPY.format(sequence=0)], ["entry 0 stands behind entry 0", "entry 0 was altered"]),
        ([COPY.format(sequence=-5)], ["entry -5 stands behind entry 0", "entry -5 was altered"]),
        (["DELETE FROM audit WHERE sequence > 4"], ["the last is entry 4"]),
        (["DELETE FROM audit"], ["the last is entry 0"]),
        (["DELETE FROM audit_head"], ["what the database notes of the newest entry was removed or altered"]),
        (["UPDATE audit_head SET sequence = 5"], ["the last is entry 6"]),
        (["UPDATE audit_head SET digest = (SELECT previous FROM audit WHERE sequence = 3)"], ["the last is"]),
    ],
)
@pytest.mark.guarantee("W3")
async def test_what_was_done_to_the_database_is_found(
    database: Database, statements: Sequence[str], told: list[str]
) -> None:
    async with database.opened() as store:
        await write(store)
        assert (await Audit(store).verify()).problems == []
        await tamper(store, statements)
        found = await Audit(store).verify()
    assert found.is_complete
    assert len(found.problems) == found.problem_count == len(told), found.problems
    assert [line for line, start in zip(starts(found), told, strict=True) if not line.startswith(start)] == []


CUT = [
    "DELETE FROM audit WHERE sequence > 4",
    "UPDATE audit_head SET sequence = 4, digest = (SELECT digest FROM audit WHERE sequence = 4)",
]


@pytest.mark.guarantee("W3")
async def test_an_end_that_was_cut_with_its_note_is_found_by_a_kept_head_only(database: Database) -> None:
    async with database.opened() as store:
        head = await write(store)
        await tamper(store, CUT)
        audit = Audit(store)
        assert (await audit.verify()).problems == []
        (problem,) = (await audit.verify(head=head)).problems
        assert problem.startswith("the last is entry 4, and the head that was given has entry 6")
        audit.look_at(lambda: (head, "audit.head"))
        assert "audit.head has entry 6" in (await audit.verify()).problems[0]
        # Written on, it is longer than before, and another.
        await write(store)
        (problem,) = (await audit.verify(head=None)).problems
        assert problem == "entry 6 is not the one that audit.head has: the chain was rewritten"


async def test_a_kept_head_that_cannot_be_read_is_a_finding(sqlite: Database) -> None:
    def unreadable() -> None:
        raise ValueError("no head")

    async with sqlite.opened() as store:
        audit = Audit(store)
        audit.look_at(unreadable)
        found = await audit.verify()
    assert found.problems == ["the head that the gateway keeps cannot be read: no head"]
    assert found.problem_count == 1


@pytest.mark.parametrize("number", [0, 1, READ_AT_ONCE - 1, READ_AT_ONCE, READ_AT_ONCE + 1])
async def test_a_record_of_any_length_is_verified_to_its_end(sqlite: Database, number: int) -> None:
    async with sqlite.opened() as store:
        head = await write(store, number)
        found = await Audit(store).verify()
    assert found == Verification([], 0, number, head, True)


async def test_a_long_record_is_verified_in_parts_that_join(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        head = await write(store, MOST_CHECKED + 1)
        audit = Audit(store)
        first = await audit.verify(head=head)
        assert (first.checked, first.is_complete, first.problems) == (MOST_CHECKED, False, [])
        second = await audit.verify(first.head, head)
        assert second == Verification([], 0, 1, head, True)
        await tamper(store, [f"DELETE FROM audit WHERE sequence = {MOST_CHECKED + 1}"])
        assert len((await audit.verify(first.head, head)).problems) == 2


async def test_another_key_file_makes_a_record_that_does_not_pass(sqlite: Database) -> None:
    """Nobody without the key file can tell, and nobody without it can write either."""
    async with sqlite.opened() as store:
        await write(store)
        audit = Audit(store)
        audit._key = b"x" * 32
        assert (await audit.verify()).problem_count == WRITTEN


async def test_pages_join_in_either_order(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await write(store)
        audit = Audit(store)
        for newest_first, expected in ((False, [1, 2, 3, 4, 5, 6]), (True, [6, 5, 4, 3, 2, 1])):
            query = AuditQuery(4, newest_first=newest_first)
            pages = await all_pages(audit, query)
            assert [entry.sequence for page in pages for entry in page.entries] == expected
        full = await audit.page(AuditQuery(6))
        assert (full.next, (await audit.page(AuditQuery(6, after=full.next))).entries) == (6, [])


async def test_a_page_is_bounded_by_its_text_and_has_one_entry_at_least(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await write(store, 3, "x" * (MOST_PAGE_CHARACTERS // 2))
        await write(store, 1, "x" * (MOST_PAGE_CHARACTERS + 1))
        audit = Audit(store)
        assert [len(page.entries) for page in await all_pages(audit, AuditQuery(100))] == [2, 1, 1]


@pytest.mark.parametrize(
    "query", [AuditQuery(-1), AuditQuery(LONGEST_PAGE + 1), AuditQuery(1, after=-1), AuditQuery(1, actor="a\0")]
)
async def test_a_query_that_cannot_be_right_is_refused(sqlite: Database, query: AuditQuery) -> None:
    async with sqlite.opened() as store:
        with pytest.raises(InvalidRequest):
            await Audit(store).page(query)


async def test_limits_of_a_page_are_what_they_say(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await write(store, LONGEST_PAGE + 1)
        audit = Audit(store)
        assert len((await audit.page(AuditQuery(0))).entries) == DEFAULT_PAGE
        assert len((await audit.page(AuditQuery(LONGEST_PAGE))).entries) == LONGEST_PAGE
        assert (await audit.verify(NO_HEAD)).is_complete
