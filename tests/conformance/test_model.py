"""Any sequence of operations does to a store what it does to a few dictionaries."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pointsman.core.account import Account
from pointsman.core.control_errors import AlreadyExists, ControlError, NotFound
from pointsman.core.provider import Provider
from pointsman.core.route import Route
from pointsman.core.sandbox_token import SandboxToken
from pointsman.core.secret import Secret
from pointsman.store.sql import open_store
from pointsman.store.writing import SqlWriter
from tests.conformance.records import provider, route, token
from tests.support.databases import sqlite_database

_T = TypeVar("_T")
_names = st.sampled_from(["a", "B", "c.d", "é"])
_accounts = st.sampled_from(["default", "team", "nobody"])
_texts = st.text(st.characters(exclude_categories=["C"]), max_size=20)
_Key = tuple[str, str]


class _Undo(Exception):
    pass


class StoreMachine(RuleBasedStateMachine):
    """A store beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="pointsman-model-"))
        self._database = sqlite_database(self._directory)
        self._runner = asyncio.Runner()
        self._store = self._runner.run(open_store(self._database.settings))
        self._accounts = {"default"}
        self._providers: dict[_Key, Provider] = {}
        self._routes: dict[_Key, Route] = {}
        self._versions: dict[_Key, int] = {}
        self._tokens: dict[_Key, SandboxToken] = {}
        self._generation = 0

    def teardown(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()
        shutil.rmtree(self._directory)

    def _write(self, change: Callable[[SqlWriter], Awaitable[_T]]) -> _T | type[ControlError]:
        """What a change gives, or the kind of its refusal."""

        async def whole() -> _T | type[ControlError]:
            async with self._store.write() as writer:
                try:
                    return await change(writer)
                except (AlreadyExists, NotFound) as error:
                    return type(error)

        self._generation += 1
        return self._runner.run(whole())

    @rule(name=st.sampled_from(["team", "default"]))
    def insert_account(self, name: str) -> None:
        expected = AlreadyExists if name in self._accounts else None
        assert self._write(lambda writer: writer.insert_account(Account(name, 1.0))) is expected
        self._accounts.add(name)

    @rule(account=_accounts, name=_names, value=_texts)
    def insert_provider(self, account: str, name: str, value: str) -> None:
        new = provider(name, account, value)
        expected: type[ControlError] | None = None
        if account not in self._accounts:
            expected = NotFound
        elif (account, name) in self._providers:
            expected = AlreadyExists
        else:
            self._providers[account, name] = new
        assert self._write(lambda writer: writer.insert_provider(new)) is expected

    @rule(account=_accounts, name=_names, values=st.dictionaries(_texts, _texts, max_size=3))
    def replace_provider(self, account: str, name: str, values: dict[str, str]) -> None:
        secret = {key: Secret(value) for key, value in values.items()}
        new = replace(provider(name, account), credentials=secret, config=values)
        expected = None if (account, name) in self._providers else NotFound
        assert self._write(lambda writer: writer.replace_provider(new)) is expected
        if expected is None:
            self._providers[account, name] = new

    @rule(account=_accounts, name=_names)
    def delete_provider(self, account: str, name: str) -> None:
        expected = self._providers.pop((account, name), None) is not None
        assert self._write(lambda writer: writer.delete_provider(account, name)) is expected

    @rule(account=_accounts, name=_names, to=_names)
    def put_route(self, account: str, name: str, to: str) -> None:
        new = route(name, account, to)
        put = self._write(lambda writer: writer.put_route(new))
        if account not in self._accounts:
            assert put is NotFound
            return
        self._versions[account, name] = self._versions.get((account, name), 0) + 1
        self._routes[account, name] = replace(new, version=self._versions[account, name])
        assert put == self._routes[account, name]

    @rule(account=_accounts, name=_names)
    def delete_route(self, account: str, name: str) -> None:
        expected = self._routes.pop((account, name), None) is not None
        assert self._write(lambda writer: writer.delete_route(account, name)) is expected

    @rule(account=_accounts, name=_names)
    def insert_token(self, account: str, name: str) -> None:
        expected: type[ControlError] | None = None
        if account not in self._accounts:
            expected = NotFound
        elif (account, name) in self._tokens:
            expected = AlreadyExists
        else:
            self._tokens[account, name] = token(name, account)
        assert self._write(lambda writer: writer.insert_sandbox_token(token(name, account))) is expected

    @rule(account=_accounts, name=_names, now=st.floats(0, 1e10))
    def revoke_token(self, account: str, name: str, now: float) -> None:
        held = self._tokens.get((account, name))
        expected = held is not None and held.revoked_at is None
        assert self._write(lambda writer: writer.revoke_sandbox_token(account, name, now)) is expected
        if expected and held is not None:
            self._tokens[account, name] = replace(held, revoked_at=now)

    @rule(name=_names)
    def undo(self, name: str) -> None:
        async def whole() -> None:
            async with self._store.write() as writer:
                await writer.put_route(route(name))
                await writer.delete_provider("default", name)
                raise _Undo

        with pytest.raises(_Undo):
            self._runner.run(whole())

    @rule()
    def close_and_open(self) -> None:
        self._runner.run(self._store.close())
        self._store = self._runner.run(open_store(self._database.settings))

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        self._runner.run(self._compare())

    async def _compare(self) -> None:
        assert await self._store.generation() == self._generation
        async with self._store.read() as reader:
            assert [one.name for one in await reader.accounts()] == sorted(self._accounts)
            for account in ("default", "team", "nobody"):
                assert list(await reader.providers(account, 100, 0)) == _of(self._providers, account)
                assert await reader.count_providers(account) == len(_of(self._providers, account))
                assert list(await reader.routes(account)) == _of(self._routes, account)
                assert list(await reader.sandbox_tokens(account)) == _of(self._tokens, account)
            for key, held in self._tokens.items():
                assert await reader.sandbox_token_by_digest(held.digest) == self._tokens[key]
            for to in ("a", "B"):
                expected = [one for one in _of(self._routes, "default") if one.provider_name == to]
                assert list(await reader.routes_to("default", to)) == expected


def _of(records: dict[_Key, _T], account: str) -> list[_T]:
    return [records[key] for key in sorted(records) if key[0] == account]


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=12, stateful_step_count=25, deadline=None, derandomize=True)
