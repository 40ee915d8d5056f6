"""The most telling cells of `make gateway-faults` about stages, small: what was written down stays whole and exact."""

import random
from functools import partial

import pytest
from bench.fault_table import Row
from bench.gateway_cells import ChainCell, Options
from bench.gateway_faults import run_chain_cell
from bench.gateway_stage_cells import killed
from bench.gateway_stage_load_cells import rewritten
from bench.stage_world import StageWorld

_cell = partial(ChainCell, limit=0, make=StageWorld, seconds=150)


def run(cell: ChainCell) -> Row:
    row = run_chain_cell(cell, Options(random.Random(7), kills=1))
    assert not row.wrong, row.text()
    return row


@pytest.mark.guarantee("V3")
@pytest.mark.timeout(200)
def test_one_of_two_gateways_killed_while_both_write_leaves_both_chains_whole() -> None:
    row = run(_cell("killed", "sqlite", killed, gateways=2))
    assert any(text.startswith("1 kills: ") for text in row.operators)


@pytest.mark.timeout(200)
def test_policies_prices_and_budgets_change_under_streams_and_each_request_meets_one_version() -> None:
    row = run(_cell("rewritten", "sqlite", partial(rewritten, number=9)))
    assert any("4 versions" in text for text in row.operators)
