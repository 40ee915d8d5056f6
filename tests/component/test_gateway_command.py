"""`pointsman gateway` as a process: it starts, says so, and says in one line why it does not."""

import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import evidence
from tests.support.canary import KEY
from tests.support.processes import POINTSMAN, run_to_end

_READY = re.compile(r"pointsman: ready data=127\.0\.0\.1:(\d+) control=127\.0\.0\.1:(\d+) grpc=127\.0\.0\.1:(\d+)\n")
ANY_PORTS = {f"POINTSMAN_LISTEN__{name}": "127.0.0.1:0" for name in ("DATA", "CONTROL", "GRPC")}


def clean_environ(directory: Path, **more: str) -> dict[str, str]:
    own = {name: text for name, text in os.environ.items() if not name.startswith("POINTSMAN_")}
    return {**own, **ANY_PORTS, "POINTSMAN_DATA_DIR": str(directory / "data"), **more}


def _allow_core_dumps() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [POINTSMAN, "gateway"],
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environ(tmp_path),
        cwd=tmp_path,
        preexec_fn=_allow_core_dumps,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        _, rest = process.communicate(timeout=20)
        evidence.keep("cli", rest)


def ready_ports(process: "subprocess.Popen[str]") -> tuple[int, int, int]:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if match := _READY.fullmatch(line):
            return int(match[1]), int(match[2]), int(match[3])
    raise AssertionError(f"the gateway did not start: {seen}")


def check(tmp_path: Path, *arguments: str, environ: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [POINTSMAN, "gateway", "--check", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=40,
        env={**clean_environ(tmp_path), **(environ or {})},
        cwd=tmp_path,
        check=False,
    )
    evidence.keep("cli", f"{done.stdout}\n{done.stderr}")
    return done


def start(tmp_path: Path, *arguments: str, **environ: str) -> str:
    """What a gateway says that does not start."""
    done = subprocess.run(
        [POINTSMAN, "gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=40,
        env=clean_environ(tmp_path, **environ),
        cwd=tmp_path,
        check=False,
    )
    evidence.keep("cli", f"{done.stdout}\n{done.stderr}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_listens_says_so_and_ends_on_a_signal(gateway: "subprocess.Popen[str]", tmp_path: Path) -> None:
    data, control, grpc_port = ready_ports(gateway)
    for port in (control, grpc_port):
        socket.create_connection(("127.0.0.1", port), 10).close()
    with socket.create_connection(("127.0.0.1", data), 10) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    token = tmp_path / "data" / "admin.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(20) == 0


@pytest.mark.guarantee("K4")
def test_it_leaves_no_core_dump(gateway: "subprocess.Popen[str]") -> None:
    ready_ports(gateway)
    limits = Path(f"/proc/{gateway.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 ", limits)


@pytest.mark.parametrize("listener", ["data", "control", "grpc"])
def test_a_port_in_use_is_named_with_its_key(listener: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = start(tmp_path, f"--listen-{listener}", f"127.0.0.1:{port}")
    (line,) = [each for each in text.splitlines() if each.startswith("pointsman: ")]
    assert line.startswith(f"pointsman: listen.{listener} 127.0.0.1:{port}: ")
    assert line.endswith("; choose another address or port")


def test_it_does_not_start_with_settings_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("listen: {data: 0.0.0.0:0}\nnats_url: x\nrole: date\n")
    text = start(tmp_path, "--config", "pointsman.yaml", POINTSMAN_LISTEN__DATA="")
    assert text == (
        "pointsman: pointsman.yaml:1: listen.data 0.0.0.0:0 can be reached from other machines, and there is no TLS; "
        "set tls.cert and tls.key, or listen on 127.0.0.1\n"
        "pointsman.yaml:2: nats_url is not of the form nats://HOST:PORT or tls://HOST:PORT; write nats://HOST:PORT or "
        "tls://USER:PASSWORD@HOST:PORT\n"
        "pointsman.yaml:3: role is neither all, api nor data; write all\n"
    )
    assert not (tmp_path / "data").exists()


def test_it_does_not_start_with_a_token_that_others_may_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    token = "what-an-operator-wrote-into-it-0123"
    (tmp_path / "data" / "admin.token").write_text(token)
    (tmp_path / "data" / "admin.token").chmod(0o644)
    text = start(tmp_path)
    assert "admin.token is open to other users; remove it" in text
    assert token not in text


def test_no_token_asked_for_is_worth_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")  # so that it ends by itself
    text = start(tmp_path, "--grpc-auth", "none")
    assert text.startswith("pointsman: warning: --grpc-auth: auth.grpc is none: everybody on this machine may read")


def test_a_file_in_the_working_directory_is_not_read_unasked(tmp_path: Path) -> None:
    (tmp_path / "pointsman.yaml").write_text("nonsense: [")
    assert check(tmp_path).returncode == 0


def test_check_shows_every_setting_and_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "gw.yaml").write_text(f"database_url: postgresql://u:{KEY}@h/d\n")
    (tmp_path / "gw.yaml").chmod(0o600)
    done = check(tmp_path, "--config", "gw.yaml", "--listen-grpc", "localhost:0")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["KEY", "VALUE", "FROM"]
    assert ["listen.data", "127.0.0.1:0", "POINTSMAN_LISTEN__DATA"] in rows
    assert ["listen.grpc", "127.0.0.1:0", "--listen-grpc"] in rows
    assert ["database_url", "postgresql://***", "gw.yaml:1"] in rows
    assert ["auth.grpc", "token", "default"] in rows
    assert KEY not in done.stdout
    assert not (tmp_path / "data").exists()


def test_check_says_the_same_in_json(tmp_path: Path) -> None:
    done = check(tmp_path, "-o", "json", "--grpc-auth", "none")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["problems"], len(found["warnings"])) == (0, True, [], 1)
    assert {"key": "auth.grpc", "value": "none", "from": "--grpc-auth"} in found["settings"]
    assert {"key": "tls.cert", "value": None, "from": "default"} in found["settings"]


def test_check_tells_problems_and_exits_with_1(tmp_path: Path) -> None:
    wrong = ("--listen-data", "8780", "--tls-cert", "x")
    done = check(tmp_path, *wrong, environ={"POINTSMAN_DATADIR": "x"})
    assert done.returncode == 1
    assert [line.partition(": ")[0] for line in done.stdout.splitlines()] == [
        "POINTSMAN_DATADIR",
        "--listen-data",
        "--tls-cert",
    ]
    found = json.loads(check(tmp_path, "-o", "json", *wrong).stdout)
    assert (found["ok"], found["settings"]) == (False, [])
    assert found["problems"][0] == {
        "place": "--listen-data",
        "line": 0,
        "reason": "listen.data is not HOST:PORT",
        "next_step": "write an IP address and a port, for example 127.0.0.1:8780 or '[::1]:8780'",
    }


def test_an_output_format_belongs_to_check(tmp_path: Path) -> None:
    done = run_to_end([POINTSMAN, "gateway", "-o", "json"])
    assert done.returncode == 2
    assert "-o belongs to --check" in done.stderr


def test_without_its_packages_it_says_how_to_install_them(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['grpc'] = None; sys.argv = ['pointsman', 'gateway']\n"
        "from pointsman.cli.main import main; main()"
    )
    done = run_to_end([sys.executable, "-c", program], environ=clean_environ(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        "pointsman: the gateway needs grpc, which is not installed; pip install 'pointsman[gateway]'\n",
    )


@pytest.mark.parametrize(("name", "meant"), [("run", "sandbox run"), ("proxy", "sandbox proxy")])
def test_a_command_of_a_group_that_is_looked_for_at_the_top_is_found(name: str, meant: str) -> None:
    done = run_to_end([POINTSMAN, name, "--", "true"])
    assert done.returncode == 2
    assert f"No such command '{name}'. Did you mean 'pointsman {meant}'?" in done.stderr


def test_the_command_line_starts_without_what_only_a_gateway_needs() -> None:
    program = (
        "import sys, pointsman.cli.main\n"
        "print([name for name in ('grpc', 'sqlalchemy', 'fastapi', 'uvicorn') if name in sys.modules])"
    )
    assert run_to_end([sys.executable, "-c", program]).stdout == "[]\n"
