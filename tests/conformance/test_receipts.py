"""Receipts in either database: chained in order, by several gateways at once, verified, and tampered with."""

import asyncio
import contextlib
import sqlite3
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from pointsman.core.chain import NO_HEAD
from pointsman.core.chain_check import Verification
from pointsman.core.control_errors import InvalidRequest, NotFound, StoreUnavailable
from pointsman.core.receipt import Receipt, ReceiptScope
from pointsman.gateway.hash_chain import LONGEST_PAGE, READ_AT_ONCE
from pointsman.gateway.receipts import Receipts
from pointsman.gateway.stages.receipts import WRITTEN_AT_ONCE, ReceiptStages, keeping_receipts
from pointsman.store.sql import SqlStore
from tests.conformance.records import usage_row
from tests.support.databases import Database
from tests.support.waiting import until

_SEVERAL_BATCHES = 2 * WRITTEN_AT_ONCE + 7


def draft(number: int, account: str = "default") -> Receipt:
    received, sent, answered = (sha256(bytes([number % 256, each])).digest() for each in range(3))
    hashes = (received, sent, answered, b"")
    return Receipt(0, f"r-{number}", number / 7, account, "fast", "groq", "réal", 3, 1, 200, *hashes)


async def kept(store: SqlStore, account: str = "default") -> list[Receipt]:
    async with store.read() as reader:
        return list(await reader.receipts(account, 0, 100_000, newest_first=False))


async def test_receipts_are_chained_in_order_each_account_by_itself(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()
        await store.append_receipts([draft(1), draft(2, "team"), draft(3)], again=False)
        await store.append_receipts([draft(4, "team"), draft(5)], again=False)
        assert await store.generation() == before
        mine, theirs = await kept(store), await kept(store, "team")
        assert [(each.sequence, each.request_id) for each in mine] == [(1, "r-1"), (2, "r-3"), (3, "r-5")]
        assert [(each.sequence, each.request_id) for each in theirs] == [(1, "r-2"), (2, "r-4")]
        assert replace(mine[0], sequence=0, previous=bytes(32), digest=b"") == draft(1)
        receipts = Receipts(store)
        for account, number in (("default", 3), ("team", 2), ("nobody", 0)):
            found = await receipts.verify(account)
            assert (found.problems, found.checked, found.is_complete) == ([], number, True)
            assert found.head.sequence == number
        assert (await receipts.verify("default", mine[0].head, mine[2].head)).checked == 2


async def test_rows_of_usage_that_are_removed_leave_their_receipts_and_the_generation(database: Database) -> None:
    async with database.opened() as store:
        await store.append_receipts([draft(1), draft(2)], again=False)
        await store.append_usage([usage_row(1), usage_row(2)])
        before, receipts = await store.generation(), await kept(store)
        assert await store.prune_usage(2000.0) == 2
        assert (await store.generation(), await kept(store)) == (before, receipts)
        found = await Receipts(store).verify("default", head=receipts[-1].head)
        assert (found.problems, found.checked, found.head) == ([], 2, receipts[-1].head)


async def test_what_was_written_is_not_written_again(database: Database) -> None:
    async with database.opened() as store:
        await store.append_receipts([draft(1), draft(2)], again=False)
        await store.append_receipts([draft(1), draft(2), draft(3)], again=True)
        await store.append_receipts([draft(2)], again=True)
        assert [each.request_id for each in await kept(store)] == ["r-1", "r-2", "r-3"]
        assert not (await Receipts(store).verify("default")).problem_count


@pytest.mark.guarantee("V3")
async def test_gateways_that_share_a_database_make_one_chain(database: Database) -> None:
    async with database.opened() as store, database.opened() as other:

        async def write(of: SqlStore, first: int) -> None:
            for number in range(first, first + 20):
                await of.append_receipts([draft(number), draft(number, "team")], again=False)

        await asyncio.gather(write(store, 0), write(other, 100))
        found = await Receipts(store).verify("default")
        assert (found.problems, found.checked) == ([], 40)
        assert (await Receipts(other).verify("team")).checked == 40


async def test_pages_and_single_receipts(database: Database) -> None:
    async with database.opened() as store:
        await store.append_receipts([draft(number) for number in range(1, 6)], again=False)
        receipts = Receipts(store)
        numbers, after = [], 0
        while True:
            page = await receipts.page("default", after, 2, newest_first=True)
            numbers.append([each.sequence for each in page.receipts])
            after = page.next
            if not after:
                break
        assert numbers == [[5, 4], [3, 2], [1]]
        assert [each.sequence for each in (await receipts.page("default", 3, 0, newest_first=False)).receipts] == [4, 5]
        assert (await receipts.get("default", "r-3")).sequence == 3
        with pytest.raises(NotFound, match="there is no receipt of the request 'r-3'"):
            await receipts.get("team", "r-3")
        await receipts.page("default", 0, LONGEST_PAGE, newest_first=False)
        for after, limit in ((0, LONGEST_PAGE + 1), (0, -1), (-1, 1), (2**63, 1)):
            with pytest.raises(InvalidRequest):
                await receipts.page("default", after, limit, newest_first=False)


async def test_more_receipts_than_are_read_at_once_are_verified(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        for length in (READ_AT_ONCE - 1, READ_AT_ONCE, READ_AT_ONCE + 1):
            have = (await Receipts(store).verify("default")).checked
            await store.append_receipts([draft(number) for number in range(have, length)], again=False)
            assert (await Receipts(store).verify("default")).checked == length


TAMPERING = {
    "altered": ("UPDATE receipts SET status = 500 WHERE sequence = 2", "receipt 2 was altered"),
    "of another type": ("UPDATE receipts SET received = 'x' WHERE sequence = 2", "receipt 2 was altered"),
    "with no digest": ("UPDATE receipts SET digest = 7 WHERE sequence = 2", "receipt 2 was altered"),
    "without its number": ("UPDATE receipts SET sequence = 'x' WHERE sequence = 2", "receipt 2 is missing"),
    "removed": ("DELETE FROM receipts WHERE sequence = 2", "receipt 2 is missing"),
    "the end removed": ("DELETE FROM receipts WHERE sequence = 3", "the last is receipt 2, and the database"),
    "swapped": (
        "UPDATE receipts SET request_id = CASE sequence WHEN 1 THEN 'r-2' ELSE 'r-1' END WHERE sequence < 3",
        "receipt 1 was altered",
    ),
    "moved to another account": ("UPDATE receipts SET account = 'team' WHERE sequence = 2", "receipt 2 is missing"),
    "put before the first": (
        "INSERT INTO receipts SELECT account, 0, 'x', at, route, provider, model, policy_version, attempts, status, "
        "received, sent, answered, delivered, previous, digest FROM receipts WHERE sequence = 1",
        "receipt 0 stands behind receipt 0",
    ),
}


@pytest.mark.guarantee("V2")
@pytest.mark.parametrize("done", TAMPERING)
async def test_a_tampered_copy_is_found(sqlite: Database, done: str) -> None:
    statement, told = TAMPERING[done]
    async with sqlite.opened() as store:
        await store.append_receipts([draft(number) for number in (1, 2, 3)], again=False)
    with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
        connection.execute(statement)
        connection.commit()
    async with sqlite.opened() as store:
        found = await Receipts(store).verify("default")
    assert told in found.problems[0]


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_receipts_without_a_number_do_not_keep_a_verification_going(sqlite: Database, more: int) -> None:
    number = READ_AT_ONCE + more
    async with sqlite.opened() as store:
        await store.append_receipts([draft(each) for each in range(number)], again=False)
    with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
        connection.execute("UPDATE receipts SET sequence = 'x' || sequence")
        connection.commit()
    async with sqlite.opened() as store:
        found = await Receipts(store).verify("default")
    assert found.is_complete
    assert number <= found.checked <= 2 * READ_AT_ONCE + more
    assert found.problem_count > number


@pytest.mark.guarantee("V2")
async def test_an_end_that_was_cut_with_its_head_is_found_by_a_head_that_was_kept(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        await store.append_receipts([draft(number) for number in (1, 2, 3)], again=False)
        head = (await Receipts(store).verify("default")).head
        second = (await kept(store))[1]
    with contextlib.closing(sqlite3.connect(sqlite.file)) as connection:
        connection.execute("DELETE FROM receipts WHERE sequence = 3")
        connection.execute("UPDATE receipt_heads SET sequence = 2, digest = ?", (second.digest,))
        connection.commit()

    async def verified(store: SqlStore) -> tuple[Verification, Verification]:
        receipts = Receipts(store)
        return await receipts.verify("default"), await receipts.verify("default", NO_HEAD, head)

    async with sqlite.opened() as store:
        alone, with_head = await verified(store)
    assert not alone.problem_count
    assert "the last is receipt 2, and the head that was given has receipt 3" in with_head.problems[0]


class AwayAtFirst:
    """A store that fails once: after the receipts were written, or before."""

    def __init__(self, store: SqlStore, *, writes: bool) -> None:
        self._store = store
        self._writes = writes
        self.asked: list[bool] = []

    async def append_receipts(self, drafts: list[Receipt], *, again: bool) -> None:
        self.asked.append(again)
        if len(self.asked) > 1 or self._writes:
            await self._store.append_receipts(drafts, again=again)
        if len(self.asked) == 1:
            raise StoreUnavailable("the database is away")


@pytest.mark.parametrize("writes", [True, False])
async def test_receipts_wait_for_their_database_and_none_is_there_twice(sqlite: Database, writes: bool) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        away = AwayAtFirst(store, writes=writes)
        stages = ReceiptStages(ReceiptScope(is_all=True), away, said.append)  # type: ignore[arg-type]  # all it asks
        async with keeping_receipts(stages):
            stages.add(draft(1))
            await until(lambda: bool(said))
            stages.add(draft(2))
            await until(lambda: len(said) == 2)
        assert [each.request_id for each in await kept(store)] == ["r-1", "r-2"]
    assert away.asked == [False, True]
    assert said == [
        "receipts: they wait for the database: the database is away",
        "receipts: they are written again; 0 were lost since the start",
    ]


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_more_than_may_wait_are_lost_and_counted(sqlite: Database, more: int) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        stages = ReceiptStages(ReceiptScope(is_all=True), store, said.append, most_waiting=3)
        for number in range(3 + more):
            stages.add(draft(number))
        async with keeping_receipts(stages):
            pass
        assert len(await kept(store)) == min(3, 3 + more)
    lost = max(0, more)
    assert (stages.lost, len(said)) == (lost, 2 * lost)  # when they begin to be, and how many they were


async def test_all_that_may_wait_is_written_in_order_and_verifies(sqlite: Database) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        away = AwayAtFirst(store, writes=False)
        stages = ReceiptStages(ReceiptScope(is_all=True), away, said.append, _SEVERAL_BATCHES)  # type: ignore[arg-type]
        async with keeping_receipts(stages), asyncio.timeout(60):
            stages.add(draft(0))
            await until(lambda: bool(said))
            for number in range(1, _SEVERAL_BATCHES + 1):
                stages.add(draft(number))
            while len(made := await kept(store)) < _SEVERAL_BATCHES:
                await asyncio.sleep(0.3)
        assert [each.request_id for each in made] == [f"r-{number}" for number in range(_SEVERAL_BATCHES)]
        found = await Receipts(store).verify("default")
    assert (found.problem_count, found.checked, stages.lost) == (0, _SEVERAL_BATCHES, 1)


async def test_what_nobody_writes_any_more_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    stages = ReceiptStages(ReceiptScope(is_all=True), None, said.append)  # type: ignore[arg-type]  # not asked
    stages.add(draft(1))
    stages.give_up()
    assert (stages.lost, said) == (1, ["receipts: lost: 1: the database did not take them before the end"])
