"""A real gateway whose providers and chains are partly in its configuration file, partly stored: every command, bundle
and request sees both."""

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from pointsman.rpc.gen import inference_pb2, inference_pb2_grpc
from tests.support.answering_upstream import AnsweringUpstream
from tests.support.operated_gateway import OperatedGateway, operated_gateway
from tests.support.processes import following_process
from tests.support.raw_client import RawClient, post

FIRST, SECOND = "sk-first-of-the-file-0123456789", "sk-second-of-the-file-0123456789"
STORED = "sk-stored-0123456789"
DEFINED = "is defined in the gateway's configuration file; change it there, or choose another name"
FILE = """
default_route: pool
secrets_dir: {directory}
providers:
  - {{name: filed, type: openai_compatible, base_url: "{url}", model: own}}
  - {{name: canned, type: mock, model: m}}
routes:
  - {{name: pool, candidates: [filed], fallback: canned}}
  - {{name: quiet, candidates: [canned], fallback: filed}}
"""


@dataclass
class Running:
    gateway: OperatedGateway
    upstream: AnsweringUpstream
    key: Path

    def does(self, command: str, *more: str) -> str:
        result = self.gateway.run(*command.split(), *more)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, command: str) -> str:
        result = self.gateway.run(*command.split())
        assert result.exit_code == 1, result.output
        return result.stderr

    def token(self, name: str, *route: str) -> str:
        return self.does(f"sandbox token create {name}", *route).strip()

    def bundle(self, token: str) -> dict[str, inference_pb2.ResolvedRoute]:
        with grpc.insecure_channel(self.gateway.url.removeprefix("http://")) as channel:
            stub = inference_pb2_grpc.InferenceStub(channel)
            metadata = (("authorization", f"Bearer {token}"),)
            answer = stub.GetInferenceBundle(inference_pb2.GetInferenceBundleRequest(), metadata=metadata, timeout=20)
        return {route.name: route for route in answer.routes}

    def ask(self, model: str, token: str = "any") -> tuple[int, str | None, bytes]:
        """Status, the route that it took, and the body."""
        connection = http.client.HTTPConnection(self.gateway.data, timeout=20)
        try:
            body = json.dumps({"model": model})
            fields = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            connection.request("POST", "/v1/chat/completions", body, fields)
            answer = connection.getresponse()
            return answer.status, answer.getheader("x-pointsman-route"), answer.read()
        finally:
            connection.close()

    def wait_for(self, model: str, token: str = "any") -> None:
        """Until the data listener knows a route that was just made: every other name leads to the default."""
        deadline = time.monotonic() + 20
        while self.ask(model, token)[1] != model:
            assert time.monotonic() < deadline

    def wait_until_told(self, text: str) -> None:
        deadline = time.monotonic() + 20
        while text not in "".join(self.gateway.lines):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def rotate(self, key: str) -> None:
        new = self.key.with_name("new")
        new.write_text(key)
        new.replace(self.key)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("layered")
    key = directory / "filed_api_key"
    key.write_text(FIRST)
    with AnsweringUpstream() as upstream:
        config = directory / "pointsman.yaml"
        config.write_text(FILE.format(directory=directory, url=upstream.url))
        with operated_gateway(directory / "data", "--config", str(config)) as gateway:
            running = Running(gateway, upstream, key)
            for name in ("a-stored", "z-stored"):
                running.does(
                    f"provider create --name {name} --type openai --credential OPENAI_API_KEY={STORED} "
                    f"--config OPENAI_BASE_URL={upstream.url} --config MODEL=own"
                )
            yield running
        told = "".join(gateway.lines)
        assert not [key for key in (FIRST, SECOND, STORED) if key in told]
        assert "internal error" not in told


@pytest.mark.guarantee("G9")
def test_listings_show_both_and_one_record_shows_no_key(running: Running) -> None:
    names = [each["name"] for each in json.loads(running.does("provider list --output json"))]
    assert names == ["a-stored", "canned", "filed", "z-stored"]
    assert [each["name"] for each in json.loads(running.does("provider list --limit 2 --offset 1 --output json"))] == (
        names[1:3]
    )
    assert str(running.key) in running.does("provider get filed")
    assert {"pool", "quiet"} <= {each["name"] for each in json.loads(running.does("route list --output json"))}
    assert json.loads(running.does("route get pool --output json"))["fallback"] == "canned"
    status = running.does("status")
    assert "4 providers" in status.lower() or "providers: 4" in status.lower(), status


def test_every_view_of_a_record_says_whether_the_file_or_the_store_has_it(running: Running) -> None:
    in_file = {"a-stored": False, "canned": True, "filed": True, "z-stored": False}
    for listing in ("provider list --output json", "route list --output json"):
        listed = {each["name"]: each["from_file"] for each in json.loads(running.does(listing))}
        expected = in_file if listing.startswith("provider") else {"pool": True, "quiet": True}
        assert {name: listed[name] for name in expected} == expected
    sources = {line.split()[0]: line.split()[4] for line in running.does("provider list").splitlines()}
    assert sources == {"NAME": "SOURCE", **{name: "file" if filed else "store" for name, filed in in_file.items()}}
    assert "  file  " in next(line for line in running.does("route list").splitlines() if line.startswith("pool "))
    for one, filed in (("provider get filed", True), ("route get pool", True), ("provider get a-stored", False)):
        assert ("Source: the gateway's configuration file" in running.does(one)) is filed
    token = (running.gateway.data_directory / "admin.token").read_text().strip()
    for path, what in (("/providers/filed", True), ("/providers/a-stored", False), ("/routes/pool", True)):
        connection = http.client.HTTPConnection("127.0.0.1", running.gateway.ports["control"], timeout=20)
        connection.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
        assert json.loads(connection.getresponse().read())["from_file"] is what
        connection.close()


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("provider create --name filed --type openai --credential A=b", "provider filed"),
        ("provider update filed --config NOTE=1", "provider filed"),
        ("provider delete filed", "provider filed"),
        ("provider delete filed --force", "provider filed"),
        ("route create pool --candidate a-stored", "route pool"),
        ("route create pool --provider a-stored --model m --no-verify", "route pool"),
        ("route update pool --candidate a-stored", "route pool"),
        ("route delete pool", "route pool"),
    ],
)
def test_what_the_file_defines_no_command_changes_and_nobody_is_asked(
    command: str, what: str, running: Running
) -> None:
    asked = len(running.upstream.keys)
    assert f"{what} {DEFINED}" in running.fails(command)
    assert len(running.upstream.keys) == asked


def test_a_stored_chain_may_mix_providers_of_both(running: Running) -> None:
    running.does("route create mixed --candidate filed=big --candidate a-stored --fallback canned")
    assert running.upstream.keys[-2:] in ([FIRST.encode(), STORED.encode()], [STORED.encode(), FIRST.encode()])
    running.wait_for("mixed")
    assert json.loads(running.upstream.bodies[-1])["model"] == "big"
    assert running.upstream.keys[-1] == FIRST.encode()
    running.does("route delete mixed")


def test_inference_local_leads_to_a_chain_of_the_file(running: Running) -> None:
    running.does("inference set --route pool")
    assert running.upstream.keys[-1] == FIRST.encode()  # its members were verified
    assert "pool" in running.does("inference get")
    route = running.bundle(running.token("shared"))["inference.local"]
    assert (route.provider_type, route.model_id, route.api_key) == ("pointsman", "pool", "")
    assert route.base_url == f"http://{running.gateway.data}/v1"
    running.does("inference delete")


def test_a_sandbox_and_a_key_may_have_a_chain_of_the_file_for_themselves(running: Running, tmp_path: Path) -> None:
    token = running.token("own", "--route", "pool")
    assert running.bundle(token)["inference.local"].model_id == "pool"
    assert running.does("key create narrow --route pool --route quiet")
    assert "there is no route 'nowhere'" in running.fails("key create wrong --route nowhere")
    assert "there is no route 'nowhere'" in running.fails("sandbox token create wrong --route nowhere")
    with following_process(running.gateway.url, token, tmp_path, environ=dict(os.environ)) as proxy:
        with RawClient(socket.create_connection(("127.0.0.1", proxy.port), 20)) as client:
            client.enter_tunnel(proxy.client_context())
            client.send(post())
            answer = client.answer()
        assert (answer.status, answer.value(b"x-pointsman-route")) == (200, b"pool")
    assert running.upstream.keys[-1] == FIRST.encode()
    assert json.loads(running.upstream.bodies[-1])["model"] == "own"


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    ("name", "point", "away"),
    [
        ("inference.local", "inference set --provider filed --model other", "inference delete"),
        ("straight", "route create straight --provider filed --model other", "route delete straight"),
    ],
)
def test_a_direct_route_to_a_key_in_a_file_goes_through_the_gateway_with_the_key_of_the_moment(
    name: str, point: str, away: str, running: Running
) -> None:
    asked = len(running.upstream.keys)
    running.does(point)
    assert running.upstream.keys[asked:] == [FIRST.encode()]
    token = running.token(f"of-{name}", *(("--route", name) if name == "straight" else ()))
    route = running.bundle(token)["inference.local"]
    assert (route.provider_type, route.model_id, route.api_key) == ("pointsman", name, "")
    running.wait_for(name, token)
    try:
        for key in (SECOND, FIRST):
            running.rotate(key)
            assert running.ask(name, token)[:2] == (200, name)
            assert running.upstream.keys[-1] == key.encode()
            assert json.loads(running.upstream.bodies[-1])["model"] == "other"
        running.key.write_text("")
        asked = len(running.upstream.keys)
        status, _, body = running.ask(name, token)
        assert (status, b"inference service unavailable" in body) == (503, True)
        assert len(running.upstream.keys) == asked
        running.wait_until_told(f"the key of provider filed: {running.key}: is empty; write the key into it")
        text = running.fails("route create elsewhere --provider filed --model other")
        assert f"its key file {running.key}: is empty; write the key into it" in text
        assert "--no-verify" in text
    finally:
        running.rotate(FIRST)
    others = running.ask(name)
    assert others[0] == (403 if name == "inference.local" else 200)  # which is for sandboxes alone
    explained = json.loads(running.does(f"explain --sandbox of-{name} --output json"))
    assert (explained["runs"], explained["route"], explained["candidates"][0]["key"]["state"]) == (
        "gateway",
        name,
        "readable",
    )
    running.does(away)


def test_the_data_listener_names_the_file_s_routes_and_serves_the_default(running: Running) -> None:
    asked = len(running.upstream.keys)
    assert [running.ask(model)[:2] for model in ("pool", "quiet", "whatever")] == [
        (200, "pool"),
        (200, "quiet"),
        (200, "pool"),
    ]
    assert running.upstream.keys[asked:] == [FIRST.encode()] * 2
