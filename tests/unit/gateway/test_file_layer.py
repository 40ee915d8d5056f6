"""What a file defines and what is stored are one listing, and the file's is nobody's to change by command."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.config.gateway_records import FileRecords
from pointsman.core.account import DEFAULT_ACCOUNT, Account
from pointsman.core.control_errors import DefinedInFile
from pointsman.core.provider import Provider
from pointsman.core.route import CHAIN, Route, RouteCandidate
from pointsman.gateway.file_layer import FileLayer
from pointsman.store.interface import Reader, Store, Writer
from tests.conformance.records import provider as stored_provider
from tests.conformance.records import route as stored_route
from tests.conformance.records import runner_model
from tests.support.databases import sqlite_database

_T = TypeVar("_T")
STORED = ("Beta", "a.1", "a_1", "alpha", "gamma", "zeta")
OTHERS = ("A", "aa", "b", "gamma-1", "zz")


class Open:
    """A store on a loop of its own, whose default account has the providers and routes of `STORED`."""

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        self._runner = runner
        self.store = store

    def read(self, layer: FileLayer, ask: Callable[[Reader], Awaitable[_T]]) -> _T:
        async def asked() -> _T:
            async with layer.read() as reader:
                return await ask(reader)

        return self._runner.run(asked())

    def write(self, layer: FileLayer, change: Callable[[Writer], Awaitable[_T]]) -> _T:
        async def changed() -> _T:
            async with layer.write() as writer:
                return await change(writer)

        return self._runner.run(changed())

    def conflicts(self, layer: FileLayer, records: FileRecords) -> tuple[str, ...]:
        return self._runner.run(layer.conflicts(records))

    def generation(self, store: Store) -> int:
        return self._runner.run(store.generation())


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    directory: Path = tmp_path_factory.mktemp("layer")

    async def fill(store: Store) -> None:
        async with store.write() as writer:
            await writer.insert_account(Account("other", 0.0))
            for name in STORED:
                await writer.insert_provider(stored_provider(name))
                await writer.put_route(stored_route(name, provider_name="gamma"))

    with asyncio.Runner() as runner:
        opening = sqlite_database(directory).opened()
        store = runner.run(opening.__aenter__())
        runner.run(fill(store))
        yield Open(runner, store)
        runner.run(opening.__aexit__(None, None, None))


def in_file(*names: str) -> FileRecords:
    """Providers and chains with these names; each chain asks `alpha` and the provider of its name."""
    providers = tuple(Provider(f"id of {name}", DEFAULT_ACCOUNT, name, "mock", {}, {}, 0.0, 0.0) for name in names)
    routes = tuple(
        Route(DEFAULT_ACCOUNT, name, "", "", kind=CHAIN, candidates=(RouteCandidate(name),), fallback="alpha")
        for name in names
    )
    return FileRecords(providers, routes)


@settings(max_examples=60, deadline=None)
@given(
    names=st.sets(st.sampled_from(STORED + OTHERS)),
    limit=st.integers(0, 13),
    offset=st.integers(0, 13),
)
def test_a_page_is_that_of_the_union_in_order_of_which_the_file_s_are_seen(
    opened: Open, names: set[str], limit: int, offset: int
) -> None:
    layer = FileLayer(opened.store, in_file(*names))
    page = opened.read(layer, lambda reader: reader.providers(DEFAULT_ACCOUNT, limit, offset))
    union = sorted({*STORED, *names})
    assert [each.name for each in page] == union[offset : offset + limit]
    assert {each.name for each in page if each.type == "mock"} == names.intersection(each.name for each in page)
    assert opened.read(layer, lambda reader: reader.count_providers(DEFAULT_ACCOUNT)) == len(union)
    assert opened.read(layer, lambda reader: reader.provider_names(DEFAULT_ACCOUNT)) == union
    routes = opened.read(layer, lambda reader: reader.routes(DEFAULT_ACCOUNT))
    assert [each.name for each in routes] == union
    assert {each.name for each in routes if each.kind == CHAIN} == names


def test_every_record_is_found_by_its_name(opened: Open) -> None:
    layer = FileLayer(opened.store, in_file("b"))
    (theirs,), (chain,) = layer.records.providers, layer.records.routes
    assert opened.read(layer, lambda reader: reader.provider(DEFAULT_ACCOUNT, "b")) == theirs
    assert opened.read(layer, lambda reader: reader.provider(DEFAULT_ACCOUNT, "alpha")) == stored_provider("alpha")
    assert opened.read(layer, lambda reader: reader.provider(DEFAULT_ACCOUNT, "c")) is None
    assert opened.read(layer, lambda reader: reader.route(DEFAULT_ACCOUNT, "b")) == chain
    found = opened.read(layer, lambda reader: reader.route(DEFAULT_ACCOUNT, "alpha"))
    assert found is not None
    assert found.provider_name == "gamma"
    assert opened.read(layer, lambda reader: reader.route(DEFAULT_ACCOUNT, "c")) is None


def test_the_file_is_the_default_account_s_alone(opened: Open) -> None:
    layer = FileLayer(opened.store, in_file("b"))
    assert opened.read(layer, lambda reader: reader.provider("other", "b")) is None
    assert opened.read(layer, lambda reader: reader.route("other", "b")) is None
    assert opened.read(layer, lambda reader: reader.providers("other", 10, 0)) == []
    assert opened.read(layer, lambda reader: reader.provider_names("other")) == []
    assert opened.read(layer, lambda reader: reader.count_providers("other")) == 0
    assert opened.read(layer, lambda reader: reader.routes("other")) == []
    assert opened.read(layer, lambda reader: reader.routes_to("other", "alpha")) == []


def test_what_uses_a_provider_is_found_in_both(opened: Open) -> None:
    layer = FileLayer(opened.store, in_file("b", "gamma"))

    def users(name: str) -> list[str]:
        found = opened.read(layer, lambda reader: reader.routes_to(DEFAULT_ACCOUNT, name))
        return [each.name for each in found]

    assert users("alpha") == ["b", "gamma"]
    assert users("gamma") == sorted(STORED)
    assert users("b") == ["b"]
    assert users("c") == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda writer: writer.insert_provider(stored_provider("b")), "provider"),
        (lambda writer: writer.replace_provider(stored_provider("b")), "provider"),
        (lambda writer: writer.delete_provider(DEFAULT_ACCOUNT, "b"), "provider"),
        (lambda writer: writer.put_route(stored_route("b")), "route"),
        (lambda writer: writer.delete_route(DEFAULT_ACCOUNT, "b"), "route"),
    ],
)
def test_what_the_file_defines_is_changed_there(
    change: Callable[[Writer], Awaitable[object]], what: str, opened: Open
) -> None:
    layer = FileLayer(opened.store, in_file("b"))
    with pytest.raises(DefinedInFile) as raised:
        opened.write(layer, change)
    assert raised.value.text == (
        f"{what} b is defined in the gateway's configuration file; change it there, or choose another name"
    )
    assert raised.value.http_status == 409
    assert opened.conflicts(layer, layer.records) == ()  # nothing was stored


def test_other_names_and_other_accounts_are_written_as_ever(opened: Open) -> None:
    layer = FileLayer(opened.store, in_file("b"))

    async def change(writer: Writer) -> None:
        await writer.insert_provider(stored_provider("b", account="other"))
        await writer.put_route(stored_route("b", account="other"))
        await writer.insert_provider(stored_provider("new"))
        assert await writer.provider(DEFAULT_ACCOUNT, "new") == stored_provider("new")
        assert await writer.delete_provider("other", "b")
        assert await writer.delete_route("other", "b")
        assert await writer.delete_provider(DEFAULT_ACCOUNT, "new")

    opened.write(layer, change)


def test_a_name_in_both_is_told_with_what_to_do(opened: Open) -> None:
    layer = FileLayer(opened.store)
    provider, route = opened.conflicts(layer, in_file("b", "alpha"))
    assert provider == (
        "provider alpha is in the configuration file and in the store; rename it in the file, or remove the stored one "
        "with 'pointsman provider delete alpha' while a gateway runs without it in its file"
    )
    assert route.startswith("route alpha is in the configuration file and in the store; ")


def test_a_route_of_the_file_with_the_name_of_a_registered_model_is_told(opened: Open) -> None:
    layer = FileLayer(opened.store)
    model = runner_model("b")
    opened.write(layer, lambda writer: writer.insert_ai_model(model))
    (line,) = opened.conflicts(layer, in_file("b"))
    assert line.startswith("route b of the configuration file has the name of a registered model; rename it")
    assert opened.read(layer, lambda reader: reader.ai_model_by_alias(DEFAULT_ACCOUNT, "b")) == model
    opened.write(layer, lambda writer: writer.delete_ai_model(DEFAULT_ACCOUNT, model.id))


def test_another_file_is_another_generation_and_what_has_begun_keeps_its_own(opened: Open) -> None:
    layer = FileLayer(opened.store, in_file("b"))
    before = opened.generation(layer)

    async def ask(reader: Reader) -> None:
        layer.replace(in_file("aa"))
        assert await reader.generation() == before
        assert await reader.route(DEFAULT_ACCOUNT, "b") is not None
        assert await reader.route(DEFAULT_ACCOUNT, "aa") is None

    opened.read(layer, ask)
    assert layer.records == in_file("aa")
    assert opened.generation(layer) == before + 1
    assert opened.read(layer, lambda reader: reader.generation()) == before + 1
    assert opened.read(layer, lambda reader: reader.route(DEFAULT_ACCOUNT, "b")) is None
    assert opened.read(layer, lambda reader: reader.route(DEFAULT_ACCOUNT, "aa")) is not None
