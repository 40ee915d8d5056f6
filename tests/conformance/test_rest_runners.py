"""Runners over HTTP, on the real operations and both databases."""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.core.control_errors import Unauthenticated
from pointsman.core.runner import MOST_RUNNERS, Runner
from tests.support.databases import Database
from tests.support.rest import BEARER, RunningApi, rest_api
from tests.support.runner_presence import ScriptedPresence

MODEL = {"name": "Llama", "model_identifier": "llama3.2:3b", "api_endpoint": "http://localhost:11434/v1"}
NO_SUCH = "0" * 32
THEIRS = {**BEARER, "x-pointsman-account": "theirs"}


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[RunningApi]:
    with rest_api(tmp_path, settings=database.settings) as api:
        yield api


@pytest.fixture
def presence(api: RunningApi) -> ScriptedPresence:
    scripted = ScriptedPresence(api.running.control.store)
    api.running.control.runners.look_at(scripted, scripted)
    return scripted


def registered(api: RunningApi, name: str = "laptop", headers: dict[str, str] = BEARER) -> tuple[str, str]:
    """Its id and its token."""
    made = api.post("/runners/register", {"name": name}, headers=headers)
    assert made.status == 201, made.body
    return made.json["id"], made.json["token"]


def is_admitted(api: RunningApi, runner_id: str, token: str) -> bool:
    with contextlib.suppress(Unauthenticated):
        api.running.call(api.running.control.runners.admit(runner_id, token))
        return True
    return False


def test_a_runner_is_registered_listed_and_shown_without_its_token(api: RunningApi) -> None:
    made = api.post("/runners/register", {"name": "laptop"})
    assert made.status == 201
    runner_id, token = made.json["id"], made.json["token"]
    assert made.headers["location"] == f"/api/v1/runners/{runner_id}"
    assert made.headers["cache-control"] == "no-store"
    assert re.fullmatch(r"[0-9a-f]{32}", runner_id)
    assert re.fullmatch(r"pointsman-runner-[\w-]{43}", token)
    shown = {key: value for key, value in made.json.items() if key != "token"}
    assert shown.keys() == {"id", "name", "presence", "created_at", "last_seen_at"}
    assert api.get(f"/runners/{runner_id}").json == shown
    assert api.get("/runners").json == {"runners": [shown]}
    assert token not in "".join([*api.records, *api.running.lines])
    assert any("runner laptop of default: registered" in line for line in api.running.lines)


def test_the_store_keeps_a_digest_of_the_token_and_nothing_else(api: RunningApi) -> None:
    runner_id, token = registered(api)

    async def kept() -> Runner | None:
        async with api.running.control.store.read() as reader:
            return await reader.runner("default", runner_id)

    runner = api.running.call(kept())
    assert runner is not None
    assert runner.token_digest == hashlib.sha256(token.encode()).digest()


@pytest.mark.guarantee("S2")
def test_a_runner_is_admitted_by_its_own_token_alone(api: RunningApi) -> None:
    runner_id, token = registered(api)
    other_id, other_token = registered(api, "desk")
    assert is_admitted(api, runner_id, token)
    for wrong in (other_token, token[:-1], token + "x", "", "é", "pointsman-runner-"):
        assert not is_admitted(api, runner_id, wrong)
    for wrong_id in (other_id, NO_SUCH, "", "*", f"{runner_id}.", runner_id.upper(), "default"):
        assert not is_admitted(api, wrong_id, token)


@pytest.mark.parametrize("how", ["register", "token"])
def test_rotating_gives_a_new_token_and_ends_what_the_old_one_opened(
    api: RunningApi, presence: ScriptedPresence, how: str
) -> None:
    runner_id, old = registered(api)
    presence.there.add(runner_id)
    if how == "register":
        made = api.post("/runners/register", {"name": "laptop", "runner_id": runner_id})
    else:
        made = api.ask("POST", f"/api/v1/runners/{runner_id}/token")
    assert (made.status, made.json["id"], made.json["name"]) == (200, runner_id, "laptop")
    new = made.json["token"]
    assert new != old
    assert not is_admitted(api, runner_id, old)
    assert is_admitted(api, runner_id, new)
    # Told once it was committed: a socket that is closed sooner would come back with the old token.
    assert presence.ended == [("default", runner_id, hashlib.sha256(new.encode()).digest())]
    assert any("runner laptop of default: token rotated" in line for line in api.running.lines)
    assert old not in "".join(api.running.lines)
    assert new not in "".join(api.running.lines)


def test_a_name_is_taken_once_and_the_error_says_how_to_take_its_place(
    api: RunningApi, presence: ScriptedPresence
) -> None:
    runner_id, token = registered(api)
    again = api.post("/runners/register", {"name": "laptop"})
    assert again.status == 409
    assert "give its runner_id to take its place" in again.error
    assert is_admitted(api, runner_id, token)
    assert not presence.ended


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({}, 400, "name is required"),
        ({"name": None}, 400, "name is required"),
        ({"name": ""}, 400, "name"),
        ({"name": "a b"}, 400, "name"),
        ({"name": "a" * 254}, 400, "name"),
        ({"name": 1}, 400, "name"),
        ({"name": "a", "token": "mine"}, 400, "unknown field 'token'"),
        ({"runner_id": NO_SUCH}, 404, "no such runner"),
        ({"runner_id": "*"}, 404, "no such runner"),
        ({"runner_id": "a" * 65}, 400, "runner_id"),
    ],
)
def test_what_cannot_be_a_runner_is_refused(api: RunningApi, body: object, status: int, reason: str) -> None:
    answer = api.post("/runners/register", body)
    assert answer.status == status
    assert reason in answer.error
    assert api.get("/runners").json == {"runners": []}


def test_a_name_beside_an_id_must_be_the_runners(api: RunningApi, presence: ScriptedPresence) -> None:
    runner_id, token = registered(api)
    answer = api.post("/runners/register", {"name": "desk", "runner_id": runner_id})
    assert (answer.status, "is called laptop" in answer.error) == (400, True)
    assert is_admitted(api, runner_id, token)
    assert api.post("/runners/register", {"runner_id": runner_id}).status == 200
    assert len(presence.ended) == 1


def test_presence_is_asked_of_whoever_has_the_sockets(api: RunningApi, presence: ScriptedPresence) -> None:
    here, _ = registered(api, "here")
    away, _ = registered(api, "away")
    presence.there |= {here, "f" * 32}
    found = {each["name"]: each["presence"] for each in api.get("/runners").json["runners"]}
    assert found == {"here": "online", "away": "offline"}
    assert presence.asked[-1] == ("default", frozenset({here, away}))
    assert api.get(f"/runners/{here}").json["presence"] == "online"
    api.running.call(api.running.control.runners.seen(here))
    assert api.get(f"/runners/{here}").json["last_seen_at"] is not None
    assert api.get(f"/runners/{away}").json["last_seen_at"] is None


def test_a_connected_runner_is_deleted_only_by_force_and_its_socket_ends(
    api: RunningApi, presence: ScriptedPresence
) -> None:
    runner_id, token = registered(api)
    presence.there.add(runner_id)
    refused = api.delete(f"/runners/{runner_id}")
    assert (refused.status, "is connected" in refused.error) == (409, True)
    assert api.delete(f"/runners/{runner_id}?force=false").status == 409
    assert is_admitted(api, runner_id, token)
    assert not presence.ended
    assert api.delete(f"/runners/{runner_id}?force=true").json == {"deleted": True, "unavailable_models": []}
    assert presence.ended == [("default", runner_id, None)]
    assert not is_admitted(api, runner_id, token)
    assert api.get(f"/runners/{runner_id}").status == api.delete(f"/runners/{runner_id}").status == 404


def test_models_of_a_deleted_runner_stay_as_history_and_are_unavailable(
    api: RunningApi, presence: ScriptedPresence
) -> None:
    runner_id, _ = registered(api)
    made = api.post(f"/runners/{runner_id}/models", MODEL)
    assert api.delete(f"/runners/{runner_id}").json == {"deleted": True, "unavailable_models": ["llama3.2-3b"]}
    presence.there.add(runner_id)  # a socket that has not been closed yet
    kept = api.get(f"/ai-models/{made.json['id']}")
    assert kept.json == {**made.json, "runner_id": runner_id, "available": False}
    assert [each["available"] for each in api.get("/ai-models").json["ai_models"]] == [False]
    assert any("no longer available: llama3.2-3b" in line for line in api.running.lines)


@pytest.mark.guarantee("S2")
def test_runners_are_their_accounts_own(api: RunningApi, presence: ScriptedPresence) -> None:
    assert api.post("/accounts", {"name": "theirs"}).status == 201
    runner_id, token = registered(api, headers=THEIRS)
    mine, _ = registered(api)  # the same name is free here
    assert [each["id"] for each in api.get("/runners").json["runners"]] == [mine]
    assert api.get(f"/runners/{runner_id}").status == 404
    assert api.post("/runners/register", {"runner_id": runner_id}).status == 404
    assert api.ask("POST", f"/api/v1/runners/{runner_id}/token").status == 404
    assert api.delete(f"/runners/{runner_id}?force=true").status == 404
    assert api.post(f"/runners/{runner_id}/models", MODEL).status == 404
    assert is_admitted(api, runner_id, token)
    assert not presence.ended


def test_an_account_has_at_most_so_many_runners(tmp_path: Path) -> None:
    async def fill(api: RunningApi, count: int) -> None:
        async with api.running.control.store.write() as writer:
            for number in range(count):
                digest = hashlib.sha256(str(number).encode()).digest()
                await writer.insert_runner(Runner(digest.hex()[:32], "default", f"r{number}", digest, 1.0))

    with rest_api(tmp_path) as api:
        api.running.call(fill(api, MOST_RUNNERS - 1))
        registered(api, "last")
        refused = api.post("/runners/register", {"name": "one-more"})
        assert (refused.status, f"{MOST_RUNNERS} runners" in refused.error) == (400, True)
        assert len(api.get("/runners").json["runners"]) == MOST_RUNNERS
