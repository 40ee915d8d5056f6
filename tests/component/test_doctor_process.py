"""Running a client: its time, its output and what it leaves behind are bounded."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pointsman.sandbox.doctor import process
from pointsman.sandbox.doctor.reading import Finished


def run(*argv: str, seconds: float = 20, stdin: str = "", directory: str = "/") -> Finished:
    return asyncio.run(process.run(argv, {"PATH": "/usr/bin:/bin"}, directory, seconds, stdin))


def test_both_outputs_the_status_and_the_question_go_through() -> None:
    finished = run("sh", "-c", "cat; echo err >&2; exit 3", stdin="asked\n")
    assert finished == Finished(3, "asked\nerr\n")


def test_a_program_that_is_not_there_is_an_answer_and_no_exception() -> None:
    finished = run("/nowhere/client")
    assert finished.status == 126
    assert finished.output.startswith("cannot run /nowhere/client: ")


def test_a_client_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    finished = run("sh", "-c", f"sleep 300 & echo $! >{note}; echo begun; wait", seconds=1)
    assert finished.timed_out
    assert finished.output == "begun\n"
    child = int(note.read_text())
    deadline = time.monotonic() + 10
    while _alive(child):
        assert time.monotonic() < deadline, "the client's child lives on"


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_output_is_kept_up_to_its_bound_and_read_to_its_end(extra: int) -> None:
    size = process.MOST_OUTPUT + extra
    finished = run(sys.executable, "-c", f"import sys; sys.stdout.write('x' * {size})")
    assert len(finished.output) == min(size, process.MOST_OUTPUT)
    assert finished.status == 0


def test_git_takes_no_configuration_from_the_directories_above(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "config", "trial.value", "planted"], check=True)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(below)
    question = ("git", "config", "--get", "trial.value")
    assert run(*question, directory=str(tmp_path)).output == "planted\n"
    for directory in (below, link):
        assert run(*question, directory=str(directory)) == Finished(1, "")
