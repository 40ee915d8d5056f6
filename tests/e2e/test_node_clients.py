"""The official SDKs of Node 20, Node 24 and Python, told nothing: in a sandbox, and through the proxy alone.

One process of each client runs all scenarios; the tests judge what it printed.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.canary import KEY
from tests.support.clients import CLIENTS, Client, run_sandboxed
from tests.support.dialects import Cut, Reply, Say
from tests.support.processes import llama_server, proxy_process
from tests.support.scripted_model import Asked, ScriptedModel

GREETING = "Hello, wide world."
SCENARIOS = {
    "chat": GREETING,
    "chat_stream": [GREETING, True],
    "responses": GREETING,
    "responses_stream": [GREETING, "response.completed"],
    "messages": GREETING,
    "messages_stream": [GREETING, "message_stop"],
    "messages_helper": GREETING,
    "models": True,
    "count_tokens": True,
}
CUTS = ("chat_cut", "responses_cut", "messages_cut")
ROUTES = """
routes:
  - route: inference.local
    endpoint: {url}
    model: real-model
    protocols: [openai_chat_completions, openai_responses, anthropic_messages, model_discovery]
    api_key: {key}
"""
Outcomes = dict[str, dict[str, Any]]


def decide(asked: Asked) -> Reply:
    return Cut("unfinished") if "Be cut off." in json.dumps(asked.body) else Say(GREETING)


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(decide) as model:
        yield model


def read(finished: "subprocess.CompletedProcess[str]") -> Outcomes:
    assert finished.returncode == 0, finished.stderr
    outcomes = [json.loads(line) for line in finished.stdout.splitlines()]
    return {outcome["name"]: outcome for outcome in outcomes}


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def inside(request: pytest.FixtureRequest, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    client: Client = request.param
    directory = tmp_path_factory.mktemp("inside")
    names = (*SCENARIOS, *CUTS, "elsewhere")
    return read(run_sandboxed(ROUTES.format(url=model.url, key=KEY), directory, client.argv(*names), client))


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def outside(request: pytest.FixtureRequest, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    client: Client = request.param
    directory = tmp_path_factory.mktemp("outside")
    names = (*SCENARIOS, *CUTS)
    with proxy_process(ROUTES.format(url=model.url, key=KEY), directory) as proxy:
        environ: Mapping[str, str] = {**os.environ, **client.environ_outside(proxy)}
        finished = subprocess.run(
            client.argv(*names), env=dict(environ), capture_output=True, text=True, timeout=40, check=False
        )
    return read(finished)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_sdk_in_a_sandbox_works_without_being_told_anything(inside: Outcomes, name: str) -> None:
    assert inside[name].get("value") == SCENARIOS[name], inside[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_sdk_works_through_the_proxy_by_the_documented_variables(outside: Outcomes, name: str) -> None:
    assert outside[name].get("value") == SCENARIOS[name], outside[name]


@pytest.mark.parametrize("name", CUTS)
def test_an_sdk_in_a_sandbox_raises_when_its_stream_is_cut(inside: Outcomes, name: str) -> None:
    assert "response truncated: upstream read error" in inside[name]["error"]["text"]


@pytest.mark.parametrize("name", CUTS)
def test_an_sdk_raises_through_the_proxy_when_its_stream_is_cut(outside: Outcomes, name: str) -> None:
    assert "response truncated: upstream read error" in outside[name]["error"]["text"]


def test_an_sdks_program_reaches_nothing_else(inside: Outcomes) -> None:
    assert "value" not in inside["elsewhere"]


def test_the_clients_placeholder_never_reaches_the_upstream(inside: Outcomes, model: ScriptedModel) -> None:
    assert inside
    assert {asked.fields["authorization"] for asked in model.requests} == {f"Bearer {KEY}"}
    assert not [asked for asked in model.requests if "unused" in str(asked.fields)]


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    with llama_server() as port:
        yield port


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_an_sdk_in_a_sandbox_streams_a_real_models_answer(client: Client, engine: int, tmp_path: Path) -> None:
    names = ("chat_stream", "responses_stream", "messages_helper", "models", "count_tokens")
    routes = ROUTES.format(url=f"http://127.0.0.1:{engine}/v1", key=KEY)
    outcomes = read(run_sandboxed(routes, tmp_path, client.argv(*names), client))
    assert [outcomes[name] for name in names if not outcomes[name].get("value")] == []
    assert outcomes["responses_stream"]["value"][1] == "response.completed"
