"""What is left when a side of a sandbox dies, and what it takes along from its caller. Needs root, as CI has.

Every process of a sandbox inherits its standard output, so the end of that pipe proves that none is left.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = sys.executable
SUPERVISOR = (PYTHON, "-m", "tests.support.supervisor")
DAEMONS = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(600)
        os._exit(0)
    os.wait()
print(os.environ["HOME"], flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests make network namespaces: run them as root, as CI does")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir(mode=0o755)
    return directory


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("isolation", ["netns", "none"])
def test_daemons_end_with_the_command(work: Path, isolation: str) -> None:
    command = [*SUPERVISOR, isolation, str(work), PYTHON, "-c", DAEMONS, "leave"]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert isolation == "none" or not Path(finished.stdout.strip()).exists()


@pytest.mark.parametrize(
    ("isolation", "victim"),
    [("netns", "supervisor"), ("netns", "keeper"), ("netns", "init"), ("netns", "both"), ("none", "supervisor")],
)
def test_nothing_is_left_when_a_side_is_killed(work: Path, isolation: str, victim: str) -> None:
    command = [*SUPERVISOR, isolation, str(work), PYTHON, "-c", DAEMONS, "stay"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        home = supervisor.stdout.readline().strip()
        (keeper,) = children(supervisor.pid)
        victims = {
            "supervisor": [supervisor.pid],
            "keeper": [keeper],
            "init": children(keeper),
            "both": [keeper, supervisor.pid],
        }[victim]
        for each in victims:
            os.kill(each, signal.SIGKILL)
        assert supervisor.stdout.read() == ""
        assert supervisor.wait(10) == (-9 if supervisor.pid in victims else 137)
    if victim == "both":
        shutil.rmtree(home, ignore_errors=True)  # nobody who knew of it may be left
    elif isolation == "netns":
        assert not Path(home).exists()


def test_groups_and_inheritable_capabilities_of_the_caller_stay_outside(work: Path) -> None:
    code = "print(*(line.split() for line in open('/proc/self/status') if line.startswith(('Groups', 'CapInh'))))"
    caller = ["setpriv", "--groups", "4,27", "--inh-caps", "+net_raw"]
    command = [*caller, *SUPERVISOR, "netns", str(work), PYTHON, "-c", code]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert finished.stdout == "['Groups:'] ['CapInh:', '0000000000000000']\n"


def test_mounts_stay_inside_even_where_they_would_be_shared(work: Path) -> None:
    before = "cat /proc/self/mounts >before"
    script = f'cd {work} && {before} && cd - >/dev/null && "$@" && cat /proc/self/mounts'
    command = ["unshare", "--mount", "--propagation", "shared", "sh", "-c", script, "sh"]
    command += [*SUPERVISOR, "netns", str(work), "true"]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert finished.stdout == (work / "before").read_text()
    assert " / " in finished.stdout


def test_a_supervisor_that_is_already_gone_is_noticed_by_the_launcher(work: Path) -> None:
    code = """
import json, os, socket, subprocess, sys
from pointsman.sandbox.isolation import LAUNCHER
ours, theirs = socket.socketpair()
orders = {"supervisor": os.getppid(), "isolation": "none", "argv": ["echo", "ran"], "cwd": "/", "path": "/bin/echo"}
ours.sendall(json.dumps(orders).encode() + b"\\n" + json.dumps({"environment": {}}).encode() + b"\\n")
launcher = subprocess.run([*LAUNCHER, str(theirs.fileno())], pass_fds=[theirs.fileno()])
print(launcher.returncode)
"""
    finished = subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert finished.stdout == "125\n"
