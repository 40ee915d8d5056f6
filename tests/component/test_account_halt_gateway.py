"""A real gateway whose operator halts an account, and keys that are bound to networks."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.data_key import PERMISSIONS
from tests.support.client_commands import run_client
from tests.support.played_runner import PlayedRunner
from tests.support.rest import asked_over_http
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until

IN_FORCE_SECONDS = 5.0
"""The gateway looks four times a second; the rest is for a machine with other things to do."""


@pytest.fixture
def gateway(tmp_path: Path, upstream: Upstream) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data", "--data-auth=keys") as gateway:
        gateway.provide("work", upstream.url)
        gateway.run("route", "create", "fast", "--candidate", "work=real", "--no-verify")
        yield gateway


@pytest.mark.guarantee("L5")
def test_halting_ends_what_runs_refuses_what_comes_and_resuming_serves_again(
    gateway: ServingGateway, upstream: Upstream
) -> None:
    key = gateway.run("key", "create", "laptop")
    wait_until(lambda: gateway.call("nobody", key).status == 404)
    with gateway.connect() as client:
        gateway.send(client, {"model": "fast", "stream": True}, key)
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        client.read_until(b"data: 1\n\n\r\n")
        assert "Halted account default" in gateway.run("account", "halt", "default")
        began = time.monotonic()
        assert b"account_halted" in client.read_until(b"0\r\n\r\n")
        assert time.monotonic() - began < IN_FORCE_SECONDS
        assert peer.wait_closed()
    answer = gateway.call("fast", key)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "account_halted")
    [listed] = json.loads(gateway.run("account", "list", "-o", "json"))
    assert (listed["name"], listed["state"], listed["halted_at"] is None) == ("default", "halted", False)
    since = listed["halted_at"]
    assert json.loads(gateway.run("account", "halt", "default", "-o", "json"))["halted_at"] == since
    assert gateway.run("account", "resume", "default") == "Resumed account default"
    wait_until(lambda: gateway.call("nobody", key).status == 404)
    assert gateway.models(key) == ["fast"]


@pytest.mark.guarantee("L5")
def test_a_halt_ends_a_runners_stream_too_and_closes_every_door_of_the_account(gateway: ServingGateway) -> None:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    every = [word for each in PERMISSIONS for word in ("--permission", each)]
    keys = gateway.run("key", "create", "laptop"), gateway.run("key", "create", "all", *every)
    wait_until(lambda: gateway.call("nobody", keys[1]).status == 404 and "llama" in gateway.models(keys[0]))
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {"model": "llama", "stream": True}, keys[0])
        start = line.receive()
        line.answer(start, "data: {}")
        client.read_until(b"data: {}")
        assert line.receive()["operation"] == "next"
        gateway.run("account", "halt", "default")
        assert b"account_halted" in client.read_until(b"0\r\n\r\n")
        assert (line.receive()["operation"], start["operation"]) == ("cancel", "start")
        for key in keys:
            for model in ("llama", "fast", "nobody"):
                for path in ("chat/completions", "responses", "messages", "embeddings", "messages/count_tokens"):
                    assert gateway.call(model, key, f"/v1/{path}").status == 403
            bearer = {"authorization": f"Bearer {key}"}
            for path in ("runners", "ai-models", f"runners/{runner.id}", "usage", "budgets", "audit"):
                answer = asked_over_http(gateway.ports["control"], "GET", f"/api/v1/{path}", None, bearer)
                assert (answer.status, "account_halted" in answer.body.decode()) == (403, True), path
    gateway.run("account", "resume", "default")
    actions = [json.loads(each)["action"] for each in gateway.run("audit", "export").splitlines() if each[:1] == "{"]
    assert actions[-2:] == ["account.halt", "account.resume"]


def test_an_account_that_is_not_there_cannot_be_halted(gateway: ServingGateway) -> None:
    for command in ("halt", "resume"):
        result = run_client(
            gateway.url, "account", command, "nobody", environ={"POINTSMAN_DATA_DIR": str(gateway.directory)}
        )
        assert result.exit_code == 1
        assert "pointsman account list" in result.output


@pytest.mark.guarantee("L6")
def test_a_key_is_let_in_from_its_networks_alone_whatever_a_header_says(gateway: ServingGateway) -> None:
    here = gateway.run("key", "create", "here", "--from", "127.0.0.0/8", "--from", "2001:db8::/32", "--user", "ada")
    there = gateway.run("key", "create", "there", "--from", "10.0.0.0/8")
    wait_until(lambda: gateway.call("nobody", there).status == 403)
    assert gateway.call("nobody", here).status == 404
    for field in ("X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "X-Real-IP: 10.0.0.1"):
        with gateway.connect() as client:
            head = f"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {there}\r\n{field}\r\n\r\n"
            client.send(head.encode())
            answer = client.answer()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "source_not_allowed")
    listed = {each["name"]: each for each in json.loads(gateway.run("key", "list", "-o", "json"))}
    assert listed["here"]["networks"] == ["127.0.0.0/8", "2001:db8::/32"]
    assert (listed["here"]["user"], listed["there"]["user"]) == ("ada", None)
