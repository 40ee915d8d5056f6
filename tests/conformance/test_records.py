"""What is put into a store comes out of it."""

from dataclasses import replace

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import AlreadyExists, NotFound
from pointsman.core.provider import LONGEST_NAME, LONGEST_VALUE, MOST_CREDENTIALS
from pointsman.core.secret import Secret
from pointsman.store.interface import Store
from tests.conformance.records import ACCOUNT, provider, route, token
from tests.support.databases import Database


async def test_the_implementation_is_a_store(database: Database) -> None:
    async with database.opened() as opened:
        store: Store = opened
        assert store.kind == ("sqlite" if database.server is None else "postgresql")


async def test_an_account_is_halted_and_resumed_and_no_other(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_account(Account("team", 5.5))
            assert await writer.set_account_halted("team", 7.25)
            assert not await writer.set_account_halted("nobody", 7.25)
        async with store.read() as reader:
            assert await reader.account("team") == Account("team", 5.5, 7.25)
            assert [each.halted_at for each in await reader.accounts()] == [None, 7.25]
        async with store.write() as writer:
            assert await writer.set_account_halted("team", None)
            assert await writer.account("team") == Account("team", 5.5)


async def test_a_provider_comes_back_as_it_was_put(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(provider())
            assert await writer.provider(ACCOUNT, "openai-1") == provider()
        async with store.read() as reader:
            found = await reader.provider(ACCOUNT, "openai-1")
            assert found == provider()
            assert list(found.credentials) == list(provider().credentials)
            assert list(found.config) == list(provider().config)
            assert await reader.provider(ACCOUNT, "OpenAI-1") is None
            assert await reader.provider("other", "openai-1") is None


async def test_the_largest_provider_comes_back_as_it_was_put(database: Database) -> None:
    values = {f"K{n}": Secret("k" * LONGEST_VALUE) for n in range(MOST_CREDENTIALS)}
    largest = replace(provider("n" * LONGEST_NAME), credentials=values, config={"c": "\u00e9" * LONGEST_VALUE})
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(largest)
        async with store.read() as reader:
            assert await reader.provider(ACCOUNT, largest.name) == largest


async def test_a_provider_without_credentials_and_config_is_kept(database: Database) -> None:
    bare = replace(provider(), credentials={}, config={})
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(bare)
        assert await writer.provider(ACCOUNT, bare.name) == bare


async def test_providers_come_by_name_in_pages_each_with_its_own_credentials(database: Database) -> None:
    # Capitals first: by code point, whatever the server's language.
    names = ["Beta", "Zeta", "a.1", "a_1", "alpha", "beta"]
    async with database.opened() as store:
        async with store.write() as writer:
            for name in reversed(names):
                await writer.insert_provider(provider(name, value=f"key of {name}"))
        async with store.read() as reader:
            found = await reader.providers(ACCOUNT, 100, 0)
            assert [one.name for one in found] == names
            assert [one.credentials["OPENAI_API_KEY"].reveal() for one in found] == [f"key of {n}" for n in names]
            assert [one.name for one in await reader.providers(ACCOUNT, 2, 3)] == names[3:5]
            assert not await reader.providers(ACCOUNT, 2, 6)
            assert not await reader.providers(ACCOUNT, 0, 0)
            assert await reader.provider_names(ACCOUNT) == names
            assert await reader.provider_names("other") == []
            assert await reader.count_providers(ACCOUNT) == 6
            assert await reader.count_providers("other") == 0


async def test_a_second_provider_of_a_name_is_refused_and_the_transaction_goes_on(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_provider(provider())
            with pytest.raises(AlreadyExists, match="openai-1 exists"):
                await writer.insert_provider(replace(provider(), id="another"))
            with pytest.raises(AlreadyExists):
                await writer.insert_provider(replace(provider(), name="another"))
            await writer.insert_provider(provider("openai-2"))
        async with store.read() as reader:
            assert [one.name for one in await reader.providers(ACCOUNT, 9, 0)] == ["openai-1", "openai-2"]


async def test_a_replaced_provider_has_its_new_values_only(database: Database) -> None:
    new = replace(provider(), credentials={"NEW": Secret("v")}, config={}, type="nvidia", updated_at=9.0)
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        await writer.replace_provider(new)
        assert await writer.provider(ACCOUNT, "openai-1") == new
        with pytest.raises(NotFound, match="other does not exist"):
            await writer.replace_provider(provider("other"))


async def test_a_deleted_provider_is_gone_and_its_name_is_free(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        assert await writer.delete_provider(ACCOUNT, "openai-1")
        assert not await writer.delete_provider(ACCOUNT, "openai-1")
        assert await writer.provider(ACCOUNT, "openai-1") is None
        await writer.insert_provider(provider())


async def test_a_route_keeps_counting_through_changes_deletion_and_a_new_start(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            assert (await writer.put_route(route())) == replace(route(), version=1)
            changed = await writer.put_route(replace(route(), model="m2", version=77))
            assert changed == replace(route(), model="m2", version=2)
            assert await writer.delete_route(ACCOUNT, "inference.local")
            assert not await writer.delete_route(ACCOUNT, "inference.local")
            assert await writer.route(ACCOUNT, "inference.local") is None
        async with store.write() as writer:
            assert (await writer.put_route(route("sandbox-system"))).version == 1
    async with database.opened() as store:
        async with store.write() as writer:
            assert (await writer.put_route(route())).version == 3
        async with store.read() as reader:
            assert await reader.route(ACCOUNT, "inference.local") == replace(route(), version=3)
            assert [one.name for one in await reader.routes(ACCOUNT)] == ["inference.local", "sandbox-system"]


async def test_routes_are_found_by_their_provider(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        for name, to in (("b", "one"), ("a", "one"), ("c", "two")):
            await writer.put_route(route(name, provider_name=to))
        assert [one.name for one in await writer.routes_to(ACCOUNT, "one")] == ["a", "b"]
        assert not await writer.routes_to(ACCOUNT, "three")
        assert not await writer.routes_to("other", "one")


async def test_a_token_is_found_by_name_and_by_digest_and_revoked_once(database: Database) -> None:
    mine = token(expires_at=99.5)
    async with database.opened() as store, store.write() as writer:
        await writer.insert_sandbox_token(mine)
        await writer.insert_sandbox_token(token("another"))
        with pytest.raises(AlreadyExists):
            await writer.insert_sandbox_token(replace(mine, digest=b"x" * 32))
        with pytest.raises(AlreadyExists):
            await writer.insert_sandbox_token(replace(mine, name="third"))
        assert await writer.sandbox_token(ACCOUNT, "box") == mine
        assert await writer.sandbox_token_by_digest(mine.digest) == mine
        assert await writer.sandbox_token_by_digest(mine.digest[:-1]) is None
        assert [one.name for one in await writer.sandbox_tokens(ACCOUNT)] == ["another", "box"]
        assert await writer.revoke_sandbox_token(ACCOUNT, "box", 50.25)
        assert not await writer.revoke_sandbox_token(ACCOUNT, "box", 60.0)
        with pytest.raises(AlreadyExists, match="if only as a revoked one"):
            await writer.insert_sandbox_token(replace(mine, digest=b"x" * 32))
        assert not await writer.revoke_sandbox_token(ACCOUNT, "nobody", 60.0)
        assert await writer.sandbox_token_by_digest(mine.digest) == replace(mine, revoked_at=50.25)
        assert await writer.sandbox_token("other", "box") is None


async def test_the_default_account_exists_from_the_start(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        assert [one.name for one in await writer.accounts()] == ["default"]
        await writer.insert_account(Account("a-team", 5.5))
        assert await writer.account("a-team") == Account("a-team", 5.5)
        assert await writer.account("b-team") is None
        assert [one.name for one in await writer.accounts()] == ["a-team", "default"]
        for name in ("a-team", "default"):
            with pytest.raises(AlreadyExists):
                await writer.insert_account(Account(name, 6.0))


async def test_accounts_share_names_but_no_records(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_account(Account("a-team", 1.0))
            for account in ("a-team", ACCOUNT):
                await writer.insert_provider(provider(account=account, value=f"key of {account}"))
                assert (await writer.put_route(route(account=account))).version == 1
                await writer.insert_sandbox_token(token(account=account))
            assert await writer.delete_provider("a-team", "openai-1")
            assert await writer.delete_route("a-team", "inference.local")
            assert await writer.revoke_sandbox_token("a-team", "box", 1.0)
        async with store.read() as reader:
            kept = await reader.provider(ACCOUNT, "openai-1")
            assert kept is not None
            assert kept.credentials["OPENAI_API_KEY"].reveal() == "key of default"
            assert len(await reader.routes(ACCOUNT)) == 1
            assert not await reader.routes("a-team")
            assert (await reader.sandbox_tokens(ACCOUNT))[0].revoked_at is None


async def test_an_account_that_does_not_exist_owns_nothing(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_provider(provider(account="nobody"))
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.put_route(route(account="nobody"))
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_sandbox_token(token(account="nobody"))
        assert await writer.count_providers("nobody") == 0
