"""Budgets as records: what is put into a store comes out of it, and belongs to one account."""

from dataclasses import replace

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import AlreadyExists, NotFound
from tests.conformance.records import ACCOUNT, budget
from tests.support.databases import Database


async def test_what_is_said_of_a_budget_is_kept(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()
        async with store.write() as writer:
            await writer.insert_budget(budget())
            await writer.insert_budget(budget("Day"))
        assert await store.generation() > before
        async with store.read() as reader:
            assert await reader.budget(ACCOUNT, "team-month") == budget()
            assert await reader.budget(ACCOUNT, "team") is None
            assert list(await reader.budgets(ACCOUNT)) == [budget("Day"), budget()]


async def test_a_name_is_an_accounts_own_and_taken_once(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("team", 1.0))
        await writer.insert_budget(budget())
        with pytest.raises(AlreadyExists, match="budget team-month exists; choose another name, or update it"):
            await writer.insert_budget(replace(budget(), id="0"))
        with pytest.raises(AlreadyExists):
            await writer.insert_budget(replace(budget("other"), id=budget().id))
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_budget(budget(account="nobody"))
        await writer.insert_budget(budget(account="team"))
        assert list(await writer.budgets("team")) == [budget(account="team")]
        assert list(await writer.budgets(ACCOUNT)) == [budget()]


async def test_a_budget_is_replaced_by_one_of_the_same_counters_only(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_budget(budget())
        changed = replace(budget(), amount=1, is_hard=True, time_zone="UTC", version=4)
        assert await writer.replace_budget(changed)
        assert await writer.budget(ACCOUNT, "team-month") == changed
        assert not await writer.replace_budget(replace(changed, id="another"))
        assert not await writer.replace_budget(replace(changed, name="another"))


async def test_a_budget_is_deleted_from_its_own_account(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("team", 1.0))
        await writer.insert_budget(budget())
        assert not await writer.delete_budget("team", "team-month")
        assert await writer.delete_budget(ACCOUNT, "team-month")
        assert not await writer.delete_budget(ACCOUNT, "team-month")
        assert list(await writer.budgets(ACCOUNT)) == []
