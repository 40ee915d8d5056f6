"""A sandbox on a route through its gateway passes every stage there: a real gateway and sandbox. Needs root."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.follower import token_file
from tests.support.processes import POINTSMAN, run_to_end
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.waiting import wait_until

POLICY = "rules:\n  - {id: no-word, effect: block, pattern: forbidden-word, keys: ['sandbox:box']}\n"
ASK = """
for text in one forbidden-word two three; do
    curl -sS -w '\\n%{http_code}\\n' https://inference.local/v1/chat/completions \\
        -d '{"model":"any","messages":[{"role":"user","content":"'$text'"}]}'
done
"""
CHAT = {"messages": [{"role": "user", "content": "one"}]}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "data", "--data-auth=keys") as gateway:
        gateway.provide("canned", "mock://answers")
        for name in ("fast", "other"):
            gateway.run("route", "create", name, "--provider", "canned", "--model", "small", "--no-verify")
        options = ("--provider", "canned", "--model", "small", "--via-gateway", "--no-verify")
        gateway.run("route", "create", "agents", *options)
        yield gateway


def told(gateway: ServingGateway, token: str, model: str) -> tuple[int, str]:
    """Status and code of an answer at the data listener."""
    with gateway.connect() as client:
        gateway.send(client, {**CHAT, "model": model}, token)
        answer = client.answer()
    error: dict[str, Any] = json.loads(answer.body).get("error", {})
    return answer.status, error.get("code", "")


@pytest.mark.guarantee("B3")
def test_a_sandboxs_requests_through_its_gateway_are_counted_refused_and_told_under_its_name(
    gateway: ServingGateway, tmp_path: Path
) -> None:
    assert os.geteuid() == 0, "this test makes a network namespace: run it as root, as CI does"
    token = gateway.run("sandbox", "token", "create", "box", "--route", "agents")
    gateway.run("budget", "create", "pocket", "--sandbox", "box", "--requests", "2", "--window", "total")
    (tmp_path / "policy.yaml").write_text(POLICY)
    gateway.run("policy", "set", str(tmp_path / "policy.yaml"))
    gateway.run("policy", "enforce")
    wait_until(lambda: told(gateway, token, "fast") == (403, "model_not_authorized"))
    assert told(gateway, token, "other") == (403, "model_not_authorized")
    explained = ("explain", "--sandbox", "box", "-o", "json")  # sends nothing: no request is spent on waiting
    wait_until(lambda: all(text in gateway.run(*explained) for text in ('"no-word"', '"budget pocket"')))
    work = tmp_path / "work"
    work.mkdir()
    options = ["--gateway", gateway.url, "--token-file", str(token_file(tmp_path, token))]
    done = run_to_end([POINTSMAN, "sandbox", "run", *options, "--", "sh", "-c", ASK], cwd=work)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert answers[1::2] == ["200", "403", "200", "429"], done.stdout
    assert "policy_blocked" in answers[2]
    assert "insufficient_quota" in answers[6]
    rows = ("usage", "--by", "key", "-o", "json")
    wait_until(lambda: json.loads(gateway.run(*rows))[0]["failed"] >= 4)
    [spent] = json.loads(gateway.run(*rows))
    assert (spent["key"], spent["requests"] - spent["failed"]) == ("sandbox:box", 2)
    with contextlib.closing(sqlite3.connect(f"file:{gateway.directory}/pointsman.db?mode=ro", uri=True)) as database:
        told_of = database.execute("SELECT status, budgets, refused_budget FROM usage ORDER BY id DESC LIMIT 4")
        assert told_of.fetchall() == [
            (429, "", "pocket"),
            (200, "pocket", ""),
            (403, "pocket", ""),
            (200, "pocket", ""),
        ]
    [left] = json.loads(gateway.run("budget", "status", "pocket", "-o", "json"))
    assert left["used"] == "2"
