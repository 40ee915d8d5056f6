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


def test_every_example_has_a_test() -> None:
    here = "".join(path.read_text() for path in (*Path(__file__).parent.glob("test_*.py"), EXAMPLES / "demo.py"))
    assert [path.name for path in EXAMPLES.glob("*.*") if f'"{path.name}"' not in here] == []
