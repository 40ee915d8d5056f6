"""Who may call what, compiled for many keys and routes: requests get their turn meanwhile, nothing is held twice."""

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.data_key import DataKey
from pointsman.core.endpoint import Endpoint
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.route import Route
from pointsman.core.sandbox_token import SandboxToken
from pointsman.gateway.keys import MOST_ROUTES
from pointsman.gateway.model_callers import entries_of
from pointsman.store.interface import Reader

ROUTES, KEYS = 1000, 1000
TARGET = Candidate("any", Endpoint("mock", "", 0, ""), "m", ("openai_chat_completions",), "mock")
TABLE = ModelTable({f"route-{number:03}": TARGET for number in range(ROUTES)})


class Records:
    """An account whose every key is for other routes than the rest."""

    async def keys(self, account: str) -> Sequence[DataKey]:
        routes = [tuple(f"route-{(first + each) % ROUTES:03}" for each in range(MOST_ROUTES)) for first in range(KEYS)]
        return [DataKey(account, f"k{n}", b"%d" % n, 0.0, routes=each) for n, each in enumerate(routes)]

    async def sandbox_tokens(self, account: str) -> Sequence[SandboxToken]:
        return []

    async def route(self, account: str, name: str) -> Route | None:
        return None


async def compiled() -> tuple[dict[bytes, Entry], int]:
    """And how often another task had a turn meanwhile."""
    task = asyncio.get_running_loop().create_task(entries_of(cast(Reader, Records()), "default", TABLE))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


@pytest.mark.alone
def test_a_thousand_keys_for_a_thousand_routes_are_compiled_fast_and_requests_get_their_turns() -> None:
    began = time.process_time()
    entries, turns = asyncio.run(compiled())
    assert time.process_time() - began < 0.7  # some 0.1 s; looking each name up in a tuple took 1.4 s
    assert len(entries) == KEYS
    assert turns > KEYS // 20


def test_tables_of_many_keys_share_what_they_may_not_use_and_refuse_it_all_the_same() -> None:
    entries, _ = asyncio.run(compiled())
    first, second = entries[b"0"].table, entries[b"1"].table
    assert first.barred is second.barred
    assert list(first.targets) == [f"route-{number:03}" for number in range(MOST_ROUTES)]
    assert first.find("route-000") is TARGET
    assert first.find(f"route-{MOST_ROUTES:03}") is None
    assert f"route-{MOST_ROUTES:03}" in first.barred
