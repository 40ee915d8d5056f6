"""Large blocks go back to the system when they are freed, whatever was allocated behind them."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
from pointsman.proxy.memory import give_back_memory

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

if sys.argv[1] == "set":
    give_back_memory()
before, pins = resident_mib(), []
for _ in range(5):
    blocks = []
    for _ in range(4):
        blocks.append(b"x" * 10_000_000)
        pins.append(b"y" * 100_000)
    blocks.clear()
print(resident_mib() - before)
"""


@pytest.mark.parametrize(("setting", "is_given_back"), [("set", True), ("left", False)])
def test_large_blocks_are_given_back_when_the_allocator_is_told_so_and_only_then(
    setting: str, is_given_back: bool
) -> None:
    finished = subprocess.run([sys.executable, "-c", SCRIPT, setting], capture_output=True, text=True, check=True)
    assert (int(finished.stdout) < 8) is is_given_back
