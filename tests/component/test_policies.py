"""Policies as their operator handles them: by command and over HTTP, on the real operations and a real database."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.account import Account
from pointsman.core.control_errors import InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.policy import Effect, PolicyState
from pointsman.gateway.policies import MOST_VERSIONS
from tests.support.client_commands import run_client
from tests.support.control_plane import ADMIN_TOKEN
from tests.support.policies import rule
from tests.support.rest import RunningApi, rest_api

RULES = {"rules": [{"id": "no-shell", "effect": "block", "denied_tools": ["bash"]}]}
POLICY = (
    "rules:\n- {id: no-word, effect: block, pattern: secret, routes: [fast]}\n- {id: t, effect: flag, most_tokens: 9}\n"
)


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("policies")) as api:
        yield api


def states(api: RunningApi, account: str = "default") -> dict[int, str]:
    kept = api.running.call(api.running.control.policies.list(account))
    return {each.version: str(each.state) for each in kept}


def test_versions_go_from_dry_run_to_enforced_and_back(api: RunningApi) -> None:
    policies, call = api.running.control.policies, api.running.call
    with pytest.raises(NotPossibleNow, match="no dry run"):
        call(policies.enforce("default"))
    with pytest.raises(NotPossibleNow, match="no policy is enforced"):
        call(policies.dry_run("default"))
    with pytest.raises(NotFound, match="no policy"):
        call(policies.get("default"))
    first = call(policies.set("default", (rule("a", pattern="x"),)))
    assert (first.version, first.state, first.enforced_at) == (1, PolicyState.DRY_RUN, None)
    call(policies.enforce("default"))
    with pytest.raises(NotPossibleNow, match="no other policy was ever enforced"):
        call(policies.rollback("default"))
    call(policies.set("default", (rule("b", pattern="y"),)))
    assert states(api) == {1: "enforced", 2: "dry_run"}
    call(policies.set("default", ()))
    assert states(api) == {1: "enforced", 2: "kept", 3: "dry_run"}
    call(policies.enforce("default", 2))
    assert states(api) == {1: "kept", 2: "enforced", 3: "dry_run"}
    assert call(policies.rollback("default")).version == 1
    assert states(api) == {1: "enforced", 2: "kept", 3: "dry_run"}
    assert call(policies.dry_run("default")).version == 1
    assert states(api) == {1: "dry_run", 2: "kept", 3: "kept"}
    assert call(policies.rollback("default", 2)).state == PolicyState.ENFORCED
    with pytest.raises(NotPossibleNow, match="policy 3 was never enforced"):
        call(policies.rollback("default", 3))
    with pytest.raises(NotFound, match="no policy 4"):
        call(policies.enforce("default", 4))
    assert call(policies.get("default", 1)).rules == (rule("a", pattern="x"),)


def test_a_policy_is_of_one_account(api: RunningApi) -> None:
    async def make() -> None:
        async with api.running.control.store.write() as writer:
            await writer.insert_account(Account("team", 1.0))

    api.running.call(make())
    api.running.call(api.running.control.policies.set("team", (rule(pattern="x"),)))
    assert (states(api), states(api, "team")) == ({}, {1: "dry_run"})
    with pytest.raises(NotFound, match="account nobody"):
        api.running.call(api.running.control.policies.set("nobody", ()))


def test_the_oldest_versions_go_and_what_is_in_force_stays(api: RunningApi) -> None:
    policies, call = api.running.control.policies, api.running.call
    call(policies.set("default", ()))
    call(policies.enforce("default"))
    for _ in range(MOST_VERSIONS + 1):
        call(policies.set("default", ()))
    kept = states(api)
    assert len(kept) == MOST_VERSIONS
    assert kept[1] == "enforced"
    assert max(kept) == MOST_VERSIONS + 2


def test_rules_that_cannot_be_are_refused(api: RunningApi) -> None:
    with pytest.raises(InvalidRequest, match="rule 1: its pattern is not understood"):
        api.running.call(api.running.control.policies.set("default", (rule("a", pattern="("),)))
    with pytest.raises(InvalidRequest, match="only a rule with a pattern can redact"):
        api.running.call(api.running.control.policies.set("default", (rule("a", Effect.REDACT, most_tokens=1),)))


def test_policies_over_http(api: RunningApi) -> None:
    made = api.post("/policies", RULES)
    assert (made.status, made.headers["location"]) == (201, "/api/v1/policies/1")
    assert (made.json["state"], made.json["rules"][0]["denied_tools"]) == ("dry_run", ["bash"])
    assert api.ask("GET", made.headers["location"]).json == made.json
    assert api.patch("/policies/1", {"state": "enforced"}).json["state"] == "enforced"
    api.post("/policies", {"rules": []})
    assert [(each["version"], each["state"]) for each in api.get("/policies").json["policies"]] == [
        (2, "dry_run"), (1, "enforced"),
    ]  # fmt: skip
    api.patch("/policies/2", {"state": "enforced"})
    assert api.post("/policies/rollback", {}).json["version"] == 1
    assert api.patch("/policies/1", {"state": "dry_run"}).json["state"] == "dry_run"
    assert api.get("/policies/9").status == 404
    assert api.get("/policies/x").status == 400
    refused = api.post("/policies", {"rules": [{"id": "a", "effect": "block", "pattern": "("}]})
    assert (refused.status, "not understood" in refused.error) == (400, True)
    assert api.post("/policies", {"rules": [{"id": "a", "effect": "blok", "pattern": "x"}]}).status == 400


def run(api: RunningApi, tmp_path: Path, *arguments: str, stdin: str | None = None) -> Any:
    token = tmp_path / "admin.token"
    token.write_text(ADMIN_TOKEN)
    token.chmod(0o600)
    url = f"http://127.0.0.1:{api.running.port}"
    return run_client(url, "policy", *arguments, environ={"POINTSMAN_TOKEN_FILE": str(token)}, stdin=stdin)


def test_policies_by_command(api: RunningApi, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    assert "No policy" in run(api, tmp_path, "list").output
    assert "Policy 1 is a dry run, with 2 rules" in run(api, tmp_path, "set", str(file)).output
    assert run(api, tmp_path, "enforce").output == "Policy 1 is enforced, with 2 rules\n"
    assert "Policy 2 is a dry run" in run(api, tmp_path, "set", "-", stdin="rules: []").output
    run(api, tmp_path, "enforce", "2")
    assert json.loads(run(api, tmp_path, "rollback", "-o", "json").output)["version"] == 1
    shown = run(api, tmp_path, "get", "1").output
    assert "Rule no-word" in shown
    assert "Pattern: secret" in shown
    rules = json.loads(run(api, tmp_path, "get", "1", "-o", "json").output)["rules"]
    assert rules[0] == {"id": "no-word", "side": "request", "effect": "block", "routes": ["fast"], "pattern": "secret"}
    listed = json.loads(run(api, tmp_path, "list", "-o", "json").output)
    assert [(each["version"], each["state"]) for each in listed] == [(2, "kept"), (1, "enforced")]
    assert "enforced" in run(api, tmp_path, "list").output
    assert run(api, tmp_path, "dry-run").output == "Policy 1 is a dry run, with 2 rules\n"


def test_a_file_that_is_wrong_is_told_by_line_and_nothing_is_set(api: RunningApi, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace("pattern", "patern"))
    result = run(api, tmp_path, "set", str(file))
    assert result.exit_code == 1
    assert f"{file}:2: unknown key patern; did you mean pattern?" in result.output
    assert states(api) == {}
    assert "no such file" in run(api, tmp_path, "set", str(tmp_path / "none")).output


@pytest.mark.parametrize(
    ("body", "options", "status", "told"),
    [
        ({"model": "fast", "messages": [{"content": "secret"}], "max_tokens": 1}, (), 1, "Refused by no-word"),
        ({"model": "slow", "messages": [{"content": "secret"}], "max_tokens": 1}, (), 0, "No rule matches"),
        ({"model": "slow", "messages": [{"content": "secret"}]}, ("--route", "fast"), 1, "/messages/0/content"),
        ({"model": "slow"}, (), 0, "the request"),
        ({"max_output_tokens": 10}, ("--dialect", "openai_responses"), 0, "/max_output_tokens"),
        ({"choices": [{"message": {"content": "out"}}]}, ("--answer",), 0, "No rule matches"),
        ({"choices": [{"message": {"content": "secret"}}]}, ("--answer",), 1, "Refused by no-word-out"),
    ],
)
def test_a_file_is_tried_on_a_body_without_a_gateway(
    tmp_path: Path, body: dict[str, Any], options: tuple[str, ...], status: int, told: str
) -> None:
    file, request = tmp_path / "policy.yaml", tmp_path / "body.json"
    file.write_text(f"{POLICY}- {{id: no-word-out, side: response, effect: block, pattern: secret}}\n")
    request.write_text(json.dumps(body))
    result = run_client("http://127.0.0.1:1", "policy", "test", str(file), str(request), *options)
    assert (result.exit_code, told in result.output) == (status, True), result.output
    document = json.loads(
        run_client("http://127.0.0.1:1", "policy", "test", str(file), str(request), *options, "-o", "json").output
    )
    assert bool(document["blocked_by"]) is bool(status)


def test_a_body_that_cannot_be_searched_is_told(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace(", routes: [fast]", ""))
    result = run_client("http://127.0.0.1:1", "policy", "test", str(file), "-", stdin='{"a":1,"a":2}')
    assert (result.exit_code, "twice" in result.output) == (1, True)
    assert "ok, 2 rules" in run_client("http://127.0.0.1:1", "policy", "test", str(file)).output
