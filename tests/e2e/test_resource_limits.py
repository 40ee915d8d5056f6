"""`sandbox run --memory --cpus` against this machine's own control groups. Needs root, as CI has."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import POINTSMAN
from tests.support.sandboxes import sandbox

PYTHON = sys.executable
ROUTES = "routes: [{route: inference.local, endpoint: 'mock://x', model: m, protocols: [openai_chat_completions]}]\n"
EATER = "x = b'x' * (300 << 20)"


def groups_left() -> set[Path]:
    return {Path(path) for path, _, _ in os.walk("/sys/fs/cgroup") if Path(path).name.startswith("pointsman-")}


@pytest.fixture
def run(tmp_path: Path) -> list[str]:
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES)
    return [POINTSMAN, "sandbox", "run", "--inference-routes", str(file)]


def finish(command: list[str], *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*command, *more], capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize("isolation", ["netns", "none"])
def test_a_command_that_takes_more_memory_ends_and_its_user_is_told(run: list[str], isolation: str) -> None:
    before = groups_left()
    # The child, not the command itself: what the command starts counts too.
    code = f"import subprocess, sys; sys.exit(-subprocess.run([sys.executable, '-c', {EATER!r}]).returncode)"
    finished = finish(run, "--isolation", isolation, "--memory", "128M", "--", PYTHON, "-c", code)
    assert finished.returncode == signal.SIGKILL, finished.stderr
    assert finished.stderr.splitlines()[-1].startswith("pointsman: the command reached its --memory of 128 MiB")
    assert groups_left() <= before


def test_a_command_that_takes_less_is_left_alone(run: list[str]) -> None:
    finished = finish(run, "--memory", "1G", "--", PYTHON, "-c", EATER)
    assert finished.returncode == 0, finished.stderr
    assert "reached" not in finished.stderr


def test_processor_time_is_shared_out(run: list[str]) -> None:
    code = """
import json, os, time
if os.fork() == 0:
    while True:
        pass
started, used = time.monotonic(), os.times()
while time.monotonic() - started < 2:
    pass
after = os.times()
print(json.dumps(after.user + after.system - used.user - used.system))
"""
    finished = finish(run, "--cpus", "0.2", "--", PYTHON, "-c", code)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) < 0.6  # of 2 seconds: at most 0.4 for both, and a period's worth of slack


def test_the_group_is_removed_when_the_supervisor_was_killed(run: list[str]) -> None:
    before = groups_left()
    with subprocess.Popen(
        [*run, "--memory", "256M", "--", "sh", "-c", "echo ready; sleep 600"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        made = groups_left() - before
        assert made
        process.kill()
        process.wait(10)
        assert process.stdout.read() == ""  # nobody is left who could write
    deadline = time.monotonic() + 10
    while any(path.exists() for path in made):
        assert time.monotonic() < deadline, f"still there: {made}"
        time.sleep(0.05)


def test_a_person_without_delegation_is_told_the_cause_and_the_mend() -> None:
    with sandbox("bwrap") as person:
        (person.work / "routes.yaml").write_text(ROUTES)
        pointsman = [person.python, "-c", "from pointsman.cli.main import main; main()", "sandbox", "run"]
        argv = [*pointsman, "--inference-routes", f"{person.work}/routes.yaml", "--memory", "64M", "--", "true"]
        finished = subprocess.run(
            person.as_operator("sh", "-c", 'cd "$0" && exec "$@"', str(person.work), *argv),
            env=person.environment(), capture_output=True, text=True, timeout=40, check=False,
        )  # fmt: skip
    assert finished.returncode == 125
    assert "systemd-run --user --scope -p Delegate=yes" in finished.stderr


@pytest.mark.parametrize(("option", "value"), [("--memory", "15M"), ("--memory", "lots"), ("--cpus", "0")])
def test_a_limit_that_makes_no_sense_is_a_usage_error(run: list[str], option: str, value: str) -> None:
    finished = finish(run, option, value, "--", "true")
    assert finished.returncode == 2
    assert f"Invalid value for '{option}'" in finished.stderr
