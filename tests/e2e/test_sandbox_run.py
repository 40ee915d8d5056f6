"""`pointsman sandbox run` as its user sees it: real processes, real namespaces. Needs root, as CI has."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.canary import KEY
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.sandboxes import sandbox

MOCK = """
routes:
  - route: inference.local
    endpoint: mock://canned
    model: mock-model
    protocols: [openai_chat_completions]
"""
PYTHON = sys.executable


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests make network namespaces: run them as root, as CI does")


@pytest.fixture
def routes(tmp_path: Path) -> Path:
    path = tmp_path / "routes.yaml"
    path.write_text(MOCK)
    return path


def command(routes: Path, *argv: str, options: tuple[str, ...] = ()) -> list[str]:
    return [POINTSMAN, "sandbox", "run", "--inference-routes", str(routes), *options, "--", *argv]


def run(
    routes: Path, *argv: str, options: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return run_to_end(command(routes, *argv, options=options), environ=environ)


def inside(routes: Path, code: str, **keywords: object) -> str:
    finished = run(routes, PYTHON, "-c", code, **keywords)  # type: ignore[arg-type]
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_official_sdk_works_without_being_told_anything(routes: Path) -> None:
    code = (
        "import openai; a = openai.OpenAI().chat.completions.create(model='x', messages=[]); "
        "print(a.model, a.choices[0].message.content)"
    )
    assert inside(routes, code).startswith("mock-model This is a mock answer.")


def test_curl_works_without_being_told_anything(routes: Path) -> None:
    finished = run(routes, "curl", "-sS", "https://inference.local/v1/chat/completions", "-d", "{}")
    assert json.loads(finished.stdout)["model"] == "mock-model"


def test_clients_that_ignore_proxy_variables_come_to_the_door_by_its_name(routes: Path) -> None:
    before = Path("/etc/hosts").read_bytes()
    url = "https://inference.local/v1/chat/completions"
    finished = run(routes, "curl", "-sS", "--noproxy", "*", url, "-d", "{}")
    assert json.loads(finished.stdout)["model"] == "mock-model", finished.stderr
    code = f"""
import json, os, socket, ssl, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
print(json.load(opener.open(urllib.request.Request({url!r}, b"{{}}")))["model"])
print(sorted({{address[0] for *_, address in socket.getaddrinfo("inference.local", 443)}}))
context = ssl._create_unverified_context()
try:
    context.wrap_socket(socket.create_connection(("inference.local", 443)), server_hostname="localhost")
except ssl.SSLError as error:
    print(error.reason)
print(os.access("/etc/hosts", os.W_OK), open("/etc/hosts").read())
"""
    model, addresses, refused, hosts = inside(routes, code).split("\n", 3)
    assert (model, addresses) == ("mock-model", "['127.0.0.1']")
    assert "UNRECOGNIZED_NAME" in refused
    assert hosts.startswith("False ")
    assert set(before.decode().splitlines()) <= set(hosts.removeprefix("False ").splitlines())
    assert Path("/etc/hosts").read_bytes() == before


def test_a_person_without_root_gets_the_same_door_and_no_view_of_their_home(routes: Path) -> None:
    with sandbox("bwrap") as person:
        file = person.work / "routes.yaml"
        file.write_text(MOCK + "    api_key: canary-77\n")
        url = "https://inference.local/v1/chat/completions"
        script = f"curl -sS {url} -d {{}} && curl -sS --noproxy '*' {url} -d {{}} && ls -A .. && cat routes.yaml"
        pointsman = [person.python, "-c", "from pointsman.cli.main import main; main()"]
        argv = [*pointsman, "sandbox", "run", "--inference-routes", "routes.yaml", "--", "sh", "-c", script]
        finished = subprocess.run(
            person.as_operator("sh", "-c", 'cd "$0" && exec "$@"', str(person.work), *argv),
            env=person.environment(), capture_output=True, text=True, timeout=40, check=False,
        )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "isolation=bwrap" in finished.stderr
    assert finished.stdout.count('"model":"mock-model"') == 2
    assert finished.stdout.endswith("work\n")
    assert "canary-77" not in finished.stdout


def test_nothing_exists_inside_but_loopback_and_the_door(routes: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"""
import socket
print([name for _, name in socket.if_nameindex()])
open_ports = []
for candidate in [{port}, *range(3100, 3160), 22, 53, 80, 443, 5432, 4222, 8080]:
    try:
        socket.create_connection(("127.0.0.1", candidate), 1).close()
        open_ports.append(candidate)
    except OSError:
        pass
print(open_ports)
for host in ("198.51.100.1", "10.0.0.1", "169.254.169.254"):
    try:
        socket.create_connection((host, 80), 1)
        print("reached", host)
    except OSError as error:
        print(error.errno)
"""
        output = inside(routes, code).splitlines()
    assert output == ["['lo']", "[3128, 443]", "101", "101", "101"]


def test_the_command_has_no_privileges_and_no_other_descriptors(routes: Path) -> None:
    code = """
import os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
for name in ("Uid", "Gid", "Groups", "CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"):
    print(name, *status[name].split())
print(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print(os.getpid() < 10, os.access("/proc/1/environ", os.R_OK))
"""
    lines = inside(routes, code).splitlines()
    zero = "0000000000000000"
    assert lines == [
        "Uid 65534 65534 65534 65534",
        "Gid 65534 65534 65534 65534",
        "Groups",
        f"CapEff {zero}",
        f"CapPrm {zero}",
        f"CapInh {zero}",
        f"CapBnd {zero}",
        f"CapAmb {zero}",
        "NoNewPrivs 1",
        "Seccomp 2",
        "[0, 1, 2] 4",  # the fourth lists the directory
        "True False",
    ]


@pytest.mark.guarantee("T11")
def test_the_operators_keys_stay_outside(routes: Path, tmp_path: Path) -> None:
    file = tmp_path / "keyed.yaml"
    file.write_text(
        MOCK.replace("endpoint: mock://canned", "endpoint: http://127.0.0.1:9/v1\n    api_key_env: MY_ODD_NAME")
    )
    canary = KEY
    environ = {
        "MY_ODD_NAME": canary,
        "COPY": f"x{canary}x",
        "GROQ_API_KEY": "other",
        "AWS_SECRET_ACCESS_KEY": "other",
        "SSH_AUTH_SOCK": "/x",
        "HARMLESS": "kept",
    }
    names = ["MY_ODD_NAME", "COPY", "GROQ_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK"]
    code = f"import os; print(os.environ.get('HARMLESS'), sorted(set(os.environ) & set({names})))"
    finished = run(file, PYTHON, "-c", code, environ=environ)
    assert finished.stdout == "kept []\n"
    assert canary not in finished.stdout + finished.stderr


def test_a_home_of_its_own_is_writable_and_gone_afterwards(routes: Path) -> None:
    home = inside(routes, "import os, pathlib; p = pathlib.Path.home(); (p / 'x').write_text('1'); print(p)").strip()
    assert "pointsman-home-" in home
    assert not Path(home).exists()


def test_sockets_of_the_hosts_services_are_out_of_sight(routes: Path) -> None:
    assert inside(routes, "import os; print(os.listdir('/run'))") == "[]\n"


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_the_exit_status_is_the_commands(routes: Path, script: str, status: int) -> None:
    assert run(routes, "sh", "-c", script).returncode == status


@pytest.mark.parametrize(
    ("argv", "options", "words"),
    [
        (("no-such-command",), (), "command not found: no-such-command"),
        (("/no/such/file",), (), "no such file"),
        (("/etc",), (), "directory"),
        (("/etc/passwd",), (), "nobody may not execute it"),
        (("true",), ("--user", "nobody-of-that-name"), "no such user"),
        (("true",), ("--user", "root"), "would let the command rewrite"),
        (("true",), ("--expose", "/no/such/dir"), "no such file or directory"),
    ],
)
def test_what_cannot_be_started_is_one_clear_line_and_125(
    routes: Path, argv: tuple[str, ...], options: tuple[str, ...], words: str
) -> None:
    finished = run(routes, *argv, options=options)
    assert finished.returncode == 125
    last = finished.stderr.splitlines()[-1]
    assert last.startswith("pointsman: ")
    assert words in last
    assert "Traceback" not in finished.stderr


def test_a_bad_route_file_is_125_before_anything_starts(tmp_path: Path) -> None:
    finished = run(tmp_path / "absent.yaml", "true")
    assert finished.returncode == 125
    assert finished.stderr.startswith("pointsman: ")


def test_no_isolation_works_and_says_loudly_what_it_does_not_protect(routes: Path) -> None:
    finished = run(
        routes,
        "curl",
        "-sS",
        "https://inference.local/v1/chat/completions",
        "-d",
        "{}",
        options=("--isolation", "none"),
    )
    assert json.loads(finished.stdout)["model"] == "mock-model"
    assert "this command is NOT isolated" in finished.stderr


def processes_with(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until_gone(mark: str, seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while processes_with(mark):
        assert time.monotonic() < deadline, f"still running: {processes_with(mark)}"
        time.sleep(0.02)


DAEMON = """
import os, sys, time
mark = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", mark])
    os._exit(0)
os.wait()
print("daemon started", flush=True)
time.sleep(float(sys.argv[2]))
"""


def test_daemons_end_with_the_command(routes: Path) -> None:
    mark = f"mark-{os.getpid()}-a"
    assert run(routes, PYTHON, "-c", DAEMON, mark, "0").returncode == 0
    wait_until_gone(mark)


@pytest.mark.parametrize("killed", ["supervisor", "keeper"])
def test_nothing_is_left_when_either_side_is_killed(routes: Path, killed: str) -> None:
    mark = f"mark-{os.getpid()}-{killed}"
    with subprocess.Popen(
        command(routes, PYTHON, "-c", DAEMON, mark, "600"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "daemon started\n"
        victim = process.pid
        if killed == "keeper":
            victim = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(victim, signal.SIGKILL)
        wait_until_gone(mark)
        process.wait(10)


def test_signals_pass_through(routes: Path) -> None:
    code = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(41))
print("ready", flush=True)
signal.pause()
"""
    with subprocess.Popen(
        command(routes, PYTHON, "-c", code), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 41


@pytest.mark.alone
def test_ctrl_c_ends_everything_within_a_second(routes: Path) -> None:
    with subprocess.Popen(
        command(routes, PYTHON, "-c", "print('ready', flush=True); import time; time.sleep(600)"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(5) in (1, 130)
        assert time.monotonic() - started < 2


@pytest.mark.guarantee("T10")
def test_two_sandboxes_do_not_disturb_each_other(routes: Path) -> None:
    outputs: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: outputs.append(
                run(routes, "curl", "-sS", "https://inference.local/v1/chat/completions", "-d", "{}").stdout
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(output)["model"] for output in outputs] == ["mock-model"] * 3


def test_a_program_in_a_private_directory_runs_and_the_rest_of_it_is_invisible(routes: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    (private / "shown").mkdir(parents=True)
    (private / "secret").write_text("secret")
    (private / "shown" / "script.sh").write_text("#!/bin/sh\nls " + str(private) + "\n")
    (private / "shown" / "script.sh").chmod(0o755)
    private.chmod(0o700)
    finished = run(routes, str(private / "shown" / "script.sh"), options=("--expose", str(private / "shown")))
    assert finished.stdout == "shown\n", finished.stderr
