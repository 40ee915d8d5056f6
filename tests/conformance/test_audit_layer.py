"""Every change of a record has its entry, in its own transaction, and tells who made it."""

import inspect
import json
from dataclasses import replace
from typing import Any

import pytest

from pointsman.core.account import Account
from pointsman.core.audit import AuditEntry, AuditQuery
from pointsman.core.chain import ChainHead
from pointsman.core.control_errors import AlreadyExists
from pointsman.core.policy import PolicyState
from pointsman.core.price import Price, PriceChange
from pointsman.core.secret import Secret
from pointsman.gateway.actor import acting_as
from pointsman.gateway.audit_layer import AuditLayer
from pointsman.gateway.audited_writes import AUDITED
from pointsman.store.interface import Reader, Store, Writer
from tests.conformance.records import ACCOUNT, budget, direct_model, key, policy, provider, route, runner, token
from tests.support.databases import Database


def layer_on(store: Store, heads: list[ChainHead] | None = None) -> AuditLayer:
    return AuditLayer(store, lambda: 12.5, heads.append if heads is not None else lambda head: None)


async def entries(store: Store) -> list[AuditEntry]:
    async with store.read() as reader:
        return list(await reader.audit(AuditQuery(1000)))


def brief(entry: AuditEntry) -> tuple[str, str, str]:
    return entry.action, entry.subject, entry.account


def methods(protocol: type) -> set[str]:
    return {name for name, member in inspect.getmembers(protocol, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.guarantee("W1")
def test_every_method_that_changes_a_record_is_audited() -> None:
    assert methods(Writer) - methods(Reader) - {"append_audit"} == set(AUDITED)


EVERY_WRITE = [
    ("account.create", "other", "other"),
    ("provider.create", "openai-1", ACCOUNT),
    ("provider.update", "openai-1", ACCOUNT),
    ("route.create", "inference.local", ACCOUNT),
    ("route.update", "inference.local", ACCOUNT),
    ("route.delete", "inference.local", ACCOUNT),
    ("provider.delete", "openai-1", ACCOUNT),
    ("sandbox_token.create", "box", ACCOUNT),
    ("sandbox_token.revoke", "box", ACCOUNT),
    ("key.create", "laptop", ACCOUNT),
    ("key.revoke", "laptop", ACCOUNT),
    ("runner.create", "laptop", ACCOUNT),
    ("runner.rotate", "laptop", ACCOUNT),
    ("runner.delete", "laptop", ACCOUNT),
    ("ai_model.create", "far", ACCOUNT),
    ("ai_model.update", "far", ACCOUNT),
    ("ai_model.delete", "far", ACCOUNT),
    ("budget.create", "team-month", ACCOUNT),
    ("budget.update", "team-month", ACCOUNT),
    ("budget.delete", "team-month", ACCOUNT),
    ("account.halt", "other", "other"),
    ("account.resume", "other", "other"),
    ("price.create", "openai-1/gpt-x", ACCOUNT),
    ("price.update", "openai-1/gpt-x", ACCOUNT),
    ("price.delete", "openai-1/gpt-x", ACCOUNT),
    ("policy.create", "1", ACCOUNT),
    ("policy.update", "1", ACCOUNT),
    ("policy.delete", "1", ACCOUNT),
]


@pytest.mark.guarantee("W1")
async def test_every_audited_write_leaves_an_entry(sqlite: Database) -> None:
    """Each method once, with what the database really does."""
    done: set[str] = set()
    async with sqlite.opened() as store:
        layer = layer_on(store)

        async def do(name: str, *arguments: Any) -> None:
            before = len(await entries(store))
            async with layer.write() as writer:
                await getattr(writer, name)(*arguments)
            assert len(await entries(store)) == before + 1, name
            done.add(name)

        await do("insert_account", Account("other", 1.0))
        await do("insert_provider", provider())
        await do("replace_provider", replace(provider(), credentials={"A": Secret("new")}))
        await do("put_route", route())
        await do("put_route", replace(route(), model="gpt-y"))
        await do("delete_route", ACCOUNT, route().name)
        await do("delete_provider", ACCOUNT, provider().name)
        await do("insert_sandbox_token", token())
        await do("revoke_sandbox_token", ACCOUNT, token().name, 9.0)
        await do("insert_key", key())
        await do("revoke_key", ACCOUNT, key().name, 9.0)
        await do("insert_runner", runner())
        await do("replace_runner_token", ACCOUNT, runner().id, b"d" * 32)
        await do("delete_runner", ACCOUNT, runner().id)
        await do("insert_ai_model", direct_model())
        await do("replace_ai_model", replace(direct_model(), model_identifier="bigger"))
        await do("delete_ai_model", ACCOUNT, direct_model().id)
        await do("insert_budget", budget())
        await do("replace_budget", replace(budget(), amount=6, is_hard=not budget().is_hard))
        await do("delete_budget", ACCOUNT, budget().name)
        await do("set_account_halted", "other", 8.0)
        await do("set_account_halted", "other", None)
        price = Price("openai-1", "gpt-x", 2, 3)
        await do("insert_price_change", PriceChange(ACCOUNT, 1, 2.0, price))
        await do("insert_price_change", PriceChange(ACCOUNT, 2, 3.0, replace(price, output=4)))
        await do("insert_price_change", PriceChange(ACCOUNT, 3, 4.0, replace(price, output=4), is_removed=True))
        await do("insert_policy", policy())
        await do("mark_policy", replace(policy(), state=PolicyState.ENFORCED, enforced_at=5.0))
        await do("delete_policy", ACCOUNT, 1)
        found = await entries(store)
    assert done == set(AUDITED)
    assert [brief(entry) for entry in found] == EVERY_WRITE
    check_what_is_told(found)


def check_what_is_told(found: list[AuditEntry]) -> None:
    assert {(entry.at, entry.actor) for entry in found} == {(12.5, "gateway")}
    told = {brief(entry)[0]: (entry.before, entry.after) for entry in found}
    assert told["route.update"] == ('{"model":"gpt-x","version":1}', '{"model":"gpt-y","version":2}')
    assert told["key.revoke"] == ('{"revoked_at":null}', '{"revoked_at":"1970-01-01T00:00:09Z"}')
    assert told["runner.rotate"] == ('{"token":"set"}', '{"token":"changed"}')
    assert told["ai_model.update"] == ('{"model_identifier":"big"}', '{"model_identifier":"bigger"}')
    assert told["budget.update"] == (
        '{"amount":"4611686018.427387904","is_hard":false}',
        '{"amount":"0.000000006","is_hard":true}',
    )
    assert told["account.resume"] == ('{"halted_at":"1970-01-01T00:00:08Z"}', '{"halted_at":null}')
    assert told["price.update"] == (
        '{"version":1,"price":{"output":"0.000003"}}',
        '{"version":2,"price":{"output":"0.000004"}}',
    )
    assert told["policy.update"] == (
        '{"state":"dry_run","enforced_at":null}',
        '{"state":"enforced","enforced_at":"1970-01-01T00:00:05Z"}',
    )
    assert told["route.delete"][1] == ""
    assert json.loads(told["provider.update"][1])["credentials"]["OPENAI_API_KEY"] == "removed"


async def test_what_changed_nothing_leaves_no_entry(database: Database) -> None:
    async with database.opened() as store:
        layer = layer_on(store)
        async with layer.write() as writer:
            assert not await writer.delete_route(ACCOUNT, "none")
            assert not await writer.revoke_key(ACCOUNT, "none", 1.0)
            assert not await writer.delete_provider(ACCOUNT, "none")
            await writer.insert_key(key())
            with pytest.raises(AlreadyExists):
                await writer.insert_key(key())
        assert [brief(entry)[0] for entry in await entries(store)] == ["key.create"]


async def test_changes_of_one_transaction_stand_together_or_not_at_all(database: Database) -> None:
    async def failing(layer: AuditLayer) -> None:
        async with layer.write() as writer:
            await writer.insert_key(key())
            await writer.put_route(route())
            raise ZeroDivisionError

    async with database.opened() as store:
        heads: list[ChainHead] = []
        layer = layer_on(store, heads)
        with pytest.raises(ZeroDivisionError):
            await failing(layer)
        assert (await entries(store), heads) == ([], [])
        async with layer.write() as writer:
            await writer.insert_key(key())
            await writer.put_route(route())
        found = await entries(store)
        assert [brief(entry)[0] for entry in found] == ["key.create", "route.create"]
        assert heads == [ChainHead(2, found[1].digest)]


async def test_an_entry_names_whoever_acts(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        layer = layer_on(store)
        with acting_as("admin"):
            async with layer.write() as writer:
                await writer.insert_key(key("a"))
                with acting_as("key:laptop"):
                    await writer.insert_key(key("b"))
                await writer.insert_key(key("c"))
        async with layer.write() as writer:
            await writer.insert_key(key("d"))
        assert [entry.actor for entry in await entries(store)] == ["admin", "key:laptop", "admin", "gateway"]


@pytest.mark.guarantee("W1")
async def test_a_write_that_nobody_has_described_cannot_be_called(sqlite: Database) -> None:
    async with sqlite.opened() as store, layer_on(store).write() as writer:
        for name in ("append_audit", "insert_usage", "_execute", "take_turn"):
            with pytest.raises(AttributeError, match="audited_writes"):
                getattr(writer, name)


async def test_a_provider_whose_credential_was_altered_can_be_deleted(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        layer = layer_on(store)
        async with layer.write() as writer:
            await writer.insert_provider(provider())
        async with store.write() as bare:
            await bare._connection.exec_driver_sql("UPDATE provider_credentials SET value = x'01'")
        async with layer.write() as writer:
            assert await writer.delete_provider(ACCOUNT, provider().name)
        assert (await entries(store))[-1].before == '{"is_unreadable":true}'


async def test_each_of_two_changes_of_one_record_tells_what_was_there_before_it(database: Database) -> None:
    async with database.opened() as store:
        async with layer_on(store).write() as writer:
            assert await writer.route(ACCOUNT, route().name) is None
            await writer.put_route(route())
            await writer.put_route(replace(route(), model="gpt-y"))
            assert await writer.delete_route(ACCOUNT, route().name)
        found = await entries(store)
    assert [entry.action for entry in found] == ["route.create", "route.update", "route.delete"]
    assert [json.loads(entry.before or "{}").get("model") for entry in found] == [None, "gpt-x", "gpt-y"]
