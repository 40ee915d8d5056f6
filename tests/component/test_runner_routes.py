"""A runner's model as its gateway's operator sees it: a route like any other, by commands, REST and gRPC alike.

A real gateway process; the runner is played by frames.
"""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from click.testing import Result

from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from tests.support.client_commands import run_client
from tests.support.played_runner import PlayedRunner
from tests.support.serving_gateway import ServingGateway, serving_gateway

LINES = ('data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}', "data: [DONE]")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def runner(gateway: ServingGateway) -> PlayedRunner:
    """Its model `llama` is in force; it has not dialled in."""
    runner = PlayedRunner(gateway)
    runner.model("llama")
    gateway.until_served("llama")
    return runner


def command(gateway: ServingGateway, *words: str) -> Result:
    return run_client(gateway.url, *words, environ={"POINTSMAN_DATA_DIR": str(gateway.directory)})


def refused(gateway: ServingGateway, *words: str) -> str:
    done = command(gateway, *words)
    assert done.exit_code == 1, done.output
    return done.stderr


def explained(gateway: ServingGateway, *words: str, status: int = 0) -> dict[str, Any]:
    done = command(gateway, "explain", *words, "-o", "json")
    assert done.exit_code == status, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["tried"] is (status == 0)
    return document


def listed(gateway: ServingGateway) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(gateway.run("route", "list", "-o", "json"))}


def cluster_inference(gateway: ServingGateway) -> inference_pb2.GetClusterInferenceResponse:
    """As OpenShell's client asks for it."""
    with grpc.insecure_channel(f"127.0.0.1:{gateway.ports['grpc']}") as channel:
        metadata = (("authorization", f"Bearer {gateway.token_file.read_text().strip()}"),)
        request = inference_pb2.GetClusterInferenceRequest()
        stub = inference_pb2_grpc.InferenceStub(channel)
        answer: inference_pb2.GetClusterInferenceResponse = stub.GetClusterInference(
            request, metadata=metadata, timeout=20
        )
        return answer


@pytest.mark.guarantee("M3")
def test_explain_says_that_a_runners_model_is_asked_once_and_what_it_is_sent(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    with runner.dialled_in() as line:
        made = explained(gateway, "llama", "--header", "X-Secret", "--path", "/v1/chat/completions?x=1")
        told = gateway.run("explain", "llama")
        with gateway.connect() as client:
            gateway.send(client, {"model": "llama"}, path="/v1/chat/completions?x=1")
            request = line.receive()
            line.answer(request, "{}", done=True)
            assert client.answer().value(b"x-pointsman-attempts") == b"1"
    assert (made["kind"], made["route"], made["runs"], made["denial"]) == ("runner", "llama", "gateway", None)
    assert (made["chunk_idle_seconds"], made["total_seconds"]) == (60.0, 600.0)
    (candidate,) = made["candidates"]
    assert candidate["provider_name"] == "runner:laptop"
    assert candidate["runner"] == {"id": runner.id, "name": "laptop", "connected": True}
    assert (candidate["place"], candidate["header_seconds"]) == (1, 60.0)
    rewrite = candidate["rewrite"]
    assert rewrite["model_after"] == request["body"]["model"]
    assert f"{candidate['endpoint']}{rewrite['path']}" == f"{request['base_url']}/chat/completions"
    assert rewrite["headers_kept"] == rewrite["headers_set"] == []
    assert rewrite["headers_dropped"] == ["x-secret"]
    assert "asked through runner laptop, which is connected, once: no other attempt" in told
    assert "Headers for runner:laptop: none is passed on" in told
    assert "600 s in all" in told


def test_explain_gives_what_a_client_gets_while_the_runner_is_away(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    denial = explained(gateway, "llama", status=1)["denial"]
    answer = gateway.call("llama")
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["message"]) == (denial["status"], denial["code"], denial["text"])
    assert (denial["status"], denial["code"]) == (503, "runner_offline")
    (candidate,) = explained(gateway, "llama", status=1)["candidates"]
    assert (candidate["place"], candidate["skip"]["reason"]) == (0, "runner_offline")
    assert candidate["runner"]["connected"] is False


@pytest.mark.parametrize(
    ("body", "path", "status", "code"),
    [
        (b'{"model":"llama"}', "/v1/messages", 400, ""),
        (b'{"model":"llama"}', "/v1/responses", 400, ""),
        (b'{"model":"llama","stream":1}', "/v1/chat/completions", 400, ""),
        (b'{"model":"llama","a":"%b"}' % (b"x" * 1024 * 1024), "/v1/chat/completions", 413, "runner_request_too_large"),
    ],
    ids=["messages", "responses", "stream", "size"],
)
def test_explain_refuses_what_a_runners_model_is_not_sent_as_the_listener_does(
    gateway: ServingGateway, runner: PlayedRunner, body: bytes, path: str, status: int, code: str
) -> None:
    with runner.dialled_in(), gateway.connect() as client:
        client.send(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)))
        client.send(body)
        assert client.answer().status == status
        given = run_client(
            gateway.url,
            "explain",
            *("--body", "-", "--path", path, "-o", "json"),
            environ={"POINTSMAN_DATA_DIR": str(gateway.directory)},
            stdin=body.decode(),
        )
    denial = json.loads(given.stdout)["denial"]
    assert (denial["status"], denial["code"]) == (status, code)


@pytest.mark.guarantee("M3")
def test_inference_local_leads_to_an_alias_and_is_explained_as_the_gateways_to_run(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    problem = "runner laptop is not connected; start it on its machine: pointsman runner start"
    assert f"{problem}, or store the route unverified with --no-verify" in refused(
        gateway, "inference", "set", "--route", "llama"
    )
    assert "inference.local" not in listed(gateway)
    assert "Validated" not in gateway.run("inference", "set", "--route", "llama", "--no-verify")
    assert (listed(gateway)["inference.local"]["problem"], listed(gateway)["llama"]["problem"]) == (problem, problem)
    with runner.dialled_in():
        assert "- runner:laptop (connected)" in gateway.run("inference", "set", "--route", "llama")
        made = explained(gateway, "inference.local")
        assert listed(gateway)["inference.local"]["problem"] is None
        found = cluster_inference(gateway)
    assert (found.provider_name, found.model_id, found.version) == ("runner:llama", "qwen:7b", 2)
    assert [(each["how"], each["to"]) for each in made["steps"]] == [("alias", "llama")]
    assert (made["kind"], made["runs"], made["route"]) == ("runner", "gateway", "llama")
    denial = explained(gateway, "inference.local", status=1)["denial"]
    assert (denial["status"], denial["code"]) == (503, "runner_offline")
    gateway.run("inference", "delete")


@pytest.mark.guarantee("M3")
def test_an_alias_is_listed_shown_and_kept_from_changes_as_a_model(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    (route,) = [each for each in runner.rest("GET", "/routes").json["routes"] if each["name"] == "llama"]
    assert (route["kind"], route["provider_name"], route["model"]) == ("runner", "runner:laptop", "qwen:7b")
    assert (route["version"], "is not connected" in route["problem"]) == (0, True)
    assert runner.rest("GET", "/routes/llama").json == route
    assert {"kind": "runner", "provider_name": "runner:laptop"}.items() <= listed(gateway)["llama"].items()
    assert "60s, 600s in all" in gateway.run("route", "list")
    assert "runner:laptop" in gateway.run("status")
    (model,) = runner.rest("GET", "/ai-models").json["ai_models"]
    place = f"/api/v1/ai-models/{model['id']}"
    assert f"change it: PUT {place}" in refused(gateway, "route", "update", "llama", "--model", "other")
    assert f"delete it: DELETE {place}" in refused(gateway, "route", "delete", "llama")
    assert place in runner.rest("DELETE", "/routes/llama").error
    assert place in runner.rest("PATCH", "/routes/llama", {"model": "other"}).error


@pytest.mark.guarantee("M3")
def test_a_name_is_a_routes_or_a_models_whichever_came_first(gateway: ServingGateway, runner: PlayedRunner) -> None:
    gateway.provide("mocked", "mock://answers")
    target = ("--provider", "mocked", "--model", "m")
    assert "is the alias of a registered model" in refused(gateway, "route", "create", "llama", *target)
    assert "is the alias" in runner.rest("PUT", "/routes/llama", {"provider_name": "mocked", "model": "m"}).error
    gateway.run("route", "create", "taken", *target)
    about = {"name": "x", "model_identifier": "x", "api_endpoint": "http://localhost:1234/v1", "alias": "taken"}
    made = runner.rest("POST", f"/runners/{runner.id}/models", about)
    assert (made.status, "there is a route taken" in made.error) == (409, True)
    (model,) = runner.rest("GET", "/ai-models").json["ai_models"]
    changed = {**about, "model_identifier": "qwen:7b", "api_endpoint": model["api_endpoint"]}
    assert runner.rest("PUT", f"/ai-models/{model['id']}", changed).status == 409
