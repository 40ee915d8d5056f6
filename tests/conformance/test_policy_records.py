"""Policies: what is put into a store comes out of it, and belongs to one account."""

from dataclasses import replace

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import NotFound
from pointsman.core.policy import PolicyState
from tests.conformance.records import ACCOUNT, policy
from tests.support.databases import Database


async def test_a_policy_comes_back_as_it_was_and_the_newest_first(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_policy(policy())
            await writer.insert_policy(policy(2))
        async with store.read() as reader:
            assert list(await reader.policies(ACCOUNT)) == [policy(2), policy()]
            assert list(await reader.policies("other")) == []


async def test_a_policys_state_changes_and_nothing_else_of_it(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_policy(policy())
        await writer.insert_policy(policy(2))
        enforced = replace(policy(), state=PolicyState.ENFORCED, enforced_at=7.5)
        await writer.mark_policy(replace(enforced, rules=()))
        assert list(await writer.policies(ACCOUNT)) == [policy(2), enforced]


async def test_what_is_in_force_is_found_for_all_accounts_the_enforced_first(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("team", 1.0))
        made = [policy(1, "team"), policy(1, state=PolicyState.DRY_RUN), policy(2, state=PolicyState.ENFORCED)]
        for each in (*made, policy(3, state=PolicyState.KEPT)):
            await writer.insert_policy(each)
        assert list(await writer.policies_in_force()) == [made[2], made[1], made[0]]


async def test_a_policy_is_deleted_once_and_needs_its_account(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_policy(policy())
        assert await writer.delete_policy(ACCOUNT, 1)
        assert not await writer.delete_policy(ACCOUNT, 1)
        with pytest.raises(NotFound, match="account nobody"):
            await writer.insert_policy(policy(account="nobody"))
