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

from tests.support.sandboxes import sandbox

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


def descendants(process: int, generations: int) -> list[int]:
    found = []
    for _ in range(generations):
        (process,) = children(process)
        found.append(process)
    return found


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("isolation", ["netns", "bwrap", "none"])
def test_daemons_end_with_the_command(isolation: str) -> None:
    with sandbox(isolation) as made:
        finished = made.run(made.python, "-c", DAEMONS, "leave")
        assert finished.returncode == 0, finished.stderr
        assert isolation == "none" or not Path(finished.stdout.strip()).parent.exists()


@pytest.mark.parametrize(
    ("isolation", "victim"),
    [
        *(("netns", victim) for victim in ("supervisor", "keeper", "init", "both")),
        *(("bwrap", victim) for victim in ("supervisor", "keeper", "bwrap", "init", "both")),
        ("none", "supervisor"),
    ],
)
def test_nothing_is_left_when_a_side_is_killed(isolation: str, victim: str) -> None:
    with sandbox(isolation) as made:
        command = made.supervisor(made.python, "-c", DAEMONS, "stay")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=made.environment()) as supervisor:
            assert supervisor.stdout is not None
            home = supervisor.stdout.readline().strip()
            (keeper,) = children(supervisor.pid)
            line = [supervisor.pid, keeper, *descendants(keeper, {"bwrap": 2, "netns": 1, "none": 0}[isolation])]
            chosen = {"supervisor": line[:1], "keeper": line[1:2], "bwrap": line[2:3], "init": line[-1:]}
            victims = chosen.get(victim, line[:2])
            for each in reversed(victims):
                os.kill(each, signal.SIGKILL)
            assert supervisor.stdout.read() == ""
            assert supervisor.wait(10) == (-9 if supervisor.pid in victims else 137)
        if victim == "both":
            shutil.rmtree(Path(home).parent, ignore_errors=True)  # nobody who knew of it may be left
        elif isolation != "none":
            assert not Path(home).parent.exists()


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
from pointsman.sandbox.orders import launcher
ours, theirs = socket.socketpair()
orders = {"supervisor": os.getppid(), "isolation": "none", "argv": ["echo", "ran"], "cwd": "/", "path": "/bin/echo"}
orders["groups"] = []
ours.sendall(json.dumps(orders).encode() + b"\\n" + json.dumps({"environment": {}}).encode() + b"\\n")
ended = subprocess.run([*launcher("main"), str(theirs.fileno())], pass_fds=[theirs.fileno()])
print(ended.returncode)
"""
    finished = subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE, text=True, timeout=30, check=True)
    assert finished.stdout == "125\n"
