"""Chains that send on the client's model name: byte-exact bodies, whose name is used, and what `/v1/models` lists."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.endpoint import Endpoint
from pointsman.core.limits import DEFAULT_LIMITS, MIB
from pointsman.core.model_table import ModelTable
from tests.support.chain_door import ChainDoor, chain, deny
from tests.support.upstream import UpstreamPeer


@contextmanager
def forwarding(*own: str, **changes: Any) -> Iterator[ChainDoor]:
    """A default chain of one provider for each of the models that they have of their own."""
    with chain(len(own), **changes) as door:
        route = door.data.table.targets["fast"]
        assert isinstance(route, Chain)
        members = tuple(
            replace(member, candidate=replace(member.candidate, model=model))
            for member, model in zip(route.members, own, strict=True)
        )
        door.data.table = ModelTable({"fast": replace(route, members=members, forwards_model=True)}, "fast")
        yield door


def read(door: ChainDoor, number: int = 0) -> tuple[UpstreamPeer, bytes]:
    peer = door.upstreams[number].accept()
    return peer, peer.request().body


@pytest.mark.guarantee("A16")
@pytest.mark.parametrize(
    "body",
    [
        b'{ "model" : "gpt-4o" , "n":1.0, "s":"\\u00e9" }',
        b'{"n":[1,2,{"model":"x"}],"model":"gpt\\u002d4o"}',
        b'{"model":"a\\/b","model_kwargs":{}}\n',
    ],
)
def test_the_body_reaches_every_provider_as_the_client_wrote_it(body: bytes) -> None:
    with forwarding("own-0", "") as door:
        door.ask(body=body)
        peer, first = read(door)
        deny(peer, 404)
        peer, second = read(door, 1)
        peer.respond()
        answer = door.answer()
        assert first == second == body
        assert answer.value(b"x-pointsman-model") == json.loads(body)["model"].encode()
        completed = door.data.ended()[-1]
        assert completed["model"] == json.loads(body)["model"]


@pytest.mark.guarantee("A16")
def test_without_a_model_each_provider_is_asked_for_its_own_and_one_without_is_passed_over() -> None:
    with forwarding("", "own-1") as door:
        door.ask(body=b'{"n":1}')
        peer, body = read(door, 1)
        assert json.loads(body) == {"n": 1, "model": "own-1"}
        peer.respond()
        assert door.answer().value(b"x-pointsman-model") == b"own-1"
        assert door.upstreams[0].saw_nothing()
        told = ["infer_ordering p0,p1", "infer_fallback p0 p1 no_model", "infer_completed p1 1 fallback"]
        assert door.told() == told


@pytest.mark.guarantee("A16")
@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"model":""}', b'{"model":"a\\u0007"}', b'{"model":"' + b"m" * 257 + b'"}'],
    ids=["none", "empty", "unprintable", "too long"],
)
def test_a_request_without_a_usable_name_is_400(body: bytes) -> None:
    with forwarding("", "") as door:
        door.ask(body=body)
        answer = door.answer()
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"]) == (400, "missing_required_parameter")
        assert '"model"' in error["message"]
        assert door.told() == ["infer_failed no_model 400 0"]


@pytest.mark.guarantee("A16")
def test_a_name_of_256_characters_is_sent() -> None:
    with forwarding("") as door:
        door.ask(body=b'{"model":"' + b"m" * 256 + b'"}')
        peer, body = read(door)
        assert len(json.loads(body)["model"]) == 256
        peer.respond()
        assert door.answer().status == 200


@pytest.mark.guarantee("A16")
def test_two_models_are_still_400_and_reach_nobody() -> None:
    with forwarding("") as door:
        door.ask(body=b'{"model":"a","model":"b"}')
        assert door.answer().status == 400
        assert door.used() == [0]


@pytest.mark.guarantee("A16")
def test_what_answers_in_the_gateway_keeps_its_own_name() -> None:
    with forwarding("") as door:
        route = door.data.table.targets["fast"]
        assert isinstance(route, Chain)
        mock = replace(route.members[0].candidate, endpoint=Endpoint("mock", "", 0, ""), model="canned")
        made = replace(route, members=(), fallback=Member("mock", mock))
        door.data.table = ModelTable({"fast": made}, "fast")
        door.ask(body=b'{"model":"gpt-4o"}')
        assert door.answer().value(b"x-pointsman-model") == b"canned"


def listed(door: ChainDoor, path: str = "/v1/models") -> None:
    door.client = door.data.connect()
    door.client.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


def ids(body: bytes) -> list[tuple[str, str]]:
    return [(each["id"], each["owned_by"]) for each in json.loads(body)["data"]]


THEIRS = b'{"object":"list","data":[{"id":"gpt-4o","object":"model","owned_by":"them","extra":1}]}'


@pytest.mark.limit("models_kept_seconds")
@pytest.mark.guarantee("A16")
def test_models_are_those_of_the_first_provider_that_lists_them_and_are_kept_for_a_while() -> None:
    with forwarding("", "") as door:
        listed(door)
        first, second = door.upstreams[0].accept(), door.upstreams[1].accept()
        assert first.request().line == second.request().line == b"GET /v1/models HTTP/1.1"
        deny(first, 500)
        second.respond(THEIRS)
        assert ids(door.answer().body) == [("gpt-4o", "them")]
        listed(door, "/v1/models/gpt-4o")
        assert json.loads(door.answer().body)["extra"] == 1
        listed(door, "/v1/models/gpt-5")
        assert door.answer().status == 404
        assert door.data.operations() == []
        door.data.advance(DEFAULT_LIMITS.models_kept_seconds - 0.1)
        listed(door)
        assert ids(door.answer().body) == [("gpt-4o", "them")]
        assert door.upstreams[0].saw_nothing()
        door.data.advance(0.2)
        listed(door)
        first = door.upstreams[0].accept()
        first.request()
        first.respond(THEIRS.replace(b"4o", b"9"))
        assert ids(door.answer().body) == [("gpt-9", "them")]


@pytest.mark.limit("models_seconds")
@pytest.mark.guarantee("A16")
def test_when_no_provider_lists_its_models_in_time_the_records_do() -> None:
    with forwarding("own", "own", "other", limits=replace(DEFAULT_LIMITS, models_seconds=0.2)) as door:
        listed(door)
        assert ids(door.answer().body) == [("own", "p0"), ("other", "p2")]


@pytest.mark.limit("models_bytes")
@pytest.mark.guarantee("A16")
@pytest.mark.parametrize(("beyond", "taken"), [(-1, True), (0, True), (1, False)])
def test_a_list_of_up_to_1_mib_is_taken(beyond: int, taken: bool) -> None:
    assert DEFAULT_LIMITS.models_bytes == MIB
    with forwarding("own") as door:
        listed(door)
        peer, _ = read(door)
        peer.respond(THEIRS + b" " * (MIB + beyond - len(THEIRS)))
        assert ids(door.answer().body) == ([("gpt-4o", "them")] if taken else [("own", "p0")])


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":{}}', b"\xff"])
def test_what_is_no_list_is_not_taken_for_one(body: bytes) -> None:
    with forwarding("own") as door:
        listed(door)
        peer, _ = read(door)
        peer.respond(body)
        assert ids(door.answer().body) == [("own", "p0")]
