"""What a gateway process that is killed leaves behind of requests without rows, and who tells of it."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.gateway.stages.usage_tally import tallying

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from pointsman.gateway.stages.usage_tally import tallying

async def main():
    with tallying(Path(sys.argv[1]), print) as tally:
        for _ in range(5):
            tally.began()
        for number in range(4):
            tally.ended(had_begun=number > 0)
        tally.settled(2)
        tally.began()
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
LOST = (
    "usage: rows lost: a gateway process was killed: 2 that had ended and 3 that were under way have none; "
    "hard budgets have counted what was sent"
)


@pytest.mark.guarantee("B5")
def test_what_a_killed_process_has_not_written_is_told_once_by_the_next(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    said: list[str] = []
    for _ in range(2):
        with tallying(tmp_path, said.append):
            pass
    assert said == [LOST]
    assert list(tmp_path.iterdir()) == []


async def test_nothing_is_told_of_a_process_that_is_alive_nor_of_one_that_has_ended_well(tmp_path: Path) -> None:
    said: list[str] = []
    with tallying(tmp_path, said.append) as tally:
        tally.began()
        await asyncio.sleep(0)
        tally.ended(had_begun=False)
        with tallying(tmp_path, said.append):
            assert len(list(tmp_path.iterdir())) == 2
        assert len(list(tmp_path.iterdir())) == 1
    tally.ended(had_begun=False)  # goes nowhere
    assert (said, list(tmp_path.iterdir())) == ([], [])


async def test_a_directory_that_takes_no_file_is_told_and_requests_go_on(tmp_path: Path) -> None:
    said: list[str] = []
    with tallying(tmp_path / "none", said.append) as tally:
        tally.began()
        tally.ended(had_begun=True)
        tally.settled(1)
    assert said == [f"usage: {tmp_path / 'none'}: no such file or directory; what a kill may lose will not be counted"]


@pytest.mark.parametrize("content", [b"", b"\0" * 15, b"\0" * 16])
def test_a_file_that_says_nothing_is_taken_away_without_a_word(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "usage-0.open").write_bytes(content)
    said: list[str] = []
    with tallying(tmp_path, said.append):
        pass
    assert (said, list(tmp_path.iterdir())) == ([], [])
