"""The commands of the how-to of policies do what the page says, on a gateway that answers real requests."""

import json
import re
import time
from pathlib import Path

import pytest

from tests.support.client_commands import run_client
from tests.support.serving_gateway import ServingGateway, serving_gateway

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "set-a-policy.md").read_text()
SHELL = {"model": "fast", "max_tokens": 9, "tools": [{"type": "function", "function": {"name": "shell_run"}}]}
LEAK = {"model": "fast", "max_tokens": 9, "messages": [{"role": "user", "content": "it is AKIA0123456789ABCDEF"}]}


def ask(gateway: ServingGateway, body: dict[str, object], said: bytes) -> int:
    """The status, once answers say what they are to say of policies; nothing for those that say nothing."""
    until = time.monotonic() + 20
    while True:
        with gateway.connect() as client:
            gateway.send(client, body)
            answer = client.answer()
        told = answer.value(b"x-pointsman-policy") or b""
        if (told if answer.status == 200 else json.loads(answer.body)["error"]["message"].encode()) == said:
            return answer.status
        assert time.monotonic() < until, (answer.status, told, answer.body)
        time.sleep(0.05)


@pytest.mark.timeout(120)
def test_the_commands_do_what_the_page_says(tmp_path: Path) -> None:
    text, about_answers = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    file, body = tmp_path / "policy.yaml", tmp_path / "body.json"
    file.write_text(text.replace('    keys: [laptop, "sandbox:agents"]\n', ""))
    body.write_text(json.dumps(SHELL))
    tried = run_client("http://127.0.0.1:1", "policy", "test", str(file), str(body))
    assert (tried.exit_code, "Refused by no-shell" in tried.output) == (1, True)
    with serving_gateway(tmp_path / "state") as gateway:
        gateway.provide("practice", "mock://practice")
        gateway.run("route", "create", "fast", "--provider", "practice", "--model", "m", "--no-verify")
        assert ask(gateway, SHELL, b"") == 200
        assert "Let it take effect: pointsman policy enforce\n" in f"{gateway.run('policy', 'set', str(file))}\n"
        assert ask(gateway, SHELL, b"dry-run=1; would-block=no-shell") == 200
        gateway.run("policy", "enforce")
        assert ask(gateway, SHELL, b"the request is refused by the rule 'no-shell' of a policy") == 403
        assert ask(gateway, LEAK, b"enforced=1; redacted") == 200
        gateway.run("policy", "set", str(file))
        gateway.run("policy", "enforce", "2")
        gateway.run("policy", "rollback")
        gateway.run("policy", "dry-run")
        assert ask(gateway, SHELL, b"dry-run=1; would-block=no-shell") == 200
        file.write_text(about_answers)
        gateway.run("policy", "set", str(file))
        gateway.run("policy", "enforce")
        assert ask(gateway, LEAK, b"enforced=3; answers=block,redact") == 200
        lines = [line for path in (tmp_path / "state").rglob("*.jsonl") for line in path.read_text().splitlines()]
    hits = [event for event in map(json.loads, lines) if event["event"] == "policy_hit"]
    assert {(hit["rule"], hit["effect"], hit["place"]) for hit in hits} >= {
        ("no-shell", "block", "/tools/0"), ("cloud-keys", "redact", "/messages/0/content"),
    }  # fmt: skip
    assert {hit["enforced"] for hit in hits} == {True, False}
