"""Halting over REST, and what keys of a halted account, or from elsewhere, are told there."""

from collections.abc import Iterator

import pytest

from pointsman.gateway.keys import KeyDraft
from tests.support.rest import BEARER, RunningApi, rest_api


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("halted")) as api:
        assert api.post("/accounts", {"name": "team"}).status == 201
        yield api


def test_a_halted_accounts_keys_do_nothing_and_its_admin_everything(api: RunningApi) -> None:
    theirs, ours = (api.key_bearer("runners:manage", account=each) for each in ("team", "default"))
    assert api.get("/runners", headers=theirs).status == 200
    halted = api.post("/accounts/team/halt", None)
    assert (halted.status, halted.json["name"], halted.json["halted_at"] is None) == (200, "team", False)
    refused = api.get("/runners", headers=theirs)
    assert refused.status == 403
    assert "account_halted" in refused.json["error"]["message"]
    assert api.get("/runners", headers=ours).status == 200
    assert api.get("/runners", headers={**BEARER, "x-pointsman-account": "team"}).status == 200
    assert api.post("/accounts/team/resume", None).json["halted_at"] is None
    assert api.get("/runners", headers=theirs).status == 200


def test_an_account_that_is_not_there_cannot_be_halted(api: RunningApi) -> None:
    assert api.post("/accounts/nobody/halt", None).status == 404
    assert api.post("/accounts/nobody/resume", None).status == 404


def test_a_sandbox_of_a_halted_account_has_an_empty_bundle(api: RunningApi) -> None:
    running = api.running
    running.provide()
    running.point()
    token = running.call(running.control.sandbox_tokens.create("default", "box", "", None))[0]
    before = running.call(running.control.bundles.bundle(token))
    assert before.routes
    running.call(running.control.accounts.halt("default"))
    halted = running.call(running.control.bundles.bundle(token))
    assert halted.routes == ()
    assert halted.revision != before.revision
    running.call(running.control.accounts.resume("default"))
    assert running.call(running.control.bundles.bundle(token)).revision == before.revision


@pytest.mark.parametrize(("network", "status"), [("127.0.0.1", 200), ("127.0.0.0/8", 200), ("10.0.0.0/8", 403)])
def test_a_keys_networks_count_here_too(api: RunningApi, network: str, status: int) -> None:
    running = api.running
    draft = KeyDraft(permissions=("runners:manage",), networks=(network,))
    secret = running.call(running.control.keys.create("default", draft))[1].reveal()
    headers = {"authorization": f"Bearer {secret}", "x-forwarded-for": "10.0.0.1"}
    assert api.get("/runners", headers=headers).status == status


@pytest.mark.parametrize("networks", [["10.0.0.1/8"], ["here"], [""], ["10.0.0.0/8"] * 17])
def test_what_are_no_networks_make_no_key(api: RunningApi, networks: list[str]) -> None:
    assert api.post("/keys", {"name": "never", "networks": networks}).status == 400
    assert "never" not in {each["name"] for each in api.get("/keys").json["keys"]}


def test_a_key_may_have_as_many_networks_as_that(api: RunningApi) -> None:
    networks = [f"10.{number}.0.0/16" for number in range(16)]
    made = api.post("/keys", {"name": "many", "networks": networks, "user": "ada"})
    assert (made.status, made.json["networks"], made.json["user"]) == (201, networks, "ada")
