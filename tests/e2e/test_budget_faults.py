"""The most telling cells of `make budget-exactness` and `make budget-faults`, small.

What hard budgets let through, and what they and usage rows have counted, beside what the providers wrote down.
"""

import asyncio
from pathlib import Path

import pytest
from bench.budget_exactness import mistakes, route_of
from bench.budget_faults import CELLS, CHAINS, DIRECT_CELLS, ENDS, broken
from bench.budget_world import budget_world

from tests.support.databases import postgres_server

CHAIN_CELLS = [
    cell for cell in CELLS if cell.route in ("plain", "twice", "rejected", "bare", "silent", "middle", "cut", "told")
]
DIRECT = [cell for cell in DIRECT_CELLS if cell.route in ("direct-500", "direct-silent")]


async def _wrong(directory: Path, budget: tuple[str, str], url: str = "") -> list[str]:
    """Two requests of each kind on SQLite; on PostgreSQL only what its own statements count."""
    cells = CHAIN_CELLS[:2] if url else [*CHAIN_CELLS, *DIRECT]
    chains, direct = [*CHAINS, route_of(*budget)], [cell.route for cell in cells if cell in DIRECT]
    async with budget_world(directory, chains, url, direct) as world:
        wrong = await mistakes(world, *budget)
        lines = await broken(world, cells, 1, () if url else ENDS[1:])
        return [*wrong, *(f"{line.done}: {each}" for line in lines for each in line.wrong)]


@pytest.mark.guarantee("B1")
@pytest.mark.guarantee("B2")
@pytest.mark.guarantee("B5")
@pytest.mark.timeout(180)
def test_hard_budgets_are_exact_and_all_is_counted_as_providers_have_it_after_faults_and_a_kill(tmp_path: Path) -> None:
    assert asyncio.run(_wrong(tmp_path, ("money", "sandbox"))) == []


@pytest.mark.guarantee("B1")
@pytest.mark.timeout(180)
def test_on_postgresql_budgets_are_exact_and_all_is_counted_as_providers_have_it(tmp_path: Path) -> None:
    with postgres_server() as server:
        assert asyncio.run(_wrong(tmp_path, ("tokens", "key"), server.url(server.new_database()))) == []
