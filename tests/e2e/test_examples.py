"""Every example runs as its first lines say."""

import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.processes import run_to_end

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*argv: str) -> "CompletedProcess[str]":
    return run_to_end([sys.executable, *argv], seconds=100)


def test_the_router_can_be_embedded() -> None:
    finished = run(str(EXAMPLES / "embed_router.py"))
    assert finished.stdout == "200 policy-model says: This is a mock answer.\n", finished.stderr


def test_the_demo_holds() -> None:
    if os.geteuid() != 0:
        pytest.fail("the demo isolates its script: run the tests as root, as CI does")
    finished = run(str(EXAMPLES / "demo.py"))
    assert finished.returncode == 0, finished.stderr
    assert "isolation netns" in finished.stdout
    assert "https://example.com is denied" in finished.stdout
    assert finished.stdout.endswith("demo: all of it held\n")


def test_the_day_of_outages_ends_with_an_answer_to_everybody() -> None:
    finished = run(str(EXAMPLES / "outage_day.py"), "3")
    assert (finished.returncode, finished.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in finished.stdout.splitlines() if line}
    assert [int(rows[name][1]) for name in ("gamma", "local")] == [3, 3]
    assert [int(rows[name][2]) for name in ("gamma", "local")] == [3, 3]
    assert "rate_limit" in rows["alpha"]
    assert {"server_error"} < set(rows["beta"])
    assert "server_error" in rows["gamma"]
    assert " requests, 0 without an answer\n" in finished.stdout
    assert finished.stdout.endswith("/stats/live and the providers' own counts agree\n")


def test_a_model_is_shared_and_its_client_told_when_it_is_away() -> None:
    finished = run(str(EXAMPLES / "share_model.py"))
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.endswith(
        "$ pointsman runner start\nA model of this machine says hello.\n[DONE] from parrot:1b\n"
        "the runner has stopped\n503 runner_offline within a second\n"
    )


def test_every_example_has_a_test() -> None:
    here = "".join(path.read_text() for path in (*Path(__file__).parent.glob("test_*.py"), EXAMPLES / "demo.py"))
    names = [path.name for path in EXAMPLES.iterdir() if not path.name.startswith("_")]
    assert [name for name in names if f'"{name}"' not in here] == []
