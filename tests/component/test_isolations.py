"""What every isolation promises, asked of each: with root, and without. Needs root, as CI has."""

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.sandboxes import OPERATOR, Sandbox

ZERO = ["0000000000000000"]


def test_nothing_of_the_host_is_reached_by_address_or_by_name(inside: Sandbox) -> None:
    code = """
import sys
found = [[name for _, name in socket.if_nameindex()]]
for host, port in (("127.0.0.1", int(sys.argv[1])), ("::1", int(sys.argv[1])), ("192.0.2.1", 80), (sys.argv[2], 80)):
    try:
        found.append(socket.create_connection((host, port), 5).getpeername())
    except OSError as error:
        found.append(error.errno)
for name in ("localhost.invalid", "example.com"):
    try:
        found.append(socket.getaddrinfo(name, 443))
    except socket.gaierror:
        found.append("no name")
for path in ("\\0" + sys.argv[3], *sys.argv[4:]):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        found.append("connected")
    except OSError as error:
        found.append(error.errno)
report(found)
"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address of ours would be used
        ours = probe.getsockname()[0]
    mark = f"pointsman-test-{os.getpid()}"
    paths = [f"{place}/{mark}.sock" for place in ("/tmp", "/var/tmp", "/run", "/dev/shm")]
    with socket.create_server(("0.0.0.0", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + mark)
        abstract.listen()
        named = [socket.socket(socket.AF_UNIX) for _ in paths]
        try:
            for each, path in zip(named, paths, strict=True):
                each.bind(path)
                each.listen()
                os.chmod(path, 0o777)
            found = inside.report(code, str(listener.getsockname()[1]), ours, mark, *paths)
        finally:
            for each, path in zip(named, paths, strict=True):
                each.close()
                Path(path).unlink(missing_ok=True)
    assert found == [["lo"], 111, 111, 101, 101, "no name", "no name", 111, 2, 2, 2, 2]


def test_both_listeners_are_there_and_nothing_else_listens(inside: Sandbox) -> None:
    code = """
lines = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
report(sorted(int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A"))
"""
    assert inside.report(code) == [443, 3128]


def test_the_command_has_no_privilege_group_descriptor_or_signal_left(inside: Sandbox) -> None:
    code = """
import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk")
ignored = int(status["SigIgn"], 16) & ~(1 << 12 | 1 << 24 | 3 << 31)  # SIGPIPE, SIGXFSZ: Python's; 32, 33: libc's
report([[status[name].split() for name in names], ignored, sorted(map(int, os.listdir("/proc/self/fd")))[:-1]])
"""
    who = [str(OPERATOR)] * 4
    assert inside.report(code) == [[who, who, [], ZERO, ZERO, ZERO, ZERO, ZERO, ["1"], ["2"], ZERO], 0, [0, 1, 2]]


def test_the_kernel_refuses_what_namespaces_do_not_contain(inside: Sandbox) -> None:
    code = """
import ctypes, errno, fcntl, os
found = []
for family in (socket.AF_VSOCK, socket.AF_PACKET, socket.AF_ALG):
    try:
        found.append(socket.socket(family, socket.SOCK_STREAM).fileno())
    except OSError as error:
        found.append(errno.errorcode[error.errno])
master, slave = os.openpty()
for request in (0x5412, 0x541C):
    try:
        found.append(fcntl.ioctl(slave, request, b"x"))
    except OSError as error:
        found.append(errno.errorcode[error.errno])
libc = ctypes.CDLL(None, use_errno=True)
found.append([libc.syscall(425, 1, None), errno.errorcode[ctypes.get_errno()]])
report(found)
"""
    unsupported = "EAFNOSUPPORT"
    assert inside.report(code) == [unsupported, unsupported, unsupported, "EPERM", "EPERM", [-1, "ENOSYS"]]


def test_the_hosts_processes_interfaces_and_terminals_are_not_listed(inside: Sandbox) -> None:
    code = """
import glob, os
report([sorted(int(n) for n in os.listdir("/proc") if n.isdecimal()), glob.glob("/sys/class/net/*"), os.getpid(),
        os.readlink("/proc/self")])
"""
    processes, interfaces, own, link = inside.report(code)
    assert (processes, own, link) == ([1, 2], 2, "2")
    assert interfaces in ([], ["/sys/class/net/lo"])


def test_init_cannot_be_read_traced_or_killed_from_inside(inside: Sandbox) -> None:
    code = """
import ctypes, os, signal
found = []
for name in ("environ", "mem", "maps"):
    try:
        found.append(len(open("/proc/1/" + name, "rb").read(64)))
    except OSError as error:
        found.append(error.errno)
found.append(ctypes.CDLL(None).ptrace(16, 1, None, None))
os.kill(1, signal.SIGKILL)
os.kill(1, signal.SIGSTOP)
found.append(open("/proc/1/stat").read().split()[2] in "SR")
report(found)
"""
    assert inside.report(code) == [13, 13, 13, -1, True]


def test_namespaces_that_the_command_makes_uncover_nothing(inside: Sandbox) -> None:
    script = 'echo entered; umount /tmp; umount "$0"; umount /run; ls -A "$0" /run; cat "$0/.ssh/id"'
    finished = inside.run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(inside.home))
    assert finished.stdout.startswith("entered\n"), finished.stderr
    assert "key" not in finished.stdout
    assert "id" not in finished.stdout.split()


def test_the_persons_home_is_another_one_but_for_the_working_directory(inside: Sandbox) -> None:
    (inside.home / ".aws").mkdir()
    (inside.home / ".aws" / "credentials").write_text("key")
    code = """
import os, sys
host = sys.argv[1]
open("made", "w").close()
home = os.environ["HOME"]
open(home + "/file", "w").close()
os.makedirs(home + "/deep/er", 0)
status = os.stat(home)
report([home, os.listdir(host), os.listdir(os.getcwd()), os.getcwd(), os.environ["PWD"], status.st_uid,
        oct(status.st_mode), os.listdir(os.path.dirname(home))])
"""
    own, *rest = inside.report(code, str(inside.home))
    work = str(inside.work)
    assert rest == [["work"], ["made"], work, work, OPERATOR, "0o40700", ["home"]]
    assert (inside.work / "made").stat().st_uid == OPERATOR
    assert not Path(own).parent.exists()


def test_what_is_written_to_temporary_directories_stays_inside(inside: Sandbox) -> None:
    code = """
import os, sys
found = []
for place in ("/tmp", "/var/tmp", "/dev/shm"):
    path = place + "/" + sys.argv[1]
    open(path, "w").write("x")
    found.append(os.stat(path).st_uid)
report(found)
"""
    name = f"pointsman-test-{os.getpid()}"
    assert inside.report(code, name) == [OPERATOR] * 3
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        assert not Path(place, name).exists()


def test_exposed_paths_are_there_and_writable_and_their_neighbours_are_not(inside: Sandbox) -> None:
    for name in ("shown", "other"):
        (inside.home / name).mkdir()
        os.chown(inside.home / name, OPERATOR, OPERATOR)
    code = "import os, sys; open(sys.argv[1] + '/shown/new', 'w'); report(sorted(os.listdir(sys.argv[1])))"
    assert inside.report(code, str(inside.home), environment={"EXPOSE": "../shown"}) == ["shown", "work"]
    assert (inside.home / "shown" / "new").exists()


def test_a_home_is_no_place_to_start_from_unless_it_is_exposed(inside: Sandbox) -> None:
    supervisor = inside.supervisor("ls", "-A")
    supervisor[supervisor.index(str(inside.work))] = str(inside.home)

    def run(**environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            supervisor, env=inside.environment(**environment), capture_output=True, text=True, timeout=40, check=False
        )

    refused = run()
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "start from the directory of your project" in refused.stderr
    assert run(EXPOSE=str(inside.home)).stdout.split() == [".ssh", "work"]


def test_a_file_with_keys_is_empty_inside_and_cannot_be_changed(inside: Sandbox) -> None:
    file = inside.work / "routes.yaml"
    file.write_text("api_key: canary")
    os.chown(file, OPERATOR, OPERATOR)
    code = """
import os
found = [open("routes.yaml").read()]
for change, *arguments in ((open, "w"), (os.remove,), (os.rename, "x")):
    try:
        change("routes.yaml", *arguments)
    except OSError as error:
        found.append(error.errno)
report(found)
"""
    hidden = {"BLANK": f"{file}:{inside.home}/.ssh/id"}  # the second is out of sight anyway
    assert inside.report(code, environment=hidden) in (["", 30, 16, 16], ["", 13, 16, 16])
    assert file.read_text() == "api_key: canary"


def test_a_program_in_the_home_runs_and_its_neighbours_are_invisible(inside: Sandbox) -> None:
    tools = inside.home / "tools"
    for name in ("bin", "lib", "share"):
        (tools / name).mkdir(parents=True)
    tool = tools / "bin" / "tool"
    tool.write_text('#!/bin/sh\ncd "${0%/bin/tool}" && ls . bin && touch new bin/new lib/new\n')
    tool.chmod(0o755)
    for path in (tools, *tools.rglob("*")):
        os.chown(path, OPERATOR, OPERATOR)
    finished = inside.run(str(tool))
    assert finished.stdout.split() == [".:", "bin", "lib", "bin:", "tool"]
    assert not list(tools.rglob("new"))


def test_bytes_that_are_no_text_and_a_large_environment_reach_the_command(inside: Sandbox) -> None:
    code = """
import os, sys
big = sum(len(value) for name, value in os.environ.items() if name.startswith("BIG"))
report([os.fsencode(sys.argv[1]).hex(), os.environb[b"ODD"].hex(), big])
"""
    odd = os.fsdecode(b"\xff\xc3\xa9\n\x01")
    big = {f"BIG{number}": "x" * 100_000 for number in range(10)}
    assert inside.report(code, odd, environment={**big, "ODD": odd}) == [b"\xff\xc3\xa9\n\x01".hex()] * 2 + [1_000_000]


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 125", 125), ("exit 255", 255), ("kill -INT $$", 130), ("kill -KILL $$", 137)],
)
def test_the_status_is_the_commands(inside: Sandbox, script: str, status: int) -> None:
    assert inside.run("sh", "-c", script).returncode == status


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/no/such/interpreter\n", 0o755, "its interpreter does not exist"),
        ("no first line\n", 0o755, "neither a program nor a script"),
        ("#!/bin/sh\n", 0o600, f"{OPERATOR} may not execute it"),
    ],
)
def test_what_cannot_be_executed_is_one_line_and_125(inside: Sandbox, text: str, mode: int, words: str) -> None:
    (inside.work / "agent").write_text(text)
    (inside.work / "agent").chmod(mode)
    finished = inside.run("./agent")
    assert finished.returncode == 125
    assert words in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


def test_mounts_made_for_the_sandbox_do_not_reach_the_host(inside: Sandbox) -> None:
    before = Path("/proc/self/mounts").read_text()
    assert inside.run("true").returncode == 0
    assert Path("/proc/self/mounts").read_text() == before


SIGNALLED = """
import os, signal, sys
got = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, _: (got.append(number), os.write(1, b"%d %d\\n" % (number, len(got)))))
print("ready", flush=True)
while got.count(signal.SIGTERM) == 0:
    signal.pause()
"""


def test_each_signal_reaches_the_command_once(inside: Sandbox) -> None:
    names = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTERM")
    numbers = [int(signal.Signals[name]) for name in names]
    argv = inside.supervisor(inside.python, "-c", SIGNALLED, *map(str, numbers))
    with subprocess.Popen(argv, env=inside.environment(), stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        for count, number in enumerate(numbers, 1):
            supervisor.send_signal(number)
            assert supervisor.stdout.readline() == f"{number} {count}\n"
        assert supervisor.wait(10) == 0


def test_two_sandboxes_do_not_disturb_each_other(inside: Sandbox) -> None:
    statuses: list[int] = []

    def run(number: int) -> None:
        statuses.append(inside.run("sh", "-c", f"exit {number}").returncode)

    threads = [threading.Thread(target=run, args=(number,)) for number in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [3, 4]
