"""Routes that come from a gateway: what a door makes of every answer, over a real channel."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from pointsman.core.errors import NotConfigured
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.testing import FakeClock
from tests.support.canary import KEY, TOKEN
from tests.support.follower import Follower
from tests.support.ocsf import read_events
from tests.support.raw_client import post
from tests.support.scripted_gateway import Message, ScriptedGateway, aborts, resolved
from tests.support.upstream import Upstream

LOADED = ["routes_loaded", "inference_enabled"]


def test_a_request_goes_where_the_gateway_says_with_the_key_it_gave(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        client, peer, key = follower.begin(upstream)
        with client:
            peer.respond()
            assert client.answer().status == 200
        assert key == f"Bearer {KEY}".encode()
        assert follower.events() == LOADED
    assert not follower.door.leftover


def test_an_equal_revision_is_a_no_op_and_another_one_is_used_by_the_next_request(
    upstream: Upstream, tmp_path: Path
) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        bundle = follower.door.router.routes.bundle
        follower.poll()
        assert follower.door.router.routes.bundle is bundle
        gateway.serve(resolved(upstream.url, api_key="second", model_id="second-model"))
        follower.poll()
        with follower.door.tunnel() as client:
            client.send(post(b'{"model":"any"}'))
            peer = upstream.accept()
            request = peer.request()
            peer.respond()
            assert client.answer().value(b"x-pointsman-model") == b"second-model"
        assert request.value(b"authorization") == b"Bearer second"
        assert json.loads(request.body) == {"model": "second-model"}
        assert follower.events() == [*LOADED, "routes_updated"]


def test_a_gateway_that_is_down_at_first_is_no_end(upstream: Upstream, tmp_path: Path) -> None:
    gateway = ScriptedGateway(resolved(upstream.url))
    with Follower(gateway, tmp_path) as follower:
        follower.poll()
        answer = follower.ask()
        assert answer.status == 503
        assert "pointsman inference set --provider NAME --model ID" in json.loads(answer.body)["hint"]
        with gateway:
            follower.poll()
            assert follower.ask(lambda: serve_one(upstream)).status == 200
        assert follower.events() == ["fetch_failed gateway_unreachable", "fetch_recovered", *LOADED]
        assert f"{gateway.url}: " in follower.door.log.getvalue()


def serve_one(upstream: Upstream) -> None:
    peer = upstream.accept()
    peer.request()
    peer.respond(fields=b"Connection: close\r\n")


@pytest.mark.guarantee("G4")
def test_while_the_gateway_is_away_the_routes_stay_and_afterwards_they_follow_again(
    upstream: Upstream, tmp_path: Path
) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.stop()
        for _ in range(3):
            follower.poll()
            assert follower.ask(lambda: serve_one(upstream)).status == 200
        gateway.serve(resolved(upstream.url, model_id="second-model"))
        gateway.start()
        follower.poll()
        assert follower.ask(lambda: serve_one(upstream)).value(b"x-pointsman-model") == b"second-model"
        expected = [*LOADED, "fetch_failed gateway_unreachable", "fetch_recovered", "routes_updated"]
        assert follower.events() == expected
        assert 'detail="3 fetches had failed"' in follower.door.log.getvalue()


def test_a_token_that_is_refused_is_read_again_and_never_told(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        gateway.token = TOKEN[::-1]
        follower.poll()
        assert gateway.fetches == 1  # the same token is not tried twice
        follower.token_file.chmod(0o644)
        follower.poll()
        follower.token_file.write_text(gateway.token)
        follower.token_file.chmod(0o600)
        follower.poll()
        assert follower.events() == [
            "fetch_failed token_refused",
            "fetch_failed token_unreadable",
            "fetch_recovered",
            *LOADED,
        ]
        told = follower.door.log.getvalue() + follower.door.ocsf.getvalue()
        assert TOKEN not in told
        assert "pointsman sandbox token create" in told


def test_a_token_for_something_else_may_be_exchanged_for_the_right_one(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        gateway.token = TOKEN[::-1]
        gateway.refusal = grpc.StatusCode.PERMISSION_DENIED
        follower.poll()
        follower.token_file.write_text(gateway.token)
        follower.poll()
        assert follower.events() == ["fetch_failed not_permitted", "fetch_recovered", *LOADED]


def test_what_to_do_about_a_token_is_said_once_and_whole(tmp_path: Path) -> None:
    with ScriptedGateway() as gateway, Follower(gateway, tmp_path) as follower:
        gateway.fault = aborts(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid; make one: " + "words " * 20)
        follower.poll()
        assert (
            f"{gateway.url}: the token is not valid; make another with 'pointsman sandbox token create NAME' and write "
            'it into the token file"\n'
        ) in follower.door.logged()


def test_a_gateway_that_hangs_is_given_up_and_asked_anew(upstream: Upstream, tmp_path: Path) -> None:
    limits = replace(DEFAULT_LIMITS, bundle_fetch_seconds=0.3)
    with (
        ScriptedGateway(resolved(upstream.url)) as gateway,
        Follower(gateway, tmp_path, limits=limits) as follower,
    ):
        gateway.fault = gateway.hang
        follower.poll()
        assert follower.events() == ["fetch_failed gateway_timeout"]
        gateway.fault = None
        while "routes_loaded" not in follower.events():  # 0.3 s may be short on a busy machine
            follower.poll()


@pytest.mark.limit("bundle_fetch_seconds")
@pytest.mark.parametrize(("seconds", "expected"), [(0.4, "fetch_failed gateway_timeout"), (30.0, "routes_loaded")])
def test_an_answer_may_take_its_time_and_no_more(
    upstream: Upstream, tmp_path: Path, seconds: float, expected: str
) -> None:
    limits = replace(DEFAULT_LIMITS, bundle_fetch_seconds=seconds)
    with (
        ScriptedGateway(resolved(upstream.url)) as gateway,
        Follower(gateway, tmp_path, limits=limits) as follower,
    ):
        gateway.fault = lambda context: gateway.hang(context, 0.8)
        follower.poll()
        assert follower.events()[0] == expected


@pytest.mark.limit("bundle_bytes")
@pytest.mark.parametrize("room", [0, -1])
def test_an_answer_may_have_the_limit_in_bytes(upstream: Upstream, tmp_path: Path, room: int) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway:
        size = len(Message(routes=[resolved(upstream.url)], revision="r1").SerializeToString())
        limits = replace(DEFAULT_LIMITS, bundle_bytes=size + room)
        with Follower(gateway, tmp_path, limits=limits) as follower:
            follower.poll()
            assert follower.events() == (LOADED if room == 0 else ["fetch_failed bundle_too_large"])


def test_a_huge_answer_changes_nothing(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.serve(resolved(upstream.url, model_id="a" * 5 * 1024 * 1024))
        follower.poll()
        assert follower.events() == [*LOADED, "fetch_failed bundle_too_large"]
        assert follower.ask(lambda: serve_one(upstream)).status == 200


@pytest.mark.limit("bundle_routes")
@pytest.mark.parametrize("count", [256, 257])
def test_an_answer_may_have_the_limit_in_routes(upstream: Upstream, tmp_path: Path, count: int) -> None:
    routes = [resolved(upstream.url, name=f"route-{number}") for number in range(count)]
    with ScriptedGateway(*routes) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        assert follower.events() == (LOADED if count == 256 else ["fetch_failed bundle_too_large"])


@pytest.mark.guarantee("G4")
def test_an_empty_bundle_takes_the_routes_away(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.serve()
        follower.poll()
        assert follower.ask().status == 503
        assert follower.events() == [*LOADED, "routes_updated", "inference_disabled"]


def test_one_route_that_cannot_be_used_does_not_take_the_others_down(upstream: Upstream, tmp_path: Path) -> None:
    bad = resolved("http://169.254.169.254/v1", name="bad name", api_key="sk-bad")
    with ScriptedGateway(bad, resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        assert follower.ask(lambda: serve_one(upstream)).status == 200
        assert follower.events() == ["routes_loaded", "route_left_out route_unusable", "inference_enabled"]
        (event,) = [
            each
            for each in read_events(follower.door.ocsf.getvalue())
            if each["metadata"]["event_code"] == "route_left_out"
        ]
        assert event["unmapped"]["route"] == "bad name"
        assert event["unmapped"]["source"] == "gateway"
        assert "metadata address" in event["status_detail"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "not_permitted"),
        (grpc.StatusCode.INTERNAL, "gateway_error"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "gateway_error"),
        (grpc.StatusCode.UNIMPLEMENTED, "gateway_error"),
        (grpc.StatusCode.UNAVAILABLE, "gateway_error"),
    ],
)
def test_every_status_keeps_the_routes_and_is_told_as_what_it_is(
    upstream: Upstream, tmp_path: Path, code: grpc.StatusCode, reason: str
) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.fault = aborts(code, f"the store\nis locked; you are {TOKEN}")
        follower.poll()
        assert follower.events() == [*LOADED, f"fetch_failed {reason}"]
        assert TOKEN not in follower.door.log.getvalue() + follower.door.ocsf.getvalue()
        assert follower.ask(lambda: serve_one(upstream)).status == 200


def test_of_a_refusal_only_its_reason_is_told_and_the_next_step_is_the_sandboxs_own(tmp_path: Path) -> None:
    text = "bundles are for sandboxes; make a token: pointsman sandbox token create NAME"
    with ScriptedGateway(resolved("http://127.0.0.1:9")) as gateway, Follower(gateway, tmp_path) as follower:
        gateway.fault = aborts(grpc.StatusCode.PERMISSION_DENIED, text)
        follower.poll()
        told = "bundles are for sandboxes; use a sandbox's token, from 'pointsman sandbox token create NAME'\""
        assert f"{gateway.url}: {told}" in follower.door.log.getvalue()


@pytest.mark.parametrize("answer", [b"\xff\xff\xff\xff", b"\x0a\x04\x0a\x02\xff\xfe"])
def test_an_answer_that_is_no_bundle_keeps_the_routes_and_is_the_gateways_fault(
    upstream: Upstream, tmp_path: Path, answer: bytes
) -> None:
    with ScriptedGateway(resolved(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.bundle = answer
        follower.poll()
        assert follower.events() == [*LOADED, "fetch_failed gateway_error"]
        assert "its answer is no bundle" in follower.door.log.getvalue()
        assert follower.ask(lambda: serve_one(upstream)).status == 200


@pytest.mark.parametrize(
    ("code", "next_step"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "make another with 'pointsman sandbox token create NAME' and write it into"),
        (grpc.StatusCode.PERMISSION_DENIED, "use a sandbox's token, from 'pointsman sandbox token create NAME'"),
    ],
)
def test_a_refusal_is_told_with_one_next_step_and_not_cut(
    tmp_path: Path, code: grpc.StatusCode, next_step: str
) -> None:
    with ScriptedGateway() as gateway, Follower(gateway, tmp_path) as follower:
        gateway.fault = aborts(
            code, "the token is not valid, or no longer; make one: pointsman sandbox token create NAME"
        )
        follower.poll()
        assert f"the token is not valid, or no longer; {next_step}" in follower.door.log.getvalue()
        assert "make one" not in follower.door.log.getvalue()


def test_a_fetch_that_a_gateway_cancels_as_it_ends_is_told_as_one_that_did_not_reach_it(tmp_path: Path) -> None:
    with ScriptedGateway() as gateway, Follower(gateway, tmp_path) as follower:
        gateway.fault = aborts(grpc.StatusCode.CANCELLED, "")
        follower.poll()
        assert follower.events() == ["fetch_failed gateway_unreachable"]


def test_a_timeout_that_changes_at_the_gateway_holds_for_the_next_request(upstream: Upstream, tmp_path: Path) -> None:
    clock = FakeClock()
    with (
        ScriptedGateway(resolved(upstream.url, timeout_secs=7)) as gateway,
        Follower(gateway, tmp_path, clock=clock) as follower,
    ):
        follower.poll()
        for seconds in (7, 60):
            client, _, _ = follower.begin(upstream)
            with client:
                follower.door.advance(seconds - 0.5)
                assert "infer_failed" not in follower.door.logged().splitlines()[-1]
                follower.door.advance(1)
                assert client.answer().status == 503
            gateway.serve(resolved(upstream.url, timeout_secs=60))
            follower.poll()


@pytest.mark.guarantee("G4")
def test_a_rotation_neither_cuts_nor_waits_for_a_stream_that_runs(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(resolved(upstream.url, api_key="old")) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        running, peer, key = follower.begin(upstream)
        with running:
            assert key == b"Bearer old"
            peer.start_events()
            peer.chunk(b"data: 1\n\n")
            running.read_until(b"data: 1\n\n\r\n")
            gateway.serve(resolved(upstream.url, api_key="new"))
            follower.poll()
            client, other, new_key = follower.begin(upstream)
            with client:
                other.respond()
                assert client.answer().status == 200
            assert new_key == b"Bearer new"
            gateway.serve()
            follower.poll()
            assert follower.ask().status == 503
            peer.chunk(b"data: [DONE]\n\n")
            peer.end_chunks()
            assert running.read_until(b"0\r\n\r\n").endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_the_supervisors_own_call_uses_the_system_route_and_follows_it(upstream: Upstream, tmp_path: Path) -> None:
    chat: tuple[Any, ...] = ("openai_chat_completions", "POST", "/v1/chat/completions", [], b'{"messages":[]}')
    with (
        ScriptedGateway(resolved(upstream.url), resolved("mock://a", name="sandbox-system", model_id="one")) as gateway,
        Follower(gateway, tmp_path) as follower,
    ):
        with pytest.raises(NotConfigured):
            follower.door.system_inference(*chat)
        for model in ("one", "two"):
            follower.poll()
            assert json.loads(follower.door.system_inference(*chat).body)["model"] == model
            gateway.serve(resolved("mock://a", name="sandbox-system", model_id="two"))
        gateway.serve(resolved(upstream.url))
        follower.poll()
        with pytest.raises(NotConfigured):  # the route of the command inside takes nothing over
            follower.door.system_inference(*chat)
        assert upstream.saw_nothing()


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b'{"model":"sandbox-system","messages":[]}'),
        post(b"{}", fields=b"x-pointsman-route: sandbox-system\r\n"),
        post(b"{}", path=b"/v1/chat/completions?route=sandbox-system"),
        post(b"{}", path=b"/sandbox-system/v1/chat/completions"),
        post(b"{}").replace(b"Host: inference.local", b"Host: sandbox-system"),
        post(b"{}").replace(b"POST /", b"POST https://sandbox-system/"),
    ],
)
def test_no_request_reaches_the_system_route(upstream: Upstream, tmp_path: Path, request_bytes: bytes) -> None:
    with (
        ScriptedGateway(resolved(upstream.url, name="sandbox-system")) as gateway,
        Follower(gateway, tmp_path) as follower,
    ):
        follower.poll()
        with follower.door.tunnel() as client:
            client.send(request_bytes)
            assert client.answer().status in (400, 403, 503)
        assert upstream.saw_nothing()


def test_an_answer_without_a_revision_is_looked_at_each_time(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway() as gateway, Follower(gateway, tmp_path) as follower:
        for model in ("one", "two"):
            gateway.bundle = Message(routes=[resolved("mock://a", model_id=model)])
            follower.poll()
            follower.poll()
            assert follower.ask().value(b"x-pointsman-model") == model.encode()
        assert follower.events() == [*LOADED, "routes_updated"]
