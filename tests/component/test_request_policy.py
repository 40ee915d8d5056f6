"""Policies on the data listener: what a client is told, what goes upstream, and what the operator sees of it."""

import json
from typing import Any

import pytest

from pointsman.core.policy import Effect, RuleScope
from tests.support.policed_door import CHAT, MESSAGES, PolicedDoor
from tests.support.policies import rule
from tests.support.raw_client import post
from tests.support.upstream import Upstream

SECRET = {"model": "fast", "messages": [{"role": "user", "content": "the secret word"}]}


def canned(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "model": "canned"}


@pytest.mark.guarantee("P1")
@pytest.mark.parametrize("path", [CHAT, b"/v1/completions", b"/v1/responses", MESSAGES])
def test_a_blocked_request_is_refused_in_the_words_of_its_dialect(
    policed: PolicedDoor, upstream: Upstream, path: bytes
) -> None:
    policed.set(rule("no-word", pattern="secret w.rd"))
    answer = policed.ask({**SECRET, "input": "secret word", "prompt": "secret word"}, path)
    assert answer.status == 403
    error = json.loads(answer.body)["error"]
    if path == MESSAGES:
        assert error["type"] == "permission_error"
    else:
        assert (error["code"], error["type"]) == ("policy_blocked", "invalid_request_error")
    assert "'no-word'" in error["message"]
    assert b"secret" not in answer.body
    assert upstream.saw_nothing()


@pytest.mark.guarantee("P4")
def test_a_dry_run_lets_everything_pass_and_says_what_it_would_do(policed: PolicedDoor) -> None:
    policed.set(rule("no-word", pattern="secret"), rule("seen", Effect.FLAG, pattern="word"), is_enforced=False)
    answer = policed.ask(canned(SECRET))
    assert answer.status == 200
    assert answer.value(b"x-pointsman-policy") == b"dry-run=1; would-block=no-word"
    hits = [each for each in policed.door.ended() if each["event"] == "policy_hit"]
    assert [(each["rule"], each["effect"], each["place"], each["version"], each["enforced"]) for each in hits] == [
        ("no-word", "block", "/messages/0/content", 1, False),
        ("seen", "flag", "/messages/0/content", 1, False),
    ]
    assert policed.ask(canned({"messages": []})).value(b"x-pointsman-policy") == b"dry-run=1"


@pytest.mark.guarantee("P4")
def test_a_new_version_runs_dry_beside_the_enforced_one(policed: PolicedDoor) -> None:
    policed.set(rule("old", pattern="nothing like it"))
    policed.set(rule("new", pattern="secret"), is_enforced=False)
    with policed.door.connect() as client:
        client.send(post(json.dumps(canned(SECRET)).encode(), CHAT))
        said = [value for name, value in client.answer().fields if name.lower() == b"x-pointsman-policy"]
    assert said == [b"enforced=1", b"dry-run=2; would-block=new"]


@pytest.mark.guarantee("P3")
def test_what_is_redacted_goes_upstream_without_it_and_all_else_as_it_was(
    policed: PolicedDoor, upstream: Upstream
) -> None:
    policed.set(rule("hide", Effect.REDACT, pattern="secret"))
    body = b'{ "model" : "fast" , "messages":[{"role":"user", "content":"a \\u0053ecret\\n\\u00e9 \xc3\xa9"}] }'
    with policed.door.connect() as client:
        client.send(post(body, CHAT))
        received = upstream.accept()
        request = received.request()
        received.respond()
        answer = client.answer()
    model = json.dumps(json.loads(request.body)["model"]).encode()
    assert request.body == body.replace(b"\\u0053ecret", b"[redacted]").replace(b'"fast"', model)
    assert answer.value(b"x-pointsman-policy") == b"enforced=1; redacted"


@pytest.mark.guarantee("P4")
def test_a_route_that_no_rule_is_about_is_not_touched(policed: PolicedDoor) -> None:
    policed.set(rule("no-word", pattern="secret", scope=RuleScope(routes=("fast",))))
    answer = policed.ask(b'{"model":"canned","a":1,"a":2,"messages":[{"content":"secret"}]}')
    assert answer.status == 200
    assert answer.value(b"x-pointsman-policy") is None


@pytest.mark.guarantee("P2")
def test_what_cannot_be_searched_is_refused_with_the_reason(policed: PolicedDoor, upstream: Upstream) -> None:
    policed.set(rule("no-word", pattern="secret"))
    answer = policed.ask(b'{"model":"fast","messages":[],"messages":[{"content":"secret"}]}')
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert error["code"] == "policy_unsearchable"
    assert "twice" in error["message"]
    assert upstream.saw_nothing()


def test_counting_tokens_asks_for_no_output(policed: PolicedDoor) -> None:
    policed.set(rule("short", most_tokens=10))
    assert policed.ask({"model": "canned", "messages": []}, MESSAGES).status == 403
    assert policed.ask({"model": "canned", "messages": []}, MESSAGES + b"/count_tokens").status != 403


def test_a_policy_is_lifted_by_a_dry_run_and_comes_back_by_a_rollback(policed: PolicedDoor) -> None:
    policed.set(rule("no-word", pattern="secret"))
    assert policed.ask(canned(SECRET)).status == 403
    policed.door.call(policed.policies.dry_run("default"))
    policed.door.call(policed.followed.refresh())
    assert policed.ask(canned(SECRET)).status == 200
    policed.door.call(policed.policies.rollback("default"))
    policed.door.call(policed.followed.refresh())
    assert policed.ask(canned(SECRET)).status == 403


def test_a_body_of_a_mebibyte_is_searched(policed: PolicedDoor) -> None:
    policed.set(rule("no-word", pattern="secret"))
    long = {"model": "canned", "messages": [{"content": "x " * 500_000 + "secret"}]}
    assert policed.ask(long).status == 403
