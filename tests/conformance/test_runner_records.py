"""Runners and AI models: what is put into a store comes out of it, and belongs to one account."""

from dataclasses import replace

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import AlreadyExists, ControlError, NotFound
from tests.conformance.old_schema import leave_as
from tests.conformance.records import ACCOUNT, direct_model, key, provider, runner, runner_model
from tests.support.databases import Database


async def test_a_runner_is_found_by_id_and_by_the_digest_of_its_token(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_runner(runner())
        await writer.insert_runner(runner("Desk"))
        assert await writer.runner(ACCOUNT, runner().id) == runner()
        assert await writer.runner_by_digest(runner().token_digest) == runner()
        assert await writer.runner_by_digest(runner().token_digest[:-1]) is None
        assert await writer.runner(ACCOUNT, runner().id[:-1]) is None
        assert list(await writer.runners(ACCOUNT)) == [runner("Desk"), runner()]


async def test_a_runners_name_id_and_token_are_taken_once(database: Database) -> None:
    mine, other = runner(), runner("other")
    async with database.opened() as store, store.write() as writer:
        await writer.insert_runner(mine)
        for same in ({"name": mine.name}, {"id": mine.id}, {"token_digest": mine.token_digest}):
            with pytest.raises(AlreadyExists):
                await writer.insert_runner(replace(other, **same))
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_runner(runner(account="nobody"))
        await writer.insert_runner(other)


async def test_of_two_tokens_of_a_runner_the_newer_one_is_known(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("team", 1.0))
        await writer.insert_runner(runner())
        assert not await writer.replace_runner_token("team", runner().id, b"n" * 32)
        assert await writer.replace_runner_token(ACCOUNT, runner().id, b"n" * 32)
        assert await writer.runner_by_digest(runner().token_digest) is None
        assert await writer.runner_by_digest(b"n" * 32) == replace(runner(), token_digest=b"n" * 32)


async def test_when_a_runner_was_seen_is_kept_and_leaves_the_generation_alone(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_runner(runner())
        before = await store.generation()
        await store.note_runner_seen(runner().id, 70.25)
        await store.note_runner_seen(runner().id, 60.0)  # told late
        await store.note_runner_seen("0" * 32, 80.0)
        async with store.read() as reader:
            assert await reader.generation() == before
            assert await reader.runner(ACCOUNT, runner().id) == replace(runner(), last_seen_at=70.25)


async def test_models_outlive_their_runner(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_runner(runner())
        await writer.insert_ai_model(runner_model())
        assert await writer.delete_runner(ACCOUNT, runner().id)
        assert not await writer.delete_runner(ACCOUNT, runner().id)
        assert await writer.runner(ACCOUNT, runner().id) is None
        assert await writer.ai_model(ACCOUNT, runner_model().id) == runner_model()


async def test_models_are_found_by_id_by_alias_and_by_runner(database: Database) -> None:
    models = [runner_model("Alpha"), runner_model("beta", of="desk"), direct_model(), runner_model("zeta")]
    async with database.opened() as store, store.write() as writer:
        for each in reversed(models):
            await writer.insert_ai_model(each)
        assert list(await writer.ai_models(ACCOUNT)) == [models[0], models[1], models[2], models[3]]
        assert list(await writer.ai_models_of(ACCOUNT, runner().id)) == [models[0], models[3]]
        assert await writer.ai_model_by_alias(ACCOUNT, "far") == direct_model()
        assert await writer.ai_model_by_alias(ACCOUNT, "FAR") is None
        assert await writer.ai_model(ACCOUNT, direct_model().id) == direct_model()
        assert await writer.delete_ai_model(ACCOUNT, direct_model().id)
        assert not await writer.delete_ai_model(ACCOUNT, direct_model().id)
        assert await writer.ai_model(ACCOUNT, direct_model().id) is None


async def test_an_alias_and_a_binding_are_taken_once(database: Database) -> None:
    mine = runner_model()
    async with database.opened() as store, store.write() as writer:
        await writer.insert_ai_model(mine)
        with pytest.raises(AlreadyExists, match="choose another alias"):
            await writer.insert_ai_model(replace(direct_model(), alias=mine.alias))
        with pytest.raises(AlreadyExists, match="under another alias"):
            await writer.insert_ai_model(replace(mine, id="0" * 32, alias="again"))
        with pytest.raises(AlreadyExists, match="try again"):
            await writer.insert_ai_model(replace(direct_model(), id=mine.id))
        await writer.insert_ai_model(runner_model("elsewhere", of="desk", identifier=mine.model_identifier))
        # Two direct models at one address are two: nothing tells whose they are.
        await writer.insert_ai_model(direct_model())
        await writer.insert_ai_model(direct_model("further"))


async def test_the_database_itself_keeps_bindings_apart(database: Database) -> None:
    """Whatever the code looks up before: of two gateways one would come second."""
    statement = (
        "INSERT INTO ai_models (id, account, name, alias, endpoint_type, runner_id, api_endpoint, model_identifier,"
        " created_at) VALUES ('{}', 'default', 'n', '{}', '{}', {}, 'http://localhost:1/v1', 'm', 1)"
    )
    async with database.opened() as store:
        async with store.write() as writer:
            await writer._connection.exec_driver_sql(statement.format(1, "a", "runner", "'r'"))
        for row in ((2, "b", "runner", "'r'"), (2, "a", "direct", "NULL"), (2, "c", "runner", "NULL")):
            with pytest.raises(Exception, match=r"(?i)constraint"):
                async with store.write() as writer:
                    await writer._connection.exec_driver_sql(statement.format(*row))


async def test_a_change_of_a_model_keeps_what_it_is(database: Database) -> None:
    mine = runner_model()
    changed = replace(mine, name="n", alias="a", api_endpoint="http://localhost:1/v1", model_identifier="m")
    async with database.opened() as store, store.write() as writer:
        await writer.insert_ai_model(mine)
        await writer.insert_ai_model(direct_model())
        await writer.replace_ai_model(mine)
        await writer.replace_ai_model(replace(changed, created_at=99.0))
        assert await writer.ai_model(ACCOUNT, mine.id) == changed
        with pytest.raises(AlreadyExists):
            await writer.replace_ai_model(replace(changed, alias="far"))
        with pytest.raises(NotFound):
            await writer.replace_ai_model(replace(runner_model("gone"), runner_id="9" * 32))


async def test_runners_and_models_are_their_accounts_own(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_account(Account("team", 1.0))
        await writer.insert_runner(runner())
        await writer.insert_runner(runner(account="team"))
        await writer.insert_ai_model(runner_model())
        await writer.insert_ai_model(runner_model(account="team"))
        assert await writer.runner("team", runner().id) is None
        assert list(await writer.runners("team")) == [runner(account="team")]
        assert not await writer.delete_runner("team", runner().id)
        assert await writer.ai_model("team", runner_model().id) is None
        assert list(await writer.ai_models("team")) == [runner_model(account="team")]
        assert not await writer.ai_models_of("team", runner().id)
        assert not await writer.delete_ai_model("team", runner_model().id)
        with pytest.raises(NotFound):
            await writer.replace_ai_model(replace(runner_model(), account="team", alias="mine-now"))
        with pytest.raises(NotFound, match="account nobody does not exist"):
            await writer.insert_ai_model(direct_model(account="nobody"))
        assert await writer.ai_model(ACCOUNT, runner_model().id) == runner_model()


async def test_after_a_refusal_nothing_of_the_transaction_is_lost(database: Database) -> None:
    async with database.opened() as store:
        async with store.write() as writer:
            await writer.insert_runner(runner())
            with pytest.raises(ControlError):
                await writer.insert_runner(runner())
            await writer.insert_ai_model(runner_model())
        async with store.read() as reader:
            assert len(await reader.runners(ACCOUNT)) == len(await reader.ai_models(ACCOUNT)) == 1


async def test_a_database_of_the_version_before_takes_runners(database: Database) -> None:
    async with database.opened() as store, store.write() as writer:
        await writer.insert_provider(provider())
        await writer.insert_key(key())
        await writer._connection.run_sync(leave_as, "0002")
    async with database.opened() as store, store.write() as writer:
        assert await writer.provider(ACCOUNT, "openai-1") == provider()
        assert await writer.key(ACCOUNT, "laptop") == key()
        await writer.insert_runner(runner())
        await writer.insert_ai_model(runner_model())
