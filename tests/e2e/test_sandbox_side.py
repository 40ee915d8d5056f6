"""The sandbox's machine needs the packages of requirements/sandbox.txt and no others. Needs root, as CI has."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.canary import KEY, TOKEN
from tests.support.follower import token_file
from tests.support.operated_gateway import OperatedGateway, operated_gateway
from tests.support.processes import following_process, run_to_end
from tests.support.sandbox_side import COMMAND, REPOSITORY
from tests.support.scripted_gateway import ScriptedGateway, resolved


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedGateway]:
    with operated_gateway(tmp_path_factory.mktemp("gateway") / "data") as running:
        yield running


def run(*arguments: str, environ: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return run_to_end([*COMMAND, *arguments], environ=environ, cwd=REPOSITORY)


def test_an_operator_and_a_sandbox_need_nothing_else(gateway: OperatedGateway, tmp_path: Path) -> None:
    environ = {
        "POINTSMAN_GATEWAY": gateway.url,
        "POINTSMAN_DATA_DIR": str(gateway.data_directory),
        "OPENAI_API_KEY": KEY,
    }
    made = "provider create --name work --type openai --from-existing --config OPENAI_BASE_URL=mock://answers"
    for command in (
        made,
        "provider list",
        "inference set --provider work --model one",
        "inference get -o json",
        "route list",
        "account list",
        "sandbox token list",
        "status",
    ):
        done = run(*command.split(), environ=environ)
        assert (done.returncode, done.stderr) == (0, ""), done
    token = run("sandbox", "token", "create", "one", environ=environ).stdout.strip()
    environ["POINTSMAN_TOKEN_FILE"] = str(token_file(tmp_path, token))
    ask = "curl -sS https://inference.local/v1/chat/completions -d '{}'"
    done = run("sandbox", "run", "--isolation", "netns", "--", "sh", "-c", ask, environ=environ)
    assert json.loads(done.stdout)["model"] == "one", done.stderr


def test_a_proxy_that_follows_a_gateway_needs_nothing_else(tmp_path: Path) -> None:
    mock = resolved("mock://canned")
    with ScriptedGateway(mock) as scripted, following_process(scripted.url, TOKEN, tmp_path, program=COMMAND) as proxy:
        assert any(" routes_loaded source=gateway " in line for line in proxy.lines)


def test_a_route_file_and_the_doctor_need_nothing_else(tmp_path: Path) -> None:
    routes = tmp_path / "routes.yaml"
    routes.write_text(
        "routes: [{route: inference.local, endpoint: 'mock://x', model: m, protocols: [openai_responses]}]"
    )
    assert run("sandbox", "routes", "check", str(routes)).returncode == 0
    assert run("sandbox", "run", "--isolation", "none", "--inference-routes", str(routes), "true").returncode == 0
    assert json.loads(run("doctor", "-o", "json", "curl").stdout)["inside"] is False


def test_a_gateway_needs_more_and_says_so_in_one_line(tmp_path: Path) -> None:
    done = run("gateway", environ={"POINTSMAN_DATA_DIR": str(tmp_path / "data")})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pointsman: the gateway needs ")
    assert done.stderr.endswith(", which is not installed; pip install 'pointsman[gateway]'\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
