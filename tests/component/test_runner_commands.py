"""`pointsman runner`: real processes, a REST that the test plays, and a model's server in a process of its own."""

import contextlib
import json
import os
import pty
import select
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pointsman.cli.main import cli
from pointsman.core.secret import Secret
from pointsman.runner.control_api import CallFailed, ControlApi
from pointsman.runner.gateway_address import read_control_address
from tests.support import canary
from tests.support.ports import free_ports
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.runner_gateway import RUNNER_ID
from tests.support.scripted_rest import ScriptedRest, scripted_rest

_LISTING = """
import http.server, json, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = json.dumps({"data": [{"id": name} for name in sys.argv[1:]]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(data))); self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def rest() -> Iterator[ScriptedRest]:
    with scripted_rest() as rest:
        yield rest


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", _LISTING, "tiny", "huge"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


class Runner:
    """The commands of one user on one machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "config"
        self.key = directory / "user.token"
        self.key.write_text(canary.KEY + "\n")
        self.key.chmod(0o600)

    def __call__(self, *words: str, environ: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        return run_to_end([POINTSMAN, "runner", *words, "--config-dir", str(self.directory)], environ=environ)

    def registered(self, rest: ScriptedRest, *words: str) -> "subprocess.CompletedProcess[str]":
        return self("register", "laptop", "--gateway", rest.url, "--key-file", str(self.key), *words)

    def allowlist(self) -> list[dict[str, str]]:
        models: list[dict[str, str]] = json.loads((self.directory / "allowlist.json").read_text())["models"]
        return models


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_register_keeps_the_runners_token_and_not_the_users_key(runner: Runner, rest: ScriptedRest) -> None:
    done = runner.registered(rest)
    assert done.returncode == 0, done.stderr
    assert rest.asked == [("/api/v1/runners/register", f"Bearer {canary.KEY}", {"name": "laptop"})]
    file = runner.directory / "runner.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {
        "runner_id": RUNNER_ID,
        "name": "laptop",
        "token": canary.TOKEN,
        "gateway": rest.url,
        "gateway_ca": "",
    }
    kept = b"".join(path.read_bytes() for path in runner.directory.iterdir())
    assert canary.KEY.encode() not in kept
    assert canary.TOKEN not in done.stdout + done.stderr


def test_registering_again_asks_for_a_new_token_of_the_same_runner(runner: Runner, rest: ScriptedRest) -> None:
    runner.registered(rest)
    again = runner("register", "--gateway", rest.url, environ={"POINTSMAN_KEY": str(runner.key)})
    assert again.returncode == 0, again.stderr
    assert rest.asked[1][2] == {"name": "laptop", "runner_id": RUNNER_ID}


def test_a_runner_that_was_deleted_is_registered_anew(runner: Runner, rest: ScriptedRest) -> None:
    runner.registered(rest)
    rest.forgotten = RUNNER_ID
    rest.runner_id = "77" * 16
    done = runner.registered(rest)
    assert done.returncode == 0, done.stderr
    assert [asked[2].get("runner_id") for asked in rest.asked] == [None, RUNNER_ID, None]
    assert json.loads((runner.directory / "runner.json").read_text())["runner_id"] == "77" * 16


@pytest.mark.guarantee("S3")
def test_models_registers_what_was_named_and_approves_it_here(
    runner: Runner, rest: ScriptedRest, server_url: str
) -> None:
    runner.registered(rest)
    words = ("models", "--url", server_url, "--key-file", str(runner.key))
    done = runner(*words, "--register", "tiny")
    assert done.returncode == 0, done.stderr
    assert "clients call it alias-tiny" in done.stdout
    wanted = {"name": "tiny", "model_identifier": "tiny", "api_endpoint": server_url}
    assert rest.asked[1] == (f"/api/v1/runners/{RUNNER_ID}/models", f"Bearer {canary.KEY}", wanted)
    entry = {"model_id": f"{1:032x}", "base_url": server_url, "model_identifier": "tiny"}
    assert runner.allowlist() == [entry]
    (runner.directory / "allowlist.json").unlink()  # a lost one is rebuilt by approving again
    assert runner(*words, "--register", f"tiny@{server_url}").returncode == 0
    assert runner.allowlist() == [entry]
    assert runner(*words, "--register", "tiny", "--context", "drop-duplicates").returncode == 0
    assert rest.asked[-1][2] == {**wanted, "context": "drop-duplicates"}
    assert "none of its options" in runner(*words, "--register", "tiny", "--context", "shorten").stderr


@pytest.mark.guarantee("S3")
def test_without_a_terminal_and_a_flag_models_only_lists(runner: Runner, rest: ScriptedRest, server_url: str) -> None:
    runner.registered(rest)
    done = runner("models", "--url", server_url)
    assert done.returncode == 0
    assert "--register-all" in done.stderr
    listed = json.loads(runner("models", "--url", server_url, "-o", "json").stdout)
    here = [each for each in listed if each["base_url"] == server_url]
    assert [(each["model_identifier"], each["approved"], each["model_id"]) for each in here] == [
        ("tiny", False, None),
        ("huge", False, None),
    ]
    assert len(rest.asked) == 1
    assert not (runner.directory / "allowlist.json").exists() or runner.allowlist() == []


def test_register_may_approve_all_that_is_found_at_once(runner: Runner, rest: ScriptedRest, server_url: str) -> None:
    done = runner.registered(rest, "--url", server_url, "--register-all")
    assert done.returncode == 0, done.stderr
    here = [each["model_identifier"] for each in runner.allowlist() if each["base_url"] == server_url]
    assert sorted(here) == ["huge", "tiny"]


def test_another_runner_begins_without_approvals(runner: Runner, rest: ScriptedRest, server_url: str) -> None:
    runner.registered(rest, "--url", server_url, "--register", "tiny")
    assert runner.allowlist()
    rest.runner_id = "77" * 16
    runner.registered(rest)
    assert runner.allowlist() == []


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        ((401, {}), "the key is not accepted"),
        ((403, {}), "runners:manage"),
        ((403, {"error": {"type": "invalid_request_error", "code": "model_not_authorized"}}), "its control listener"),
        ((409, {"error": {"message": "the name is taken\x1b[2J; choose another"}}), "the name is taken\\x1b[2J"),
        ((500, {}), "status 500"),
        ((307, {}), "status 307"),
        ((200, {"id": "../../x", "token": "t"}), "something else than was asked for"),
        ((200, {"id": RUNNER_ID, "token": "a b"}), "something else than was asked for"),
        ((200, {"id": RUNNER_ID}), "something else than was asked for"),
        ((400, {"error": {"message": f"no such key {canary.KEY}"}}), "status 400"),
    ],
)
def test_a_refusal_is_one_line_without_the_key(
    rest: ScriptedRest, refuse: tuple[int, dict[str, object]], said: str
) -> None:
    rest.refuse = refuse
    with pytest.raises(CallFailed) as failed:
        ControlApi(read_control_address(rest.url), Secret(canary.KEY)).register("laptop")
    assert said in str(failed.value)
    assert str(failed.value).isprintable()
    assert canary.KEY not in str(failed.value)
    assert len(rest.asked) == 1


def test_a_machine_that_cannot_keep_a_token_asks_for_none_so_that_the_old_one_still_counts(
    runner: Runner, rest: ScriptedRest
) -> None:
    runner.registered(rest)
    kept = {path.name: path.read_bytes() for path in runner.directory.iterdir()}
    words = ("runner", "register", "--gateway", rest.url, "--config-dir", str(runner.directory))
    done = run_to_end(["prlimit", "--fsize=0", POINTSMAN, *words])
    assert done.returncode == 1
    assert "runner.json: cannot be written: file too large; check" in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(rest.asked) == 1
    assert {path.name: path.read_bytes() for path in runner.directory.iterdir()} == kept


def test_a_refused_registration_leaves_nothing_behind(runner: Runner, rest: ScriptedRest) -> None:
    rest.refuse = (403, {})
    done = runner.registered(rest)
    assert done.returncode == 1
    assert done.stderr.startswith("pointsman: the gateway at ")
    assert done.stderr.count("\n") == 1
    assert not runner.directory.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("register", "--gateway", "http://gateway.example:8781"), "plain text to another machine"),
        (("register", "--gateway", "https://gateway.example"), ":8781"),
        (("register", "--url", "http://10.0.0.1:80/v1"), "does not name this machine"),
        (("models", "--url", "http://localhost:80"), "not of the form"),
        (("models", "--register", "a", "--register-all"), "give one of them"),
    ],
)
def test_a_mistake_is_a_usage_error(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, ["runner", *words])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("command", ["start", "status", "models"])
def test_a_machine_that_is_not_registered_is_told_the_command(runner: Runner, command: str, server_url: str) -> None:
    more = ("--url", server_url, "--register", "tiny") if command == "models" else ()
    done = runner(command, *more)
    assert done.returncode == 1
    assert "pointsman runner register" in done.stderr


def test_a_gateway_that_is_away_is_one_line(runner: Runner) -> None:
    done = runner("register", "--gateway", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert done.returncode == 1
    assert "cannot reach the gateway" in done.stderr
    assert done.stderr.count("\n") == 1


class Terminal:
    """Somebody at a terminal, who is asked."""

    def __init__(self, runner: Runner, *words: str) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [POINTSMAN, "runner", *words, "--config-dir", str(runner.directory)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str) -> None:
        while text not in self.seen:
            assert select.select([self._master], [], [], 30)[0], self.seen
            self.seen += os.read(self._master, 65536).decode()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        with contextlib.suppress(OSError):  # EIO once nobody has the terminal open
            while data := os.read(self._master, 65536):
                self.seen += data.decode()
        os.close(self._master)
        return self._process.wait(30)


@pytest.mark.guarantee("S3")
def test_on_a_terminal_nothing_is_approved_that_was_not_chosen(
    runner: Runner, rest: ScriptedRest, server_url: str
) -> None:
    runner.registered(rest)
    terminal = Terminal(runner, "models", "--url", server_url, "--key-file", str(runner.key))
    terminal.until("Enter for none")
    rows = [line.split() for line in terminal.seen.splitlines() if server_url in line]
    number = next(row[0] for row in rows if row[1] == "huge")
    terminal.type("0\n")
    terminal.until("Write numbers from 1")
    terminal.type(f"{number}\n")
    assert terminal.end() == 0, terminal.seen
    assert [each["model_identifier"] for each in runner.allowlist()] == ["huge"]
    terminal = Terminal(runner, "models", "--url", server_url)
    terminal.until("Enter for none")
    terminal.type("\n")
    assert terminal.end() == 0
    assert len(runner.allowlist()) == 1
    assert len(rest.asked) == 2
