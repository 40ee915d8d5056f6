"""Mock routes, and the in-process call that no request through the tunnel can reach."""

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pointsman.core.candidate import Candidate
from pointsman.core.errors import (
    MalformedRequest,
    NoCompatibleRoute,
    NotConfigured,
    UpstreamProtocol,
    UpstreamUnavailable,
)
from pointsman.core.limits import Limits
from tests.support.door import ALL_PROTOCOLS, KEY, Door, candidate
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream

CHAT = "openai_chat_completions"
HEADERS = [("Content-Type", "application/json"), ("Authorization", "Bearer client-key")]


def mock(**changes: Any) -> Candidate:
    return candidate("mock://canned", api_key=None, **changes)


def system(url: str, **changes: Any) -> Candidate:
    return candidate(url, route="sandbox-system", **changes)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/v1/chat/completions", {"object": "chat.completion", "id": "mock-chatcmpl-001"}),
        (b"/v1/completions", {"object": "text_completion"}),
        (b"/v1/messages", {"type": "message", "id": "mock-msg-001", "stop_reason": "end_turn"}),
        (b"/v1/responses", {"mock": True}),
        (b"/v1/embeddings", {"object": "list"}),
    ],
)
def test_a_mock_answers_in_the_clients_dialect_and_says_so(path: bytes, expected: dict[str, object]) -> None:
    with Door(mock(protocols=(*ALL_PROTOCOLS, "openai_embeddings"))) as door, door.tunnel() as client:
        client.send(post(b'{"model":"x","stream":true}', path=path))
        answer = client.answer()
    content = json.loads(answer.body)
    assert answer.status == 200
    assert content["model"] == "real-model"
    assert expected.items() <= content.items()
    assert answer.value(b"x-openshell-mock") == b"true"
    assert answer.value(b"x-pointsman-mock") == b"true"
    assert answer.value(b"content-type") == b"application/json"


def test_a_mock_lists_models_and_holds_bodies_to_the_same_rules() -> None:
    with Door(mock()) as door, door.tunnel() as client:
        client.send(GET_MODELS)
        assert json.loads(client.answer().body)["mock"] is True
        client.send(post(b'{"model":1,"model":2}'))
        assert client.answer().status == 400


def test_system_inference_calls_the_system_route_and_gives_the_whole_answer(upstream: Upstream) -> None:
    def serve() -> None:
        peer = upstream.accept()
        request = peer.request()
        assert request.body == b'{"model":"system-model"}'
        assert request.value(b"authorization") == b"Bearer " + KEY.encode()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        peer.chunk(b"data: 2\n\n")
        peer.end_chunks()

    with Upstream() as other:
        thread = threading.Thread(target=serve)
        thread.start()
        with Door(candidate(other.url), system(upstream.url, model="system-model")) as door:
            answer = door.system_inference(CHAT, "POST", "/v1/chat/completions", HEADERS, b'{"model":"x"}')
        thread.join()
        assert other.saw_nothing()
    assert (answer.status, answer.body) == (200, b"data: 1\n\ndata: 2\n\n")
    assert ("Content-Type", "text/event-stream") in answer.headers


def test_a_mock_system_route_answers() -> None:
    with Door(system("mock://canned", api_key=None)) as door:
        answer = door.system_inference("anthropic_messages", "POST", "/v1/messages", [], b"{}")
    assert json.loads(answer.body)["type"] == "message"


def test_the_system_route_is_out_of_reach_of_the_tunnel(upstream: Upstream) -> None:
    with Door(system(upstream.url)) as door, door.tunnel() as client:
        for model in (b"sandbox-system", b"real-model"):
            client.send(post(b'{"model":"%b"}' % model, fields=b"X-Pointsman-Route: sandbox-system\r\n"))
            assert client.answer().status == 503
        client.send(GET_MODELS.replace(b"inference.local", b"sandbox-system"))
        assert client.answer().status == 400
    assert upstream.saw_nothing()


def test_without_a_system_route_it_is_not_configured(upstream: Upstream) -> None:
    with Door(candidate(upstream.url)) as door, pytest.raises(NotConfigured):
        door.system_inference(CHAT, "POST", "/v1/chat/completions", [], b"{}")


def test_a_dialect_that_no_system_route_speaks_is_refused(upstream: Upstream) -> None:
    with Door(system(upstream.url, protocols=(CHAT,))) as door, pytest.raises(NoCompatibleRoute):
        door.system_inference("anthropic_messages", "POST", "/v1/messages", [], b"{}")


@pytest.mark.guarantee("R13")
@pytest.mark.parametrize("path", ["v1/x", "/v1/x y", "/v1/\r\nX: 1", "/v1/ü", ""])
def test_a_path_that_could_break_out_is_refused(upstream: Upstream, path: str) -> None:
    with Door(system(upstream.url)) as door, pytest.raises(MalformedRequest):
        door.system_inference(CHAT, "POST", path, [], b"{}")
    assert upstream.saw_nothing()


@pytest.mark.guarantee("R13")
@pytest.mark.parametrize("header", [("X\r\nY", "1"), ("Accept", "1\r\nX: 2"), ("Accept", "\x00")])
def test_a_header_that_could_break_out_is_refused(upstream: Upstream, header: tuple[str, str]) -> None:
    with Door(system(upstream.url)) as door, pytest.raises(MalformedRequest):
        door.system_inference(CHAT, "POST", "/v1/chat/completions", [header], b"{}")
    assert upstream.saw_nothing()


def serve_in_pieces(upstream: Upstream, total: bytes) -> None:
    peer = upstream.accept()
    peer.request()
    peer.send(total)


@pytest.mark.alone
@pytest.mark.guarantee("U7")
def test_the_whole_call_must_end_within_the_route_timeout(upstream: Upstream, quick_limits: Limits) -> None:
    limits = replace(quick_limits, chunk_idle_seconds=60.0, response_header_seconds=60.0, buffered_seconds=60.0)
    with Door(system(upstream.url, timeout_seconds=0.3), limits=limits) as door:
        started = time.monotonic()
        with pytest.raises(UpstreamUnavailable):
            door.system_inference(CHAT, "POST", "/v1/chat/completions", [], b"{}")
        assert 0.2 < time.monotonic() - started < 2
        assert upstream.accept().wait_closed()


@pytest.mark.limit("response_body_bytes")
@pytest.mark.parametrize("size", [100, 101])
def test_the_whole_answer_may_have_the_limit(upstream: Upstream, quick_limits: Limits, size: int) -> None:
    total = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"a" * size)
    thread = threading.Thread(target=serve_in_pieces, args=(upstream, total))
    thread.start()
    with Door(system(upstream.url), limits=replace(quick_limits, response_body_bytes=100)) as door:
        if size > 100:
            with pytest.raises(UpstreamProtocol):
                door.system_inference(CHAT, "POST", "/v1/chat/completions", [], b"{}")
        else:
            assert door.system_inference(CHAT, "POST", "/v1/chat/completions", [], b"{}").body == b"a" * 100
    thread.join()
