"""The audit record through gRPC and REST: who did what, who may read it, and nothing secret in it."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pointsman.rpc.gen import audit_pb2, control_pb2
from pointsman.rpc.gen.audit_pb2_grpc import AuditStub
from pointsman.rpc.gen.hash_chain_pb2 import ChainHead, VerifyChainRequest
from tests.support.canary import KEY, Finder
from tests.support.control_plane import ADMIN
from tests.support.rest import BEARER, OPENAI, RunningApi, rest_api

OTHER = {**BEARER, "x-pointsman-account": "other"}


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApi]:
    with rest_api(tmp_path_factory.mktemp("audit")) as api:
        yield api


def entries(api: RunningApi, query: str = "", **options: Any) -> list[dict[str, Any]]:
    answer = api.get(f"/audit{query}", **options)
    assert answer.status == 200, answer.body
    assert answer.json["next"] is None
    found: list[dict[str, Any]] = answer.json["entries"]
    return found


def brief(found: list[dict[str, Any]]) -> list[str]:
    return [f"{each['actor']} {each['action']} {each['subject']}" for each in found]


def test_an_entry_names_the_caller_of_either_protocol(api: RunningApi) -> None:
    running = api.running
    assert api.post("/providers", OPENAI).status == 201
    manager = api.key_bearer("runners:manage", "models:create")
    assert api.post("/runners/register", {"name": "laptop"}, headers=manager).status == 201
    running.commands.CreateKey(control_pb2.CreateKeyRequest(name="by-grpc"), metadata=ADMIN)
    running.point(provider="openai")  # by the gateway's own hand
    made = next(each["subject"] for each in entries(api) if each["action"] == "key.create")
    assert brief(entries(api)) == [
        "admin provider.create openai",
        f"admin key.create {made}",
        f"key:{made} runner.create laptop",
        "admin key.create by-grpc",
        "gateway route.create inference.local",
    ]


def test_what_is_refused_or_only_read_leaves_no_entry(api: RunningApi) -> None:
    key = api.key_bearer("inference")
    assert api.post("/providers", OPENAI, headers=key).status == 403
    assert api.post("/providers", OPENAI, headers={}).status == 401
    assert api.delete("/providers/none").status == 404
    assert api.post("/providers", {"name": "x"}).status == 400
    assert api.get("/providers").status == 200
    with pytest.raises(grpc.RpcError):
        api.running.commands.CreateKey(control_pb2.CreateKeyRequest(name="a"))
    assert [each["action"] for each in entries(api)] == ["key.create"]


def test_a_page_is_of_one_account_or_of_all_and_of_what_is_asked_for(api: RunningApi) -> None:
    assert api.post("/accounts", {"name": "other"}).status == 201
    api.key_bearer("inference", account="other")
    assert api.post("/keys", {"name": "mine"}).status == 201
    assert api.delete("/keys/mine").status == 200
    assert [each["action"] for each in entries(api, headers=OTHER)] == ["account.create", "key.create"]
    assert brief(entries(api, "?action=key")) == ["admin key.create mine", "admin key.revoke mine"]
    assert brief(entries(api, "?subject=mine&action=key.revoke&actor=admin")) == ["admin key.revoke mine"]
    every = entries(api, "?all_accounts=true")
    assert [each["sequence"] for each in every] == [1, 2, 3, 4]
    assert entries(api, "?all_accounts=true&newest_first=true") == every[::-1]
    assert entries(api, "?all_accounts=true&after=2") == every[2:]
    assert entries(api, "?since=2999-01-01T00:00:00Z") == []
    page = api.get("/audit?all_accounts=true&limit=3").json
    assert (len(page["entries"]), page["next"]) == (3, 3)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=1.0",
        "after=-1",
        "after=100000000000",
        "since=",
        "since=yesterday",
        "since=2031-01-01T00:00:00",
        "newest_first=1",
        "all_accounts=True",
        "actor=" + "x" * 513,
        "unknown=1",
        "actor=a&actor=b",
    ],
)
def test_a_query_that_cannot_be_right_is_refused(api: RunningApi, query: str) -> None:
    assert api.get(f"/audit?{query}").status == 400


def test_limits_of_a_query_are_taken(api: RunningApi) -> None:
    for query in ("limit=1", "limit=1000", "after=99999999999", "actor=" + "x" * 512):
        assert api.get(f"/audit?{query}").status == 200


def test_the_record_is_verified_over_both_protocols(api: RunningApi) -> None:
    for name in ("a", "b", "c"):
        assert api.post("/keys", {"name": name}).status == 201
    whole = api.get("/audit/verify").json
    assert (whole["problems"], whole["checked"], whole["complete"]) == ([], 3, True)
    number, digest = whole["head"].split(":")
    assert (number, digest) == ("3", entries(api)[-1]["digest"])
    assert api.get(f"/audit/verify?head={whole['head']}&after={whole['head']}").json["checked"] == 0
    beyond = api.get(f"/audit/verify?head=4:{digest}").json
    assert "the end was cut off" in beyond["problems"][0]
    assert api.get("/audit/verify?head=4").status == 400

    stub = AuditStub(api.running.channel)
    asked = VerifyChainRequest(head=ChainHead(sequence=3, digest=b"x" * 32))
    answer = stub.VerifyAudit(asked, metadata=ADMIN)
    assert (answer.problem_count, answer.complete, answer.head.sequence) == (1, True, 3)
    asked = VerifyChainRequest(head=ChainHead(sequence=3, digest=b"x"))
    with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
        stub.VerifyAudit(asked, metadata=ADMIN)


@pytest.mark.parametrize("path", ["/audit", "/audit/verify"])
def test_the_record_is_the_admins(api: RunningApi, path: str) -> None:
    assert api.get(path, headers={}).status == 401
    assert api.get(path, headers=api.sandbox_bearer()).status == 403
    every = api.key_bearer(
        "inference", "models:create", "models:delete", "models:edit", "models:view", "runners:manage"
    )
    assert api.get(path, headers=every).status == 403
    assert api.get(path, headers={**BEARER, "x-pointsman-account": "none"}).status == 404
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert api.ask(method, f"/api/v1{path}", {} if method != "DELETE" else None).status == 405


def test_over_grpc_it_is_the_admins_too(api: RunningApi) -> None:
    stub = AuditStub(api.running.channel)
    for metadata in ((), api.running.token()):
        with pytest.raises(grpc.RpcError, match=r"UNAUTHENTICATED|PERMISSION_DENIED"):
            stub.ListAudit(audit_pb2.ListAuditRequest(), metadata=metadata)
        with pytest.raises(grpc.RpcError, match=r"UNAUTHENTICATED|PERMISSION_DENIED"):
            stub.VerifyAudit(VerifyChainRequest(), metadata=metadata)


@pytest.mark.guarantee("W2")
def test_no_secret_that_was_given_or_made_is_in_the_record(api: RunningApi) -> None:
    assert api.post("/providers", OPENAI).status == 201
    assert api.patch("/providers/openai", {"credentials": {"OPENAI_API_KEY": KEY + "2", "B": KEY}}).status == 200
    made = {
        "key": api.post("/keys", {"name": "k"}).json["key"],
        "sandbox token": api.post("/sandbox-tokens", {"name": "s"}).json["token"],
        "runner token": api.post("/runners/register", {"name": "r"}).json["token"],
    }
    runner = api.get("/runners").json["runners"][0]["id"]
    made["next runner token"] = api.post(f"/runners/{runner}/token", None).json["token"]
    assert api.delete("/providers/openai").status == 200
    finder = Finder({"provider's key": KEY, **{name: value.rsplit("-", 1)[-1] for name, value in made.items()}})
    found = entries(api)
    assert len(found) == 7
    # The chain's own digests are random to the search, and may hold any eight digits.
    bare = [{name: value for name, value in each.items() if name not in ("previous", "digest")} for each in found]
    assert finder.find(json.dumps(bare).encode()) == []
    assert json.loads(found[1]["after"])["credentials"] == {"OPENAI_API_KEY": "changed", "B": "set"}
