"""`pointsman runner status`, and what a first try is told: real processes, and a REST and a model's server that the
tests play.
"""

import json
from typing import Any

import pytest

from pointsman.core.secret import Secret
from pointsman.runner.control_api import CallFailed, ControlApi
from pointsman.runner.gateway_address import read_control_address
from tests.component.test_runner_commands import Runner, rest, runner, server_url
from tests.support import canary
from tests.support.ports import free_ports
from tests.support.runner_gateway import RUNNER_ID
from tests.support.scripted_rest import ScriptedRest

__all__ = ["rest", "runner", "server_url"]


@pytest.fixture
def registered(runner: Runner, rest: ScriptedRest, server_url: str) -> Runner:
    assert runner.registered(rest, "--url", server_url, "--register", f"tiny@{server_url}").returncode == 0
    rest.asked.clear()
    return runner


def status(runner: Runner, *words: str) -> dict[str, Any]:
    done = runner("status", "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_status_tells_what_the_gateway_sees_and_what_is_approved(
    registered: Runner, rest: ScriptedRest, server_url: str
) -> None:
    [entry] = registered.allowlist()
    assert status(registered, "--key-file", str(registered.key)) == {
        "runner_id": RUNNER_ID,
        "name": "laptop",
        "gateway": rest.url,
        "connected": True,
        "last_seen_at": "2026-01-02T03:04:05Z",
        "problem": None,
        "models": [{**entry, "problem": None}],
    }
    assert rest.asked == [(f"/api/v1/runners/{RUNNER_ID}", f"Bearer {canary.KEY}", {})]
    shown = registered("status", "--key-file", str(registered.key)).stdout
    assert "  Connected: yes\n" in shown
    assert f"  Approved: tiny at {server_url} (" in shown


@pytest.mark.parametrize(
    ("refuse", "with_key", "connected", "said"),
    [
        ((401, {}), False, None, "give --key-file"),
        ((401, {}), True, None, "the key is not accepted"),
        ((404, {}), True, False, "'pointsman runner register' again"),
        ((200, {"presence": "perhaps"}), True, None, "something else than was asked for"),
    ],
)
def test_status_says_why_it_does_not_know_and_what_to_do(
    registered: Runner,
    rest: ScriptedRest,
    refuse: tuple[int, dict[str, Any]],
    with_key: bool,
    connected: bool | None,
    said: str,
) -> None:
    rest.refuse = refuse
    shown = status(registered, *(("--key-file", str(registered.key)) if with_key else ()))
    assert shown["connected"] is connected
    assert said in shown["problem"]


def test_status_of_a_runner_that_is_offline_names_the_command(registered: Runner, rest: ScriptedRest) -> None:
    rest.presence = "offline"
    shown = registered("status", "--key-file", str(registered.key)).stdout
    assert "  Connected: no, last seen 2026-01-02T03:04:05Z; start it by 'pointsman runner start'" in shown


def test_status_works_without_the_gateway_and_says_which_models_servers_do_not(
    registered: Runner, server_url: str
) -> None:
    gone = f"http://localhost:{free_ports(1)[0]}/v1"
    models = registered.allowlist()
    models += [{**models[0], "model_identifier": "unlisted"}, {**models[0], "base_url": gone}]
    models = [{**each, "model_id": f"{number:032x}"} for number, each in enumerate(models)]
    (registered.directory / "allowlist.json").write_text(json.dumps({"version": 1, "models": models}))
    state = json.loads((registered.directory / "runner.json").read_text())
    state["gateway"] = f"http://127.0.0.1:{free_ports(1)[0]}"
    (registered.directory / "runner.json").write_text(json.dumps(state))
    shown = status(registered)
    assert shown["connected"] is None
    assert shown["problem"].startswith(f"cannot reach the gateway at {state['gateway']}: connection refused; does it")
    assert [each["problem"] for each in shown["models"]] == [
        None,
        f"{server_url} does not list it",
        f"{gone} nobody listens there",
    ]


def test_a_runner_without_models_is_told_the_command_for_them(runner: Runner, rest: ScriptedRest) -> None:
    assert (
        runner.registered(rest).stdout.splitlines()[-1] == "Next: pointsman runner models, to approve some; then start"
    )
    assert "Approved: nothing; 'pointsman runner models'" in runner("status").stdout


def test_models_says_which_are_approved_already(registered: Runner, server_url: str) -> None:
    rows = [
        line.split() for line in registered("models", "--url", server_url).stdout.splitlines() if server_url in line
    ]
    assert [(row[1], row[3]) for row in rows] == [("tiny", "yes"), ("huge", "-")]


def test_a_name_that_is_taken_is_told_with_the_command_for_another(runner: Runner, rest: ScriptedRest) -> None:
    rest.refuse = (409, {"error": {"code": "already_exists", "message": "runner laptop exists; choose another name"}})
    said = runner.registered(rest).stderr
    assert said == "pointsman: runner laptop exists; choose another name: pointsman runner register NAME\n"


def test_a_key_that_was_not_given_is_not_called_wrong(rest: ScriptedRest) -> None:
    rest.refuse = (401, {})
    address = read_control_address(rest.url)
    with pytest.raises(CallFailed, match="asks for a key; give --key-file FILE, made by 'pointsman key create NAME"):
        ControlApi(address, None).register("laptop")


def test_https_to_a_clear_text_port_says_so_in_words(rest: ScriptedRest) -> None:
    address = read_control_address(rest.url.replace("http:", "https:"))
    with pytest.raises(CallFailed, match="does not speak TLS as it must; is it served as http://"):
        ControlApi(address, Secret(canary.KEY)).register("laptop")
