"""Routes that the gateway executes itself: what a sandbox sends to it, and what of its answer the agent sees."""

import json
from pathlib import Path

import pytest

from pointsman.core.secret import Secret
from pointsman.rpc.gen import inference_pb2
from tests.support.canary import TOKEN
from tests.support.door import Door, candidate
from tests.support.follower import Follower
from tests.support.raw_client import Answer, post
from tests.support.scripted_gateway import ScriptedGateway, resolved
from tests.support.upstream import ReceivedRequest, Upstream

OURS = (
    b"Content-Type: application/json\r\nX-Pointsman-Route: fast\r\nx-pointsman-model: tiny\r\n"
    b"x-pointsman-attempts: 3\r\nx-pointsman-fallback: local\r\nx-pointsman-request-id: theirs\r\n"
)


def own_gateway(url: str) -> inference_pb2.ResolvedRoute:
    return resolved(url, provider_type="pointsman", api_key="", model_id="fast", timeout_secs=620)


def ask(follower: Follower, upstream: Upstream) -> tuple[ReceivedRequest, Answer]:
    with follower.door.tunnel() as client:
        client.send(post(b'{"model":"any"}', fields=b"x-pointsman-hop: 7\r\n"))
        peer = upstream.accept()
        request = peer.request()
        peer.respond(fields=OURS + b"Connection: close\r\n")
        return request, client.answer()


def test_the_sandboxes_own_token_is_the_key_and_the_hop_is_told(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(own_gateway(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        (held,) = follower.door.router.routes.bundle.routes
        assert held.timeout_seconds == 620
        request, _ = ask(follower, upstream)
        assert request.value(b"authorization") == f"Bearer {TOKEN}".encode()
        assert request.value(b"x-pointsman-hop") == b"1"
        assert request.body == b'{"model":"fast"}'
        assert TOKEN not in follower.door.log.getvalue()
    assert not follower.door.leftover


def test_a_token_that_is_rotated_is_the_key_of_the_next_request(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(own_gateway(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        gateway.token = "pointsman-sandbox-second"
        follower.token_file.write_text(gateway.token)
        follower.poll()  # the same revision
        request, _ = ask(follower, upstream)
        assert request.value(b"authorization") == b"Bearer pointsman-sandbox-second"
        bundle = follower.door.router.routes.bundle
        follower.poll()
        assert follower.door.router.routes.bundle is bundle


def test_what_our_own_gateway_says_of_its_answer_reaches_the_agent_once(upstream: Upstream, tmp_path: Path) -> None:
    with ScriptedGateway(own_gateway(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        _, answer = ask(follower, upstream)
    ours = sorted((name, value) for name, value in answer.fields if name.startswith(b"x-pointsman-"))
    assert ours == [
        (b"x-pointsman-attempts", b"3"),
        (b"x-pointsman-fallback", b"local"),
        (b"x-pointsman-model", b"tiny"),
        (b"x-pointsman-request-id", b"theirs"),
        (b"x-pointsman-route", b"fast"),
    ]


@pytest.mark.parametrize(
    ("status", "fields", "body"),
    [
        (b"403 Forbidden", OURS, b'{"error":{"code":"runner_model_not_allowed"}}'),
        (b"403 Forbidden", b"", b'{"error": "forbidden"}'),  # a proxy's before the gateway
        (b"401 Unauthorized", OURS, b'{"error": "unauthorized"}'),
    ],
)
def test_a_403_of_our_own_gateway_keeps_its_words(
    upstream: Upstream, tmp_path: Path, status: bytes, fields: bytes, body: bytes
) -> None:
    said = b'{"error":{"code":"runner_model_not_allowed"}}'
    with ScriptedGateway(own_gateway(upstream.url)) as gateway, Follower(gateway, tmp_path) as follower:
        follower.poll()
        with follower.door.tunnel() as client:
            client.send(post())
            peer = upstream.accept()
            peer.request()
            peer.send(b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(said), said))
            answer = client.answer()
    assert answer.status == int(status[:3])
    assert json.loads(answer.body) == json.loads(body)


def test_a_provider_is_told_of_no_hop_and_believed_nothing(upstream: Upstream) -> None:
    with Door(candidate(upstream.url, api_key=Secret("k"))) as door, door.tunnel() as client:
        client.send(post(b'{"model":"any"}', fields=b"x-pointsman-hop: 7\r\n"))
        peer = upstream.accept()
        assert peer.request().value(b"x-pointsman-hop") is None
        peer.respond(fields=OURS)
        answer = client.answer()
    assert answer.value(b"x-pointsman-attempts") == b"1"
    assert answer.value(b"x-pointsman-fallback") is None
