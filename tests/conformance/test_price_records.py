"""Price tables as records: every change is a version, and belongs to one account."""

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import NotFound
from pointsman.core.price import ANY_MODEL, NO_PRICES, Price, PriceChange, PriceTable
from tests.conformance.records import ACCOUNT
from tests.support.databases import Database

CHEAP = Price("openai-1", "gpt-x", 150_000, 600_000, 75_000, 10**6)
DEAR = Price("openai-1", "gpt-x", 10**12, 10**12)
ANY = Price("openai-1", ANY_MODEL, 1, 0)
CHANGES = [
    PriceChange(ACCOUNT, 1, 1000.5, CHEAP),
    PriceChange(ACCOUNT, 2, 1001.5, ANY),
    PriceChange(ACCOUNT, 3, 1002.5, DEAR),
    PriceChange(ACCOUNT, 4, 1003.5, ANY, is_removed=True),
]


async def test_the_last_change_of_each_price_makes_the_table(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()
        async with store.write() as writer:
            assert await writer.price_table(ACCOUNT) == NO_PRICES
            for change in CHANGES[:2]:
                await writer.insert_price_change(change)
            both = {("openai-1", "gpt-x"): CHEAP, ("openai-1", ANY_MODEL): ANY}
            assert await writer.price_table(ACCOUNT) == PriceTable(2, both)
            for change in CHANGES[2:]:
                await writer.insert_price_change(change)
        assert await store.generation() > before
        async with store.read() as reader:
            table = PriceTable(4, {("openai-1", "gpt-x"): DEAR})
            assert await reader.price_table(ACCOUNT) == table
            assert await reader.price_tables() == {ACCOUNT: table}


async def test_changes_are_told_the_latest_first_by_pages(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            for change in CHANGES:
                await writer.insert_price_change(change)
        async with store.read() as reader:
            assert list(await reader.price_changes(ACCOUNT, 9, 2**62)) == CHANGES[::-1]
            assert list(await reader.price_changes(ACCOUNT, 2, 4)) == [CHANGES[2], CHANGES[1]]
            assert list(await reader.price_changes("team", 9, 2**62)) == []


async def test_accounts_have_tables_of_their_own(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_price_change(PriceChange("nobody", 1, 1.0, ANY))
        await writer.insert_account(Account("team", 1.0))
        await writer.insert_price_change(CHANGES[0])
        await writer.insert_price_change(PriceChange("team", 1, 1.0, ANY))
        assert await writer.price_table("team") == PriceTable(1, {("openai-1", ANY_MODEL): ANY})
        assert await writer.price_table(ACCOUNT) == PriceTable(1, {("openai-1", "gpt-x"): CHEAP})
