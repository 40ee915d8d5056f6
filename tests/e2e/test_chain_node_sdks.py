"""The official Node SDKs on a chain of a real gateway, whose first provider fails: one process runs all scenarios."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.chained_gateway import ChainedGateway, chained_gateway
from tests.support.clients import CLIENTS, PROGRAMS
from tests.support.dialects import Cut, Reply, Say, ToolCall
from tests.support.processes import run_to_end
from tests.support.scripted_model import Asked, Failure

BROKEN = Failure(500, {"error": {"message": "out of order"}})
REFUSED = Failure(400, {"error": {"message": "it was bad", "type": "x", "param": None, "code": "bad_parameter"}})
[NODE] = [client for client in CLIENTS if client.name == "node24"]
TOLD = {
    "chat": "second says so",
    "stream": "second says so",
    "tool": "weather",
    "models": ["fast", "mixed", "safe"],
    "message": "claude says so",
}
RAISED = {
    "cut": ("APIError", None, None, "response truncated: upstream read error"),
    "refused": ("BadRequestError", 400, "bad_parameter", "400 it was bad"),
    "nobody": ("InternalServerError", 503, "no_provider_available", "503 no provider of this model can answer"),
    "unknown": ("NotFoundError", 404, "model_not_found", "did you mean 'fast'?"),
    "dialect": ("BadRequestError", 400, None, "this model does not speak anthropic_messages"),
}


def second(asked: Asked) -> Reply | Failure:
    asked_for = json.dumps(asked.conversation)
    if "Be broken." in asked_for:
        return BROKEN
    if "Be refused." in asked_for:
        return REFUSED
    if "Be cut off." in asked_for:
        return Cut("says")
    return ToolCall("weather") if "Use a tool." in asked_for else Say("second says so")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChainedGateway]:
    with chained_gateway(tmp_path_factory.mktemp("chained")) as running:
        running.plays = {"first": BROKEN, "second": second}
        yield running


@pytest.fixture(scope="module")
def outcomes(gateway: ChainedGateway) -> dict[str, Any]:
    argv = [NODE.program[0], str(PROGRAMS / "chain_scenarios.cjs"), gateway.url]
    done = run_to_end(argv, environ={**os.environ, **NODE.environ}, seconds=60)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("name", TOLD)
def test_a_node_sdk_is_answered_through_a_chain_whose_first_provider_fails(outcomes: dict[str, Any], name: str) -> None:
    assert outcomes[name] == TOLD[name]


@pytest.mark.parametrize("name", RAISED)
def test_a_node_sdk_raises_what_its_users_expect(outcomes: dict[str, Any], name: str) -> None:
    kind, status, code, text = RAISED[name]
    raised = outcomes[name]
    assert (raised["type"], raised.get("status"), raised.get("code")) == (kind, status, code), raised
    assert text in raised["text"]
