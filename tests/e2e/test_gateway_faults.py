"""The most telling cells of `make gateway-faults`, small: nothing that a gateway acknowledged may be lost."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from bench.gateway_cells import Cell, Options
from bench.gateway_database_cells import data_directory, disk_full
from bench.gateway_faults import run_cell
from bench.gateway_process_cells import killed
from bench.gateway_world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("world")
    with ExitStack() as stack:
        data_directory(directory / "gateway-0", stack)
        yield World(directory, stack, sandboxes=1)


@pytest.mark.timeout(180)
def test_a_gateway_killed_five_times_within_writes_loses_nothing_and_its_sandbox_follows(world: World) -> None:
    row = run_cell(Cell("killed", "sqlite", killed, 150), world, Options(random.Random(5), kills=5))
    assert not row.wrong
    assert "fetch_recovered" in row.text()
    assert len([attempt for attempt in world.ledger if attempt.code == "OK"]) > 5


def test_a_full_disk_is_told_to_the_operator_and_nothing_else_comes_of_it(world: World) -> None:
    if not os.path.ismount(world.gateway.directory):
        pytest.skip("only root can mount a small disk")
    row = run_cell(Cell("disk full", "sqlite", disk_full, 50), world, Options(random.Random(1)))
    assert not row.wrong
    assert (
        "a large record: RESOURCE_EXHAUSTED: the disk with the database is full and nothing was changed; make room, "
        "then try again" in row.operators
    )
