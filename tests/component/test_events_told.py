"""What single events say: who asked for what, how much, how long; and that a bug of ours gives nothing away."""

import json
from typing import Any

import pytest

from tests.support.door import Door, candidate
from tests.support.ocsf import read_events
from tests.support.raw_client import post
from tests.support.upstream import SOME_BODY, Upstream, begin


def last_event(door: Door) -> dict[str, Any]:
    door.logged()
    return read_events(door.ocsf.getvalue())[-1]


@pytest.mark.parametrize(
    ("asked", "hostname", "port"),
    [
        (b"CONNECT example.com:443", "example.com", 443),
        (b"CONNECT me:sk-canary-1@example.com:8443", "example.com", 8443),
        (b"CONNECT [2001:db8::1]:22", "[2001:db8::1]", 22),
        (b"CONNECT %b.example:443" % (b"a" * 300), "a" * 252 + "…", 443),
        (b"CONNECT example.com:99999", "example.com", None),
        (b"GET http://me:sk-canary-1@example.com/a?sk-canary-1=2", "example.com", 80),
        (b"POST http://example.com:8080/", "example.com", 8080),
    ],
)
def test_a_denied_connection_names_what_was_asked_for(
    door: Door, asked: bytes, hostname: str, port: int | None
) -> None:
    with door.connect() as client:
        client.send(asked + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer().status == 403
        address, own_port = client.sock.getsockname()
    event = last_event(door)
    assert event["metadata"]["event_code"] == "connection_denied"
    assert (event["dst_endpoint"]["hostname"], event["dst_endpoint"].get("port")) == (hostname, port)
    assert (event["src_endpoint"]["ip"], event["src_endpoint"]["port"]) == (address, own_port)
    assert f" host={hostname} " in door.log.getvalue() or len(hostname) > 200
    assert "canary" not in door.log.getvalue() + door.ocsf.getvalue()


def test_a_completed_inference_says_what_it_was_and_what_it_cost(door: Door, upstream: Upstream) -> None:
    answer = b'{"choices":[],"usage":{"prompt_tokens":25,"completion_tokens":120,"total_tokens":145}}'
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.respond(answer)
        request_id = client.answer().value(b"x-pointsman-request-id")
    event = last_event(door)
    port = int(upstream.url.rpartition(":")[2].removesuffix("/v1"))
    assert request_id is not None
    assert event["metadata"]["correlation_uid"] == request_id.decode()
    assert event["ai_model"] == {"name": "real-model", "ai_provider": f"http://127.0.0.1:{port}"}
    assert event["dst_endpoint"] == {"hostname": "127.0.0.1", "port": port}
    assert event["api"]["operation"] == "POST /v1/chat/completions"
    assert event["http_request"]["body_length"] == len(SOME_BODY)
    assert (event["http_response"]["code"], event["http_response"]["body_length"]) == (200, len(answer))
    tokens = {key: value for key, value in event["message_context"].items() if key != "service"}
    assert tokens == {"prompt_tokens": 25, "completion_tokens": 120, "total_tokens": 145}
    assert event["unmapped"]["route"] == "inference.local"
    assert event["unmapped"]["protocol"] == "openai_chat_completions"
    assert event["end_time"] - event["start_time"] == event["duration"] == int(event["unmapped"]["latency_ms"])


def test_a_request_is_told_while_it_runs(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        assert last_event(door)["metadata"]["event_code"] == "request_matched"
        peer.respond()
        client.answer()
    assert last_event(door)["metadata"]["event_code"] == "infer_completed"


def test_a_truncated_stream_says_how_many_bytes_had_passed(door: Door, upstream: Upstream) -> None:
    with door.tunnel() as client:
        peer = begin(client, upstream)
        peer.start_events()
        peer.chunk(b"data: 12345\n\n")
        client.read_until(b"\n\n")
        peer.close()
        client.read_until(b"0\r\n\r\n")
    last_event(door)
    fault = read_events(door.ocsf.getvalue())[-2]
    assert (fault["metadata"]["event_code"], fault["status_detail"]) == ("stream_truncated", "upstream read error")
    assert fault["traffic"] == {"bytes_in": 13, "bytes_out": len(SOME_BODY)}


@pytest.mark.parametrize(("routes", "word"), [((), "not_configured"), (("openai_embeddings",), "no_compatible_route")])
def test_a_request_without_a_route_fails_without_a_model(routes: tuple[str, ...], word: str) -> None:
    candidates = [candidate("http://127.0.0.1:9", protocols=routes)] if routes else []
    with Door(*candidates) as door:
        with door.tunnel() as client:
            client.send(post())
            client.answer()
        event = last_event(door)
        assert (event["metadata"]["event_code"], event["status_code"]) == ("infer_failed", word)
        assert "ai_model" not in event


def test_a_mock_route_leaves_valid_events() -> None:
    with Door(candidate("mock://anything")) as door, door.tunnel() as client:
        client.send(post(json.dumps({"messages": []}).encode()))
        assert client.answer().status == 200
        assert last_event(door)["ai_model"]["name"] == "real-model"


class BrokenBackend:
    """A bug: raises what no backend should, with a secret in its text."""

    async def open(self, call: object) -> Any:
        raise KeyError("sk-canary-inside-an-exception")


def test_a_bug_of_ours_names_its_place_and_not_its_text() -> None:
    with Door(candidate("https://127.0.0.1:9")) as door:
        door.router._backends["https"] = BrokenBackend()
        with door.tunnel() as client:
            client.send(post())
            assert client.answer().status == 502
        door.logged()
        kinds = [each["metadata"]["event_code"] for each in read_events(door.ocsf.getvalue())]
        assert kinds == ["request_matched", "internal_error", "infer_failed"]
        assert "KeyError in BrokenBackend.open, test_events_told.py line " in door.log.getvalue()
        assert "canary" not in door.log.getvalue() + door.ocsf.getvalue()
