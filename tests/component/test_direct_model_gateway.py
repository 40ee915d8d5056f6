"""A direct model from its creation to its calls, at a real gateway: what the operator has opened decides each time."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.answering_upstream import AnsweringUpstream
from tests.support.client_commands import run_client
from tests.support.rest import asked_over_http
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

OPEN = "--direct-allowed-cidrs=127.0.0.1/32"


def created(gateway: ServingGateway, url: str) -> int:
    bearer = {"authorization": f"Bearer {gateway.token_file.read_text().strip()}"}
    body = {"name": "Mine", "model_identifier": "real-mine", "api_endpoint": url, "alias": "mine"}
    return asked_over_http(gateway.ports["control"], "POST", "/api/v1/ai-models", body, headers=bearer).status


def shown(gateway: ServingGateway, *words: str) -> Any:
    """What a command says in JSON."""
    return json.loads(gateway.run(*words, "-o", "json"))


def pointed(gateway: ServingGateway) -> Result:
    environ = {"POINTSMAN_DATA_DIR": str(gateway.directory)}
    return run_client(gateway.url, "inference", "set", "--route", "mine", environ=environ)


@pytest.mark.guarantee("M2")
def test_a_direct_model_is_served_by_alias_for_as_long_as_the_operator_lets_it(tmp_path: Path) -> None:
    with AnsweringUpstream() as upstream:
        with serving_gateway(tmp_path / "data", OPEN) as gateway:
            assert created(gateway, upstream.url) == 201
            wait_until(lambda: gateway.models("") == ["mine"])
            answer = gateway.call("mine")
            assert (answer.status, answer.value(b"x-pointsman-model")) == (200, b"real-mine")
            assert json.loads(upstream.bodies.pop()) == {"model": "real-mine"}
            assert pointed(gateway).exit_code == 0
            assert json.loads(upstream.bodies.pop())["model"] == "real-mine"  # it was verified
        served = upstream.answered.total()
        with serving_gateway(tmp_path / "data") as gateway:
            assert gateway.call("mine").status == 503
            gateway.said("127.0.0.1 has no address that may be dialled")
            result = pointed(gateway)
            assert result.exit_code == 1
            assert "127.0.0.1 has no address that may be dialled" in result.output
            gateway.end()
            rows = [row[:5] for row in gateway.usage()]
        assert upstream.answered.total() == served
    assert rows == [("default", "mine", "direct:mine", "real-mine", 200), ("default", "mine", "", "", 503)]


def test_a_direct_model_is_explained_and_listed_as_what_the_gateway_calls_without_a_key(tmp_path: Path) -> None:
    with AnsweringUpstream() as upstream, serving_gateway(tmp_path, OPEN) as gateway:
        assert created(gateway, upstream.url) == 201
        wait_until(lambda: gateway.models("") == ["mine"])
        (route,) = shown(gateway, "route", "list")
        assert (route["kind"], route["provider_name"], route["problem"]) == ("model", "direct:mine", None)
        assert "120s" in gateway.run("route", "list")
        gateway.run("inference", "set", "--route", "mine", "--no-verify")
        for name in ("mine", "inference.local"):
            made = shown(gateway, "explain", name)
            (candidate,) = made["candidates"]
            assert (made["kind"], made["runs"], made["denial"]) == ("model", "gateway", None)
            assert (candidate["provider_name"], candidate["endpoint"]) == ("direct:mine", upstream.url[:-3])
            assert (candidate["key"]["state"], candidate["header_seconds"]) == ("not_needed", 120.0)
            assert candidate["rewrite"]["model_after"] == "real-mine"
        gateway.call("mine")
        assert json.loads(upstream.bodies.pop()) == {"model": "real-mine"}
