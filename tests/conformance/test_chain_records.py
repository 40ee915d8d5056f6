"""Keys, chains, aliases and usage: what is put into a store comes out of it, also of one that an older version made."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from pointsman.core.account import Account
from pointsman.core.context_options import ContextOptions
from pointsman.core.control_errors import AlreadyExists, NotFound
from pointsman.core.route import ALIAS, Route
from tests.conformance.old_schema import leave_as
from tests.conformance.records import ACCOUNT, chain, key, provider, route, token, usage_row
from tests.support.databases import Database


async def test_a_chain_and_an_alias_come_back_as_they_were_put(database: Database) -> None:
    alias = Route(ACCOUNT, "inference.local", "", "", kind=ALIAS, target="fast")
    through = replace(route("direct"), via_gateway=True, context=ContextOptions(True, True, 60_000))
    async with database.opened() as store:
        async with store.write() as writer:
            for each in (chain(), alias, through):
                assert await writer.put_route(each) == replace(each, version=1)
            changed = replace(chain(), candidates=(), strategy="", fallback="", request_timeout_seconds=0)
            assert await writer.put_route(replace(changed, name="emptied")) == replace(
                changed, name="emptied", version=1
            )
        async with store.read() as reader:
            assert await reader.route(ACCOUNT, "fast") == replace(chain(), version=1)
            assert await reader.route(ACCOUNT, "inference.local") == replace(alias, version=1)
            assert await reader.route(ACCOUNT, "direct") == replace(through, version=1)


async def test_routes_are_found_by_each_of_their_providers(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.put_route(chain())
        await writer.put_route(route("direct"))
        await writer.put_route(replace(chain("other"), candidates=(), fallback="openai-1"))
        users = {
            name: [each.name for each in await writer.routes_to(ACCOUNT, name)]
            for name in ("openai-1", "groq_1", "local", "groq-1", "groqX1", "openai", "%", 'a "quoted" model', "")
        }
    assert users == {
        "openai-1": ["direct", "fast", "other"],
        "groq_1": ["fast"],
        "local": ["fast"],
        **{name: [] for name in ("groq-1", "groqX1", "openai", "%", 'a "quoted" model', "")},
    }


async def test_a_key_is_found_by_name_and_by_digest_and_revoked_once(database: Database) -> None:
    networks = (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))
    mine = replace(key(expires_at=99.5), networks=networks, user="ada")
    async with database.opened() as store, store.write() as writer:
        await writer.insert_key(mine)
        await writer.insert_key(replace(key("another"), permissions=(), routes=()))
        with pytest.raises(AlreadyExists):
            await writer.insert_key(replace(mine, digest=b"x" * 32))
        with pytest.raises(AlreadyExists):
            await writer.insert_key(replace(mine, name="third"))
        assert await writer.key(ACCOUNT, "laptop") == mine
        assert await writer.key_by_digest(mine.digest) == mine
        assert await writer.key_by_digest(mine.digest[:-1]) is None
        assert await writer.sandbox_token_by_digest(mine.digest) is None
        assert [(one.name, one.routes) for one in await writer.keys(ACCOUNT)] == [
            ("another", ()),
            ("laptop", ("fast", "slow")),
        ]
        assert await writer.revoke_key(ACCOUNT, "laptop", 50.25)
        assert not await writer.revoke_key(ACCOUNT, "laptop", 60.0)
        assert not await writer.revoke_key(ACCOUNT, "nobody", 60.0)
        with pytest.raises(AlreadyExists, match="if only as a revoked one"):
            await writer.insert_key(replace(mine, digest=b"x" * 32))
        assert await writer.key_by_digest(mine.digest) == replace(mine, revoked_at=50.25)


async def test_keys_are_their_accounts_own(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("a-team", 1.0))
        await writer.insert_key(key())
        await writer.insert_key(key(account="a-team"))
        assert await writer.revoke_key("a-team", "laptop", 1.0)
        assert [one.revoked_at for one in await writer.keys(ACCOUNT)] == [None]
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_key(key(account="nobody"))


async def test_usage_is_added_read_newest_first_and_pruned_by_age(database: Database) -> None:
    async with database.opened() as store:
        await store.append_usage([usage_row(number) for number in range(5)])
        await store.append_usage([usage_row(9, "gone")])
        await store.append_usage([])
        async with store.read() as reader:
            assert list(await reader.usage(ACCOUNT, 0, 3)) == [usage_row(4), usage_row(3), usage_row(2)]
            assert list(await reader.usage(ACCOUNT, 1004.0, 3)) == [usage_row(4)]
            assert not await reader.usage(ACCOUNT, 1004.5, 3)
            assert list(await reader.usage("gone", 0, 3)) == [usage_row(9, "gone")]
        assert await store.prune_usage(1003.0) == 3
        assert await store.prune_usage(1003.0) == 0
        async with store.read() as reader:
            assert list(await reader.usage(ACCOUNT, 0, 9)) == [usage_row(4), usage_row(3)]


async def test_usage_leaves_the_generation_alone(database: Database) -> None:
    async with database.opened() as store:
        before = await store.generation()
        await store.append_usage([usage_row(1)])
        await store.prune_usage(2000.0)
        async with store.read() as reader:
            assert await reader.generation() == before


async def test_a_database_of_the_version_before_keeps_its_records(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        await writer.put_route(route())
        await writer.insert_sandbox_token(token())
        await writer._connection.run_sync(leave_as, "0001")
    async with database.opened() as store, store.write() as writer:
        assert await writer.provider(ACCOUNT, "openai-1") == provider()
        assert await writer.route(ACCOUNT, "inference.local") == replace(route(), version=1)
        assert await writer.sandbox_token(ACCOUNT, "box") == token()
        await writer.insert_key(key())
        assert (await writer.put_route(route())).version == 2
        assert await writer.put_route(chain()) == replace(chain(), version=1)
