"""What is kept at the store: taken over after each change, whatever went wrong in a look before."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from pointsman.core.control_errors import StoreUnavailable
from pointsman.gateway.following import LOOK_SECONDS, Followed, following
from pointsman.store.generation import KnownGeneration
from pointsman.store.interface import Reader, Store
from tests.conformance.records import route
from tests.support.databases import Database
from tests.support.waiting import until


class Noted:
    """Keeps the number of routes, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.failures: list[Exception] = []

    async def take(self, reader: Reader, _: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(len(await reader.routes("default")))


class PlayedStore:
    """Its generation is what a test says it is; what is read of it as well."""

    def __init__(self) -> None:
        self.value = 5
        self.failure: Exception | None = None
        self.looks = 0

    async def generation(self) -> int:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return self.value

    async def routes(self, _: str) -> list[int]:
        return [0] * self.value

    @contextlib.asynccontextmanager
    async def read(self) -> AsyncIterator[Any]:
        yield self

    def when_committed(self, tell: Callable[[], None]) -> None:
        self.tell = tell


async def put(store: Store, name: str) -> None:
    async with store.write() as writer:
        await writer.put_route(route(name))


async def test_what_this_process_changes_is_in_force_before_the_next_look(database: Database) -> None:
    async with database.opened() as store:
        noted, lags = Noted(), []
        followed = Followed(store, print)
        await followed.keep(noted, "noted")
        async with following(followed):
            for number in range(10):
                await put(store, f"r{number}")
                began = time.monotonic()
                await until(lambda: noted.taken[-1] == number + 1)  # noqa: B023
                lags.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
        assert min(lags) < LOOK_SECONDS / 3  # without being woken, all would take as long as the look that follows


async def test_a_fault_in_a_look_is_told_once_keeps_nobody_else_and_does_not_end_the_looking(sqlite: Database) -> None:
    said: list[str] = []
    async with sqlite.opened() as store:
        first, second = Noted(), Noted()
        followed = Followed(store, said.append)
        await followed.keep(first, "first")
        await followed.keep(second, "second")
        first.failures = [RuntimeError("a secret"), RuntimeError("a secret"), RuntimeError("a secret")]
        async with following(followed):
            await put(store, "a")
            await until(lambda: len(said) >= 2)  # a view is left before it is told
        assert (first.taken, second.taken) == ([0, 1], [0, 1])
    assert len(said) == 2
    assert said[0].startswith("first: internal error: RuntimeError in Noted.take, test_following.py line ")
    assert "a secret" not in said[0]
    assert said[1] == "first: changes are in force again"


async def test_a_store_that_fails_one_of_them_does_not_keep_the_others_from_theirs(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        first, second = Noted(), Noted()
        followed = Followed(store, print)
        await followed.keep(first, "first")
        await followed.keep(second, "second")
        await put(store, "a")
        first.failures = [StoreUnavailable("away")]
        with contextlib.suppress(StoreUnavailable):
            await followed.refresh()
        assert (first.taken, second.taken) == ([0], [0, 1])
        await followed.refresh()
        assert (first.taken, second.taken) == ([0, 1], [0, 1])


async def test_looks_that_fail_as_nobody_foresaw_are_told_and_gone_on_with() -> None:
    store, noted, said = PlayedStore(), Noted(), list[str]()
    followed = Followed(cast("Store", store), said.append)
    await followed.keep(noted, "noted")
    async with following(followed):
        store.failure = AttributeError("a secret")
        store.value = 6
        looks = store.looks
        await until(lambda: store.looks >= looks + 2)
        store.failure = None
        await until(lambda: noted.taken == [5, 6])
        store.value = 3  # somebody has restored a backup
        await until(lambda: noted.taken == [5, 6, 3])
        store.failure = StoreUnavailable("away")
        looks = store.looks
        await until(lambda: store.looks >= looks + 2)
        assert noted.taken == [5, 6, 3]
    assert len(said) == 2
    assert said[0].startswith("records: internal error: AttributeError in PlayedStore.generation")
    assert said[1] == "records: changes are in force again"


async def test_a_database_whose_file_was_replaced_changes_nothing_until_it_is_back(sqlite: Database) -> None:
    async with sqlite.opened() as store:
        noted = Noted()
        followed = Followed(store, print)
        await followed.keep(noted, "noted")
        file = sqlite.file
        async with following(followed):
            aside = file.with_name("aside")
            file.rename(aside)
            file.write_bytes(b"")
            await asyncio.sleep(2 * LOOK_SECONDS)
            assert noted.taken == [0]
            aside.rename(file)
            await put(store, "a")
            await until(lambda: noted.taken == [0, 1])


async def test_a_database_that_does_not_answer_is_told_and_its_answer_counts_when_it_comes() -> None:
    may_answer, asked = asyncio.Event(), 0

    async def read() -> int:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        return 7

    known = KnownGeneration(read, 60.0, time.monotonic, answer_seconds=0.01)
    for _ in range(2):
        with contextlib.suppress(StoreUnavailable):
            await known.get()
            raise AssertionError("it has not answered")
    may_answer.set()
    await until(lambda: not known._asking)
    assert (await known.get(), asked) == (7, 1)
