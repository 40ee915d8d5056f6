"""The most telling cell of `make runner-faults`, small: every caller hears the truth, and no request is sent twice."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from bench.runner_cells import RunnerCell, broker_killed
from bench.runner_faults import run_cell
from bench.runner_world import CUT_OFFLINE, OFFLINE, RunnerWorld


@pytest.mark.timeout(180)
@pytest.mark.guarantee("N11", "S4", "S6")
def test_a_broker_that_dies_amid_streams_is_told_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = RunnerWorld(tmp_path, stack, data=1, runners=1, events=8)
        row = run_cell(RunnerCell("broker killed", lambda each: broker_killed(each, 0.5), 150), world)
    assert not row.wrong
    assert any(text.startswith((OFFLINE, CUT_OFFLINE)) for text in row.clients)
