"""Sandboxes that follow a gateway, as users start them. Needs root, as CI has."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.canary import KEY, TOKEN
from tests.support.follower import token_file
from tests.support.processes import POINTSMAN, ProxyProcess, following_process, kept, run_to_end
from tests.support.raw_client import Answer, RawClient, post
from tests.support.sandboxes import OPERATOR, Sandbox, sandbox
from tests.support.scripted_gateway import ScriptedGateway, resolved
from tests.support.waiting import wait_until

OFTEN = {**os.environ, "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": "0.2"}
MOCK = resolved("mock://canned", model_id="first")


def ask(proxy: ProxyProcess) -> Answer:
    with RawClient(socket.create_connection(("127.0.0.1", proxy.port), 20)) as client:
        client.enter_tunnel(proxy.client_context())
        client.send(post())
        return client.answer()


def is_told(proxy: ProxyProcess, kind: str) -> Callable[[], bool]:
    return lambda: any(f" {kind} " in line for line in proxy.lines)


def test_a_proxy_is_ready_before_its_gateway_and_follows_it_from_then_on(tmp_path: Path) -> None:
    gateway = ScriptedGateway(MOCK)
    with following_process(gateway.url, TOKEN, tmp_path, environ=OFTEN) as proxy:
        assert is_told(proxy, "fetch_failed")()  # above the ready line
        assert ask(proxy).status == 503
        with gateway:
            wait_until(is_told(proxy, "routes_loaded"))
            assert ask(proxy).value(b"x-pointsman-model") == b"first"
            gateway.serve(resolved("mock://canned", model_id="second"))
            wait_until(lambda: ask(proxy).value(b"x-pointsman-model") == b"second")
        wait_until(lambda: sum(" fetch_failed " in line for line in proxy.lines) == 2)
        assert ask(proxy).status == 200
        with gateway:
            gateway.serve()
            wait_until(lambda: ask(proxy).status == 503)
            wait_until(is_told(proxy, "inference_disabled"))
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(10) == 0
    assert not [line for line in proxy.lines if not line.startswith("pointsman: ")]


def test_a_proxy_waits_for_a_gateway_that_hangs_only_so_long_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with ScriptedGateway(MOCK) as gateway:
        gateway.fault = gateway.hang
        with following_process(gateway.url, TOKEN, tmp_path, environ=OFTEN) as proxy:
            assert "fetch_failed" in "".join(proxy.lines)
            assert "gateway_timeout" in "".join(proxy.lines)
            gateway.wait_for_fetches()  # one is under way
            assert proxy.stop() == 0


def test_a_token_file_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN)
    path.chmod(0o640)
    options = ["--gateway", "http://127.0.0.1:1", "--token-file", str(path)]
    for command, status in ((["proxy", "--ca-dir", str(tmp_path / "ca")], 1), (["run"], 125)):
        done = run_to_end([POINTSMAN, "sandbox", *command, *options, *(["--", "true"] if status == 125 else [])])
        assert done.returncode == status
        assert done.stderr == f"pointsman: token file {path}: others may use it; chmod 600 {path}\n"


def test_certificates_that_cannot_be_read_are_told_at_the_start(tmp_path: Path) -> None:
    path = token_file(tmp_path, TOKEN)
    options = ["--gateway", "https://localhost:1", "--token-file", str(path), "--gateway-ca", str(tmp_path / "none")]
    for command, status in ((["proxy", "--ca-dir", str(tmp_path / "ca")], 1), (["run"], 125)):
        rest = ["--listen", "127.0.0.1:0"] if status == 1 else ["--", "true"]
        done = run_to_end([POINTSMAN, "sandbox", *command, *options, *rest])
        assert done.returncode == status
        assert f"pointsman: --gateway-ca {tmp_path}/none: no such file; " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_ended_while_its_gateway_hangs_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    path = token_file(tmp_path, TOKEN)
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o755)
    with ScriptedGateway(MOCK) as gateway:
        gateway.fault = gateway.hang
        command = [POINTSMAN, "sandbox", "run", "--gateway", gateway.url, "--token-file", str(path), "--", "true"]
        running = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, cwd="/")
        gateway.wait_for_fetches(1)
        assert [each.name.startswith("pointsman-ca-") for each in temporary.iterdir()] == [True]
        running.send_signal(number)
        assert running.wait(20) == 128 + number
    assert list(temporary.iterdir()) == []


def test_a_route_file_needs_no_grpc() -> None:
    code = """
import asyncio, sys
import pointsman.cli.main, pointsman.cli.sandbox
from pointsman.config.routes_file import LoadedRoutes
from pointsman.core.candidate import Bundle
from pointsman.events.operation_log import OperationLog
from pointsman.sandbox.app import open_routed
from pointsman.sandbox.route_source import FileRoutes

async def main():
    async with open_routed(FileRoutes(LoadedRoutes(Bundle())), OperationLog(lines=None, wall_clock=lambda: 0.0)):
        print(sorted({name.partition(".")[0] for name in sys.modules} & {"grpc", "google"}))

asyncio.run(main())
"""
    assert run_to_end([sys.executable, "-c", code]).stdout == "[]\n"


@pytest.mark.parametrize(
    "first", ["pointsman.sandbox.gateway_router", "pointsman.rpc.channel", "pointsman.gateway.app"]
)
def test_grpc_is_told_to_keep_its_own_lines_to_itself_before_it_is_loaded(first: str) -> None:
    code = f"""
import builtins, os, sys
original = builtins.__import__
def watched(name, *rest):
    if name.partition(".")[0] == "grpc" and "grpc" not in sys.modules:
        print(os.environ.get("GRPC_VERBOSITY"), os.environ.get("GRPC_TRACE"))
    return original(name, *rest)
builtins.__import__ = watched
import {first}
"""
    environ = {"GRPC_VERBOSITY": "INFO", "GRPC_TRACE": "all"}  # traces show tokens
    assert run_to_end([sys.executable, "-c", code], environ=environ).stdout == "INFO None\n"
    environ = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "NONE None\n"


@pytest.mark.parametrize("place", ["work", "kept"])
def test_a_key_that_lies_before_the_command_draws_a_warning_as_a_token_does(tmp_path: Path, place: str) -> None:
    for name in ("work", "kept"):
        (tmp_path / name).mkdir()
    token = token_file(tmp_path / place, TOKEN)
    key = tmp_path / place / "absent.pem"
    options = ["--gateway", "https://localhost:1", "--token-file", str(token), "--gateway-key", str(key)]
    run = [POINTSMAN, "sandbox", "run", *options, "--gateway-cert", str(key), "--", "true"]
    done = run_to_end(run, cwd=tmp_path / "work")
    assert done.returncode == 125
    for option, path in (("--token-file", token), ("--gateway-key", key)):
        assert (f"warning: {option} {path} lies in what COMMAND sees" in done.stderr) is (place == "work")


SCRIPT = """
cat sandbox.token ../sandbox.token /proc/*/environ 2>/dev/null
env
curl -sS https://inference.local/v1/chat/completions -d '{}'
"""


@pytest.mark.parametrize("isolation", ["netns", "bwrap"])
def test_the_token_its_file_and_the_keys_are_invisible_to_the_command(isolation: str) -> None:
    with ScriptedGateway(MOCK, resolved("mock://other", name="other")) as gateway, sandbox(isolation) as person:
        path = token_file(person.work, TOKEN)
        if isolation == "bwrap":
            os.chown(path, OPERATOR, OPERATOR)
        done = run_as(person, gateway.url, SCRIPT)
        assert path.read_text() == f"{TOKEN}\n"
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["model"] == "first"
    assert "KEPT=yes" in done.stdout
    for secret in (TOKEN, KEY, "POINTSMAN", gateway.url):
        assert secret not in done.stdout
    assert TOKEN not in done.stderr
    assert "warning: --token-file sandbox.token lies in what COMMAND sees" in done.stderr


def run_as(person: Sandbox, url: str, script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in the person's directory, with the gateway named by variables or by options."""
    pointsman = [person.python, "-c", "from pointsman.cli.main import main; main()", "sandbox", "run"]
    environ = person.environment(ONE=TOKEN, TWO=f"a{KEY}b", KEPT="yes")
    if person.isolation == "bwrap":
        environ |= {"POINTSMAN_GATEWAY": url, "POINTSMAN_TOKEN_FILE": "sandbox.token"}
    else:
        pointsman += ["--gateway", url, "--token-file", "sandbox.token"]
    argv = [*pointsman, "--", "sh", "-c", script]
    if person.isolation == "bwrap":
        argv = person.as_operator("sh", "-c", 'cd "$0" && exec "$@"', str(person.work), *argv)
    return kept(
        subprocess.run(argv, env=environ, cwd=person.work, capture_output=True, text=True, timeout=50, check=False)
    )
