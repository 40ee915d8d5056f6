"""Budgets at a real gateway process: runners' models like any other, and the restart that forgets nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.played_runner import PlayedRunner
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}'
DONE = "data: [DONE]"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data") as gateway:
        yield gateway


def used(gateway: ServingGateway, name: str) -> tuple[str, str]:
    """Used and left, of the one who is counted."""
    [state] = json.loads(gateway.run("budget", "status", name, "-o", "json"))
    return state["used"], state["left"]


def until_used(gateway: ServingGateway, tokens: str) -> None:
    """Answers that end together are written together: wait for each."""
    wait_until(lambda: used(gateway, "watch")[0] == tokens)


def refused(gateway: ServingGateway) -> dict[str, Any]:
    """The error of a model that is asked again and again until a budget is in force."""
    found: dict[str, Any] = {}

    def look() -> bool:
        answer = gateway.call("llama")
        found.update(json.loads(answer.body)["error"])
        return answer.status == 429

    wait_until(look)
    return found


def until_in_force(gateway: ServingGateway) -> None:
    """All budgets so far: an account's are read together, and the last of them refuses everything for a while."""
    gateway.run("budget", "create", "last", "--account-wide", "--tokens", "1", "--window", "total")
    refused(gateway)
    gateway.run("budget", "delete", "last")
    wait_until(lambda: gateway.call("llama").status == 503)  # its runner is not there: nothing is answered


def test_a_runners_model_is_counted_and_refused_as_any_other(gateway: ServingGateway) -> None:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    gateway.until_served("llama")
    gateway.run("budget", "create", "tries", "--route", "llama", "--requests", "1", "--window", "total")
    gateway.run("budget", "create", "words", "--route", "*", "--tokens", "5000", "--window", "total")
    until_in_force(gateway)
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {"model": "llama", "stream": True})
        line.stream("data: {}", USAGE, DONE)
        assert client.answer().status == 200
    assert refused(gateway)["code"] == "insufficient_quota"
    assert (used(gateway, "tries"), used(gateway, "words")) == (("1", "0"), ("7", "4993"))
    gateway.end()
    gateway.start()
    assert (used(gateway, "tries"), used(gateway, "words")) == (("1", "0"), ("7", "4993"))
    gateway.run("budget", "delete", "tries")
    wait_until(lambda: gateway.call("llama").status == 503)


@pytest.mark.guarantee("B4")
def test_a_soft_budget_is_said_once_when_it_is_used_up(gateway: ServingGateway) -> None:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    gateway.until_served("llama")
    gateway.run("budget", "create", "watch", "--account-wide", "--tokens", "10", "--window", "total", "--soft")
    until_in_force(gateway)
    for number in range(1, 5):
        with runner.dialled_in() as line, gateway.connect() as client:
            gateway.send(client, {"model": "llama", "stream": True})
            line.stream("data: {}", USAGE, DONE)
            assert client.answer().status == 200
        until_used(gateway, str(7 * number))
    gateway.end()
    [told] = [line for line in gateway.lines if "used up" in line]
    assert told == "pointsman: budget watch: used up: 14 tokens of 10 tokens; it is soft: requests go on\n"
