"""A runner's model passes through every stage of the data listener as any other: a real gateway, a played runner.

Budgets of requests and tokens are `test_budget_gateway`'s, prices and usage `test_usage_gateway`'s, a receipt of a
stream `test_receipt_gateway`'s.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.core.protocols import InferenceProtocol as P
from tests.support.played_runner import PlayedLine, PlayedRunner
from tests.support.raw_client import Answer
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until
from tests.unit.routing.conversations import body_of, called, said

USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}'
DONE = "data: [DONE]"
WITH_SHELL = {"model": "llama", "messages": [], "tools": [{"type": "function", "function": {"name": "shell_run"}}]}
PRICE = ("--input-price", "1000000", "--output-price", "1000000")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data", "--receipts=all", "--data-auth=keys") as gateway:
        yield gateway


@pytest.fixture
def runner(gateway: ServingGateway) -> PlayedRunner:
    runner = PlayedRunner(gateway)
    runner.model("llama")
    runner.model("other", "other:7b")
    return runner


def make_key(gateway: ServingGateway, name: str = "laptop", *options: str) -> str:
    key = gateway.run("key", "create", name, *options)
    until_in_force(gateway, "llama", key)
    return key


def until_in_force(gateway: ServingGateway, name: str, key: str) -> None:
    wait_until(lambda: gateway.call("nobody", key).status in (403, 404))
    gateway.until_served(name, key)


def streamed(gateway: ServingGateway, line: PlayedLine, key: str, text: str = "hello") -> tuple[dict[str, Any], Answer]:
    """What went over the wire, and what the client got."""
    with gateway.connect() as client:
        gateway.send(client, asked(text), key)
        start = line.stream("data: {}", USAGE, DONE)
        return start, client.answer()


def asked(text: str) -> dict[str, Any]:
    return {"model": "llama", "stream": True, "messages": [{"role": "user", "content": text}]}


def code_of(answer: Answer) -> str:
    code: str = json.loads(answer.body)["error"]["code"]
    return code


def refused(gateway: ServingGateway, body: dict[str, Any], key: str) -> Answer:
    with gateway.connect() as client:
        gateway.send(client, body, key)
        return client.answer()


def enforce(gateway: ServingGateway, runner: PlayedRunner, key: str, rule: dict[str, Any]) -> None:
    """A rule, and one that no shell is offered; until they are in force. The runner must be away meanwhile."""
    rules = [{"id": "no-shell", "effect": "block", "denied_tools": ["shell*"]}, rule]
    version = runner.rest("POST", "/policies", {"rules": rules}).json["version"]
    assert runner.rest("PATCH", f"/policies/{version}", {"state": "enforced"}).status == 200
    wait_until(lambda: refused(gateway, WITH_SHELL, key).status == 403)


@pytest.mark.guarantee("M5")
def test_a_key_that_names_other_models_is_refused_before_the_runner_hears_of_it(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    key = make_key(gateway)
    narrow = gateway.run("key", "create", "narrow", "--route", "other")
    until_in_force(gateway, "other", narrow)
    with runner.dialled_in() as line:
        answer = refused(gateway, asked("hello"), narrow)
        assert (answer.status, code_of(answer)) == (403, "model_not_authorized")
        start, answer = streamed(gateway, line, key)  # the first that the runner hears of
        assert (start["body"]["model"], answer.status) == ("qwen:7b", 200)


@pytest.mark.guarantee("M5")
def test_halting_the_account_ends_a_runners_stream_and_cancels_it_there(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    key = make_key(gateway)
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, asked("hello"), key)
        line.answer(line.receive(), 'data: {"a":1}')
        client.read_until(b'data: {"a":1}')
        assert line.receive()["operation"] == "next"
        gateway.run("account", "halt", "default")
        assert b"account_halted" in client.read_until(b"0\r\n\r\n")
        assert line.receive()["operation"] == "cancel"
        answer = refused(gateway, asked("hello"), key)
        assert (answer.status, code_of(answer)) == (403, "account_halted")


@pytest.mark.guarantee("M5")
def test_a_policy_blocks_what_is_for_a_runner_and_the_runner_gets_what_is_redacted(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    key = make_key(gateway)
    enforce(gateway, runner, key, {"id": "number", "effect": "redact", "pattern": "[0-9]{6}"})
    with runner.dialled_in() as line:
        assert code_of(refused(gateway, WITH_SHELL, key)) == "policy_blocked"
        start, answer = streamed(gateway, line, key, "call 123456 now")
    [message] = start["body"]["messages"]
    assert "123456" not in message["content"]
    assert message["content"].startswith("call ")
    request_id = (answer.value(b"x-pointsman-request-id") or b"").decode()
    wait_until(lambda: runner.rest("GET", f"/receipts/{request_id}").status == 200)
    made = runner.rest("GET", f"/receipts/{request_id}").json
    sent = json.dumps(asked("call 123456 now")).encode()
    assert made["received"] == sha256(sent).hexdigest()
    over_the_wire = sent.replace(b'"llama"', b'"qwen:7b"').replace(b"call 123456 now", message["content"].encode())
    assert made["sent"] == sha256(over_the_wire).hexdigest()
    assert made["delivered"] == sha256(answer.body).hexdigest()
    assert (made["provider"], made["policy_version"]) == ("runner:laptop", 1)
    entries = runner.rest("GET", "/audit?action=policy").json["entries"]
    assert any("no-shell" in each["after"] for each in entries), entries
    [row] = [each for each in rows(runner) if each["request_id"] == request_id]
    assert (row["provider"], row["key_name"], row["policy_hits"]) == ("runner:laptop", "laptop", 1)
    assert (row["prompt_tokens"], row["completion_tokens"], row["usage_source"]) == (3, 4, "reported")


def rows(runner: PlayedRunner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = runner.rest("GET", "/usage/rows").json["rows"]
    return found


@pytest.mark.guarantee("M5")
def test_the_size_of_what_goes_to_a_runner_is_that_of_the_redacted_body(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    key = make_key(gateway)
    enforce(gateway, runner, key, {"id": "shout", "effect": "redact", "pattern": "x{100}"})
    large = "x" * (DEFAULT_RUNNER_LIMITS.request_bytes + 100)
    with runner.dialled_in() as line:
        answer = refused(gateway, asked("é" + "y" * len(large)), key)
        assert (answer.status, code_of(answer)) == (413, "runner_request_too_large")
        start, answer = streamed(gateway, line, key, large)
    assert answer.status == 200
    assert len(json.dumps(start["body"])) < DEFAULT_RUNNER_LIMITS.request_bytes


@pytest.mark.guarantee("M5")
def test_a_models_context_is_taken_out_before_its_runner_hears_of_it(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    about = {"name": "a", "model_identifier": "small:7b", "api_endpoint": "http://localhost:11434/v1"}
    models = f"/runners/{runner.id}/models"
    assert runner.rest("POST", models, {**about, "context": "shorten"}).status == 400
    model = runner.rest("POST", models, {**about, "alias": "small", "context": "drop-duplicates"}).json
    assert model["context"] == "drop-duplicates"
    assert runner.rest("PUT", f"/ai-models/{model['id']}", about).json["context"] == "drop-duplicates"
    key = gateway.run("key", "create", "laptop", "--user", "ada")
    until_in_force(gateway, "small", key)
    body = json.loads(body_of(P.CHAT_COMPLETIONS, [said("user", "go"), called("x" * 400), called("x" * 400)]))
    with runner.dialled_in() as line, gateway.connect() as client:
        gateway.send(client, {**body, "model": "small", "stream": True}, key)
        start = line.stream("data: {}", USAGE, DONE)
        answer = client.answer()
    assert json.dumps(start["body"]).count("x" * 400) == 1
    assert (answer.value(b"x-pointsman-context") or b"").startswith(b"saved=")
    request_id = (answer.value(b"x-pointsman-request-id") or b"").decode()
    wait_until(lambda: any(each["request_id"] == request_id for each in rows(runner)))
    [row] = [each for each in rows(runner) if each["request_id"] == request_id]
    assert (row["ai_model_id"], row["requested_model"], row["saved_tokens"] > 50) == (model["id"], "small", True)
    assert (row["key_user"], row["budgets"], row["is_fallback"]) == ("ada", [], False)
    assert runner.rest("PUT", f"/ai-models/{model['id']}", {**about, "context": "none"}).json["context"] == ""


@pytest.mark.guarantee("M5")
def test_money_is_spent_at_the_runners_price_by_a_sandbox_and_its_budget_ends_it(
    gateway: ServingGateway, runner: PlayedRunner
) -> None:
    token = gateway.run("sandbox", "token", "create", "box", "--route", "llama")
    until_in_force(gateway, "llama", token)
    gateway.run("price", "set", f"runner:{runner.name}", *PRICE)
    gateway.run("budget", "create", "pocket", "--sandbox", "box", "--requests", "1", "--window", "total")
    gateway.run("budget", "create", "purse", "--sandbox", "box", "--money", "1000000", "--window", "total")
    wait_until(lambda: refused(gateway, {**asked("hello"), "max_tokens": 10**7}, token).status == 429)
    with runner.dialled_in() as line:
        _, answer = streamed(gateway, line, token)
        assert answer.status == 200
        answer = refused(gateway, asked("hello"), token)
    assert (answer.status, code_of(answer)) == (429, "insufficient_quota")
    wait_until(lambda: any(each["cost"] == "7.00" for each in rows(runner)))
    [spent] = json.loads(gateway.run("usage", "--by", "key", "-o", "json"))
    assert (spent["key"], spent["cost"], spent["total_tokens"]) == ("sandbox:box", "7.00", 7)
    [left] = json.loads(gateway.run("budget", "status", "purse", "-o", "json"))
    assert left["used"] == "7.00"
