"""What names a runner's model, and what becomes of it when the model goes: nobody is led to another model unasked.

A real gateway process whose default route, where it has one, is a mock that answers anything.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from tests.component.test_runner_routes import LINES, explained, listed, refused
from tests.support.played_runner import PlayedRunner
from tests.support.serving_gateway import ServingGateway, serving_gateway

ABOUT = {"name": "llama", "model_identifier": "qwen:7b", "api_endpoint": "http://localhost:11434/v1"}


@contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple[ServingGateway, PlayedRunner, str]]:
    """A gateway, a runner, and the id of its model `llama`; a route `other` that a mock answers."""
    with serving_gateway(directory, *options) as gateway:
        gateway.provide("mocked", "mock://answers")
        gateway.run("route", "create", "other", "--provider", "mocked", "--model", "m", "--no-verify")
        runner = PlayedRunner(gateway)
        model_id = runner.model("llama")
        gateway.until_served("llama")
        yield gateway, runner, model_id


def bundle(gateway: ServingGateway, token: str) -> dict[str, str]:
    """What a sandbox may call: the model of each of its routes."""
    with grpc.insecure_channel(f"127.0.0.1:{gateway.ports['grpc']}") as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        metadata = (("authorization", f"Bearer {token}"),)
        answer = stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=metadata, timeout=20)
    assert all(each.provider_type == "pointsman" and not each.api_key for each in answer.routes)
    return {each.name: each.model_id for each in answer.routes}


def said(gateway: ServingGateway, model: str, key: str = "") -> tuple[int, str]:
    """Status and code of an answer; of a success who answered."""
    answer = gateway.call(model, key)
    if answer.status == 200:
        return 200, (answer.value(b"x-pointsman-route") or b"").decode()
    error: dict[str, Any] = json.loads(answer.body)["error"]
    return answer.status, error["code"]


def test_a_sandbox_is_led_to_an_alias_by_its_token_or_by_inference_local(tmp_path: Path) -> None:
    with served(tmp_path) as (gateway, runner, _):
        gateway.run("inference", "set", "--route", "llama", "--no-verify")
        shared = gateway.run("sandbox", "token", "create", "shared")
        own = gateway.run("sandbox", "token", "create", "own", "--route", "llama")
        assert bundle(gateway, shared) == bundle(gateway, own) == {"inference.local": "llama"}
        made = explained(gateway, "--sandbox", "own", status=1)
        assert ([each["how"] for each in made["steps"]], made["kind"]) == (["sandbox_token"], "runner")
        while gateway.models(own) != ["llama"]:
            pass  # not in force yet
        with runner.dialled_in() as line, gateway.connect() as client:
            for token in (shared, own):
                gateway.send(client, {"model": "llama", "stream": True}, token)
                line.stream(*LINES)
                assert client.answer().status == 200
        gateway.end()
        assert [row[-1] for row in gateway.usage()] == ["sandbox:shared", "sandbox:own"]


@pytest.mark.guarantee("M4")
def test_a_model_that_is_renamed_or_deleted_leaves_those_that_name_it_nowhere(tmp_path: Path) -> None:
    with served(tmp_path, "--default-route=other") as (gateway, runner, model_id):
        gateway.run("inference", "set", "--route", "llama", "--no-verify")
        key = gateway.run("key", "create", "ci", "--route", "llama", "--route", "other")
        token = gateway.run("sandbox", "token", "create", "web", "--route", "llama")
        shared = gateway.run("sandbox", "token", "create", "shared")
        while gateway.models(shared) != ["llama"]:
            pass  # not in force yet
        assert said(gateway, "llama", key) == (503, "runner_offline")
        assert runner.rest("PUT", f"/ai-models/{model_id}", {**ABOUT, "alias": "renamed"}).status == 200
        assert "(still named by inference.local, key ci, sandbox token web)" in gateway.said("was llama")
        gateway.until_served("renamed")
        # Whoever names it expressly is not given the default route instead; a name of nobody's is.
        for sender in (key, token, shared):
            assert said(gateway, "llama", sender) == (404, "model_not_found")
        assert said(gateway, "renamed", key) == (403, "model_not_authorized")
        assert said(gateway, "anything", key) == (200, "other")
        assert bundle(gateway, token) == bundle(gateway, shared) == {}
        gateway.said("route llama of default: left out of bundles: it has been deleted, and a sandbox token names it")
        gateway.said("left out of bundles: inference.local leads to route 'llama', which does not exist")
        assert "which does not exist" in listed(gateway)["inference.local"]["problem"]
        assert explained(gateway, "inference.local", status=1)["denial"]["status"] == 503
        assert "which does not exist" in refused(gateway, "inference", "set", "--route", "llama", "--no-verify")
        assert runner.rest("DELETE", f"/ai-models/{model_id}").status == 200
        gateway.until_served("renamed", is_there=False)
        assert "still named" not in gateway.said("model renamed of default: deleted")


@pytest.mark.guarantee("M4")
def test_a_deleted_runners_model_is_history_that_nobody_else_answers_for(tmp_path: Path) -> None:
    with served(tmp_path, "--default-route=other") as (gateway, runner, _):
        token = gateway.run("sandbox", "token", "create", "web", "--route", "llama")
        # It is listed while its runner is away, and not when that is gone.
        assert gateway.models("") == ["other", "llama"]
        assert runner.rest("DELETE", f"/runners/{runner.id}").status == 200
        gateway.until_served("llama", is_there=False)
        assert gateway.models("") == ["other"]
        assert said(gateway, "llama") == (404, "model_not_found")
        assert said(gateway, "anything") == (200, "other")
        problem = "the runner of model llama was deleted; register the model at another"
        route = listed(gateway)["llama"]
        assert (route["kind"], route["provider_name"], route["problem"]) == ("runner", "", problem)
        assert problem in explained(gateway, "llama", status=1)["denial"]["detail"]
        assert problem in refused(gateway, "inference", "set", "--route", "llama", "--no-verify")
        denial = explained(gateway, "--sandbox", "web", status=1)["denial"]
        assert (denial["status"], denial["detail"]) == (503, problem)
        assert bundle(gateway, token) == {}
        gateway.said(f"route llama of default: left out of bundles: {problem}")


@pytest.mark.guarantee("M4")
def test_a_default_route_may_be_an_alias_and_falls_back_on_nothing(tmp_path: Path) -> None:
    with served(tmp_path, "--default-route=llama") as (gateway, runner, _):
        assert said(gateway, "anything") == (503, "runner_offline")
        with runner.dialled_in() as line, gateway.connect() as client:
            made = explained(gateway, "anything")
            gateway.send(client, {"model": "anything", "stream": True})
            assert line.stream(*LINES)["body"]["model"] == "qwen:7b"
            answer = client.answer()
        assert (answer.value(b"x-pointsman-route"), answer.value(b"x-pointsman-model")) == (b"llama", b"qwen:7b")
        assert ([each["how"] for each in made["steps"]], made["kind"]) == (["default_route"], "runner")


def test_a_keys_models_are_the_aliases_it_names(tmp_path: Path) -> None:
    with served(tmp_path) as (gateway, runner, _):
        runner.model("mistral", "mistral:7b")
        key = gateway.run("key", "create", "ci", "--route", "llama")
        while gateway.models(key) != ["llama"]:
            pass  # not in force yet
        assert said(gateway, "llama", key) == (503, "runner_offline")
        assert said(gateway, "mistral", key) == (403, "model_not_authorized")
        assert "there is no route 'nowhere'" in refused(gateway, "key", "create", "x", "--route", "nowhere")


@pytest.mark.guarantee("M3")
def test_a_file_that_defines_a_route_with_a_models_alias_is_not_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    text = "providers: [{name: up, type: mock, model: m}]\nroutes: [{name: %s, candidates: [up]}]\n"
    file.write_text(text % "fast")
    with served(tmp_path / "data", f"--config={file}") as (gateway, runner, _):
        before = len(gateway.lines)
        file.write_text(text % "llama")
        gateway.said("what was in force stays", before)
        gateway.said("route llama of the configuration file has the name of a registered model; rename it", before)
        assert said(gateway, "fast") == (200, "fast")
        assert said(gateway, "llama") == (503, "runner_offline")
        about = {**ABOUT, "alias": "fast", "model_identifier": "x"}
        assert "there is a route fast" in runner.rest("POST", f"/runners/{runner.id}/models", about).error
