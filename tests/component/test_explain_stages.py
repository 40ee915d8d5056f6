"""What is explained of the stages is what they do: a gateway is asked, then sent the same request."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.client_commands import run_client
from tests.support.raw_client import Answer
from tests.support.staged_gateway import WORD, Staged, staged_gateway
from tests.support.waiting import wait_until

BEFORE = ["authorize", "budget_reserve", "request_policy", "context"]
NAMES = [*BEFORE, "attempts", "response_policy", "budget_settle", "audit", "receipt", "usage_record"]
"""The order of `proxy.stages`, the attempts among them."""


def chat(content: str = "hello", **more: object) -> dict[str, object]:
    return {"model": "fast", "messages": [{"role": "user", "content": content}], **more}


def stage(made: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in made["stages"] if each["name"] == name]
    return dict(found)


def facts(made: dict[str, Any], name: str) -> dict[str, dict[str, str]]:
    return {each["about"]: each["values"] for each in stage(made, name)["facts"]}


def refused(answer: Answer) -> tuple[int, str, str]:
    error = json.loads(answer.body)["error"]
    return answer.status, error.get("code") or "", error["message"]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    with staged_gateway(tmp_path_factory.mktemp("staged")) as staged:
        yield staged


def once_spent(staged: Staged) -> None:
    if staged.send("spent", chat()).status == 200:
        wait_until(lambda: staged.send("spent", chat()).status == 429)


REFUSALS = {
    "source network": ("far", chat(), "authorize", 403, "source_not_allowed"),
    "route not authorized": ("narrow", chat(), "authorize", 403, "model_not_authorized"),
    "budget used up": ("spent", chat(), "budget_reserve", 429, "insufficient_quota"),
    "too much at once": ("free", chat(max_tokens=5_000_000), "budget_reserve", 429, "insufficient_quota"),
    "budget before policy": ("free", chat(WORD, max_tokens=5_000_000), "budget_reserve", 429, "insufficient_quota"),
    "policy block": ("free", chat(f"a {WORD}"), "request_policy", 403, "policy_blocked"),
    "no bound of output": ("bounded", chat(), "request_policy", 403, "policy_blocked"),
    "closed to the key": ("shut", chat(), "request_policy", 403, "policy_blocked"),
    "body unsearchable": ("free", '{"model":"fast","Model":"x"}', "request_policy", 400, "policy_unsearchable"),
}


@pytest.mark.guarantee("G21")
@pytest.mark.parametrize(("key", "body", "name", "status", "code"), REFUSALS.values(), ids=REFUSALS)
def test_a_stage_that_refuses_is_named_and_told_in_the_listeners_words(
    staged: Staged, key: str, body: object, name: str, status: int, code: str
) -> None:
    if key == "spent":
        once_spent(staged)
    made = staged.ask("--key-name", key, "--from", "127.0.0.1", body=body, status=1)
    denial = made["denial"]
    answer = staged.send(key, body)
    assert (denial["status"], denial["code"], denial["text"]) == refused(answer)
    assert (denial["stage"], denial["status"], denial["code"]) == (name, status, code)
    assert [each["name"] for each in made["stages"] if each["decision"] == "refuses"] == [name]
    reached = NAMES[: NAMES.index(name) + 1]
    for each in made["stages"][: NAMES.index("budget_settle")]:
        assert (each["decision"] != "not_reached") is (each["name"] in reached)
    assert not made["candidates"]
    told = answer.value(b"retry-after")
    assert (denial["retry_after_seconds"] is None) is (told is None)


@pytest.mark.guarantee("G21")
def test_a_halted_account_is_told_as_its_clients_hear_of_it(staged: Staged) -> None:
    staged.gateway.run("account", "halt", "default")
    try:
        wait_until(lambda: staged.send("free", chat()).status == 403)
        made = staged.ask("--key-name", "free", body=chat(), status=1)
        denial = made["denial"]
        assert (denial["status"], denial["code"], denial["text"]) == refused(staged.send("free", chat()))
        assert (denial["code"], denial["stage"]) == ("account_halted", "authorize")
        assert facts(made, "authorize")["account default"] == {"halted": "true"}
        agent = staged.ask("inference.local", status=1)
        assert (agent["denial"]["status"], agent["stages"]) == (503, [])
        assert "is halted" in agent["denial"]["detail"]
    finally:
        staged.gateway.run("account", "resume", "default")
    wait_until(lambda: staged.send("free", chat()).status == 200)


@pytest.mark.guarantee("G21")
def test_a_request_that_nobody_refuses_passes_every_stage_in_their_order(staged: Staged) -> None:
    made = staged.ask("--key-name", "free", body=chat())
    assert [(each["name"], each["decision"]) for each in made["stages"]] == [
        ("authorize", "passes"),
        ("budget_reserve", "passes"),
        ("request_policy", "passes"),
        ("context", "passes"),
        ("attempts", "passes"),
        ("response_policy", "depends"),
        ("budget_settle", "records"),
        ("audit", "nothing"),
        ("receipt", "records"),
        ("usage_record", "records"),
    ]
    assert facts(made, "response_policy")["answers"] == {"held_back": "true"}
    assert facts(made, "usage_record")["price canned/small"] == {
        "version": "2",
        "input": "2.00",
        "cached_input": "2.00",
        "output": "4.00",
        "request": "0.00",
    }
    for name in ("receipt", "audit"):
        assert stage(staged.ask("other", "--key-name", "narrow"), name)["decision"] == "nothing"


def test_without_a_body_a_policys_rules_are_listed_and_only_what_closes_a_route_refuses(staged: Staged) -> None:
    made = staged.ask("fast", "--key-name", "free")
    assert stage(made, "request_policy")["decision"] == "depends"
    told = stage(made, "request_policy")["facts"]
    assert [(each["values"]["rule"], each["values"]["condition"]) for each in told] == [
        ("no-word", "pattern"),
        ("hide", "pattern"),
        ("no-mail", "pattern"),
    ]
    assert WORD not in json.dumps(made)
    assert stage(made, "context")["decision"] == "depends"
    assert staged.ask("fast", "--key-name", "shut", status=1)["denial"]["stage"] == "request_policy"
    assert stage(staged.ask("fast", "--key-name", "bounded"), "request_policy")["decision"] == "depends"


def used(staged: Staged, budget: str) -> str:
    [found] = json.loads(staged.gateway.run("budget", "status", budget, "-o", "json"))
    return str(found["used"])


@pytest.mark.guarantee("G21")
def test_what_would_be_reserved_is_what_a_request_holds_while_it_runs(staged: Staged) -> None:
    body = {**chat(max_tokens=50), "model": "slow"}
    before = facts(staged.ask("--key-name", "free", body=body), "budget_reserve")
    assert before["budget all-tokens"]["used"] == used(staged, "all-tokens")
    with staged.gateway.connect() as client:
        staged.gateway.send(client, body, staged.keys["free"])
        peer = staged.upstream.accept()
        peer.request()
        held = facts(staged.ask("--key-name", "free", body=body), "budget_reserve")
        peer.respond(b'{"usage":{"prompt_tokens":7,"completion_tokens":3}}')
        assert client.answer().status == 200
    for name in ("budget all-tokens", "budget all-money"):
        assert float(held[name]["used"]) == pytest.approx(
            float(before[name]["used"]) + float(before[name]["this_request"]), abs=1e-9
        )
    tokens = -(-len(json.dumps(body)) // 3)
    assert before["budget all-tokens"]["this_request"] == str(tokens + 50)
    money = (tokens * 10 + 50 * 100) / 1e6 + 0.001
    assert float(before["budget all-money"]["this_request"]) == pytest.approx(money, abs=1e-9)
    assert before["budget all-money"]["price_version"] == "2"
    assert (before["budget watched"]["hard"], before["budget watched"]["this_request"]) == ("false", "1")


def test_a_budget_without_room_is_free_again_when_its_window_is_over(staged: Staged) -> None:
    staged.gateway.run("budget", "create", "none", "--key", "bounded", "--tokens", "20", "--window", "month")
    body = chat(max_tokens=1)
    wait_until(lambda: staged.ask("--key-name", "bounded", body=body, status=None)["denial"] is not None)
    try:
        values = facts(staged.ask("--key-name", "bounded", body=body, status=1), "budget_reserve")["budget none"]
        assert (values["has_room"], values["free_at"]) == ("false", "")  # it is more than all of it
        made = staged.ask("--key-name", "bounded", body={"model": "fast", "n": 1, "max_tokens": 1}, status=None)
        assert facts(made, "budget_reserve")["budget none"]["has_room"] == "true"
    finally:
        staged.gateway.run("budget", "delete", "none")
    wait_until(lambda: staged.ask("--key-name", "bounded", body=body, status=None)["denial"] is None)


def repeated() -> dict[str, object]:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns: list[dict[str, object]] = [{"role": "user", "content": "mail-123"}]
    for number in range(2):
        turns.append({"role": "assistant", "tool_calls": [{**call, "id": f"c{number}"}]})
        turns.append({"role": "tool", "tool_call_id": f"c{number}", "content": "long result " * 60})
    return {"model": "fast", "messages": [*turns, {"role": "user", "content": "go on"}]}


@pytest.mark.guarantee("G21")
def test_what_redaction_and_context_take_out_is_told_as_the_answer_tells_it(staged: Staged) -> None:
    made = staged.ask("--key-name", "free", body=repeated())
    assert stage(made, "request_policy")["decision"] == "changes"
    hits = [each["values"] for each in stage(made, "request_policy")["facts"]]
    assert [(hit["rule"], hit["effect"], hit["would"], hit["place"]) for hit in hits] == [
        ("hide", "redact", "redact", "/messages/0/content"),
        ("no-mail", "flag", "block", "/messages/0/content"),
    ]
    context = facts(made, "context")["route fast"]
    assert stage(made, "context")["decision"] == "changes"
    assert (context["results"], context["messages"], context["tools"]) == ("1", "0", "0")
    assert facts(made, "audit")["account default"] == {"action": "policy.redact"}
    answer = staged.send("free", repeated())
    assert answer.status == 200
    assert answer.value(b"x-pointsman-context") == f"saved={context['saved_tokens']}".encode()
    said = [value for name, value in answer.fields if name.lower() == b"x-pointsman-policy"]
    assert said == [b"enforced=1; redacted", b"dry-run=2; would-block=no-mail", b"enforced=1; answers=block"]
    assert stage(made, "response_policy")["decision"] == "depends"


WRITTEN = {"usage": "usage_record", "receipts": "receipt", "audit": "audit"}


@pytest.mark.guarantee("G21")
def test_what_is_written_of_a_request_is_what_was_told(staged: Staged) -> None:
    once_spent(staged)
    told: dict[str, dict[str, bool]] = {}
    requests = [(key, body) for key, body, *_ in REFUSALS.values()]
    for key, body in [
        *requests,
        ("free", repeated()),
        ("free", chat()),
        ("narrow", {"model": "other"}),
        ("free", chat(WORD)),
    ]:
        made = staged.ask("--key-name", key, "--from", "127.0.0.1", body=body, status=None)
        request_id = (staged.send(key, body).value(b"x-pointsman-request-id") or b"").decode()
        told[request_id] = {name: stage(made, name)["decision"] == "records" for name in WRITTEN.values()}

    def written(request_id: str) -> dict[str, bool]:
        rows = [row for row in staged.stored() if request_id in row]
        return {name: any(row.startswith(f'INSERT INTO "{table}"') for row in rows) for table, name in WRITTEN.items()}

    wait_until(lambda: all(written(request_id).values()))  # the last one's, behind those of all others
    assert {each: written(each) for each in told} == told


@pytest.mark.guarantee("G21")
def test_asking_changes_no_row_of_any_database(staged: Staged) -> None:
    once_spent(staged)
    last = staged.send("free", chat(WORD)).value(b"x-pointsman-request-id")
    assert last is not None
    # Its usage row, receipt and audit entry are written behind those of all requests before it.
    wait_until(lambda: sum(last.decode() in row for row in staged.stored()) >= 3)
    staged.gateway.run("budget", "status")  # writes what requests came to
    before = staged.stored()
    asked: list[tuple[Sequence[str], object]] = [(("--key-name", key), body) for key, body, *_ in REFUSALS.values()]
    asked += [(("--key-name", "free"), repeated()), (("--key-name", "free", "fast"), None), (("other",), None)]
    for arguments, body in asked * 2:
        staged.ask(*arguments, body=body, status=None)
    assert staged.stored() == before


def test_no_text_of_a_body_and_no_key_is_told(staged: Staged) -> None:
    body = chat(f"{WORD} mail-4711", user="somebody-private")
    for status, content in ((1, body), (0, chat("mail-4711 somebody-private"))):
        for output in ("json", "text"):
            words = ("explain", "--key-name", "free", "--body", "-", "-o", output)
            environ = {"POINTSMAN_DATA_DIR": str(staged.gateway.directory)}
            done = run_client(staged.gateway.url, *words, environ=environ, stdin=json.dumps(content))
            assert done.exit_code == status
            for secret in ("4711", "somebody-private", WORD, *staged.keys.values()):
                assert secret not in done.output


def test_a_sandbox_is_told_by_its_token_and_its_body_as_it_reaches_the_gateway(staged: Staged) -> None:
    staged.gateway.run("sandbox", "token", "create", "box", "--route", "fast")
    staged.gateway.run("budget", "create", "boxed", "--sandbox", "*", "--tokens", "9000", "--window", "day")
    body = {**chat(max_tokens=10), "model": "whatever"}
    try:
        wait_until(
            lambda: "budget boxed" in facts(staged.ask("--sandbox", "box", body=body, status=None), "budget_reserve")
        )
        made = staged.ask("--sandbox", "box", body=body)
    finally:
        staged.gateway.run("budget", "delete", "boxed")
    assert facts(made, "authorize")["sandbox box"] == {"route": "fast", "expires_at": "", "revoked_at": ""}
    values = facts(made, "budget_reserve")["budget boxed"]
    sent = json.dumps(body).replace("whatever", "fast")
    assert (values["subject"], values["this_request"]) == ("box", str(-(-len(sent) // 3) + 10))


def test_from_tells_whether_a_keys_networks_let_an_address_in(staged: Staged) -> None:
    made = staged.ask("fast", "--key-name", "far", "--from", "10.1.2.3")
    assert facts(made, "authorize")["key far"]["networks"] == "10.0.0.0/8"
    assert staged.ask("fast", "--key-name", "far", "--from", "11.1.2.3", status=1)["denial"]["stage"] == "authorize"
    assert staged.ask("fast", "--key-name", "far")["denial"] is None
    environ = {"POINTSMAN_DATA_DIR": str(staged.gateway.directory)}
    done = run_client(staged.gateway.url, "explain", "fast", "--from", "home", environ=environ)
    assert done.exit_code == 1
    assert "write it as 192.0.2.7" in done.output


def test_stages_are_printed_in_columns_and_those_that_do_nothing_in_one_line(staged: Staged) -> None:
    environ = {"POINTSMAN_DATA_DIR": str(staged.gateway.directory)}
    words = ("explain", "--key-name", "free", "--body", "-")
    lines = run_client(staged.gateway.url, *words, environ=environ, stdin=json.dumps(chat())).stdout.splitlines()
    [head] = [number for number, line in enumerate(lines) if line.startswith("STAGE")]
    rows = lines[head : lines.index("Nothing to do: audit")]
    at = rows[0].index("FOR")
    assert all(line[at - 2 : at] == "  " and line[at] != " " for line in rows)
    assert [line.split()[0] for line in rows[1:] if line[0] != " "] == [each for each in NAMES if each != "audit"]
    done = run_client(staged.gateway.url, "explain", "--key-name", "shut", "fast", environ=environ)
    lines = done.stdout.splitlines()
    assert "  refused by the stage request_policy" in lines
    assert "Not reached: context, attempts, response_policy" in lines
