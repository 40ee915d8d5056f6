"""The most telling cell of `make gateway-faults` about chains, small: a quota is not overrun by a gateway that dies."""

import random
from dataclasses import replace

import pytest
from bench.gateway_cells import Options
from bench.gateway_faults import run_chain_cell
from bench.gateway_quota_cells import QUOTA_CELLS


@pytest.mark.timeout(180)
def test_a_gateway_killed_while_it_counts_sends_no_more_than_the_quota_has_room_for() -> None:
    killed = next(cell for cell in QUOTA_CELLS if cell.name.startswith("gateway SIGKILLed"))
    row = run_chain_cell(replace(killed, limit=150, seconds=150), Options(random.Random(3), kills=1))
    assert not row.wrong
    assert any(text.startswith("1 kills: limit 150, the upstream answered ") for text in row.operators)
