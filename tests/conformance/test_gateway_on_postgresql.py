"""A real gateway whose PostgreSQL is restarted under it, with operators and a sandbox at work."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench.gateway_cells import Cell, Options
from bench.gateway_database_cells import postgresql_restarted
from bench.gateway_faults import run_cell
from bench.gateway_world import World

from tests.support.databases import PostgresServer


@pytest.mark.timeout(120)
def test_a_database_server_that_is_restarted_costs_errors_and_no_change(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = World(tmp_path, stack, sandboxes=1, server=own_server)
        row = run_cell(Cell("restarted", "postgresql", postgresql_restarted, 60), world, Options(random.Random(1)))
    assert not row.wrong
    assert any(text.startswith("UNAVAILABLE: ") for text in row.operators)
    assert "SQLSTATE" not in row.text()
