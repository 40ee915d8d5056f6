"""Usage at a real gateway process: what a request used and cost is told by command, refusals included."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.played_runner import PlayedRunner
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

USAGE = (
    'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,'
    '"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}}'
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data") as gateway:
        yield gateway


def told(gateway: ServingGateway, by: str) -> list[dict[str, Any]]:
    sums: list[dict[str, Any]] = json.loads(gateway.run("usage", "--by", by, "-o", "json"))
    return sums


def test_a_runners_answer_is_told_with_its_tokens_at_its_price(gateway: ServingGateway) -> None:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    gateway.until_served("llama")
    name = f"runner:{runner.name}"
    gateway.run("price", "set", name, "--input-price", "1000", "--output-price", "3000", "--cached-price", "500")
    assert gateway.call("llama").status == 503  # its runner is not there; meanwhile, the price comes into force
    wait_until(lambda: bool(told(gateway, "route")))
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {"model": "llama", "stream": True})
        line.stream("data: {}", USAGE, "data: [DONE]")
        assert client.answer().status == 200
    wait_until(lambda: told(gateway, "route")[0]["requests"] == 2)
    [route] = told(gateway, "route")
    assert (route["route"], route["failed"], route["estimated"], route["unpriced"]) == ("llama", 1, 0, 0)
    counts = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
    assert [route[count] for count in counts] == [3, 4, 7, 2, 1]
    assert route["cost"] == "0.014"
    assert [(each["provider"], each["cost"]) for each in told(gateway, "provider")] == [(name, "0.014"), ("", "0.00")]
    gateway.end()
    gateway.start()
    assert told(gateway, "route") == [route]
