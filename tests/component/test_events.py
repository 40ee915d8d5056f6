"""Every outcome at a real door leaves the events it should: valid, told twice, and without what is secret."""

import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pointsman.core.event_kinds import EVENT_KINDS
from pointsman.core.limits import Limits
from tests.support.door import KEY, Door, candidate
from tests.support.ocsf import read_events
from tests.support.raw_client import GET_MODELS, post
from tests.support.upstream import Upstream, begin

CANARY = "sk-canary-9b2e77d0"
_HIDDEN = f"x-secret: {CANARY}\r\nAuthorization: Bearer {CANARY}\r\nCookie: a={CANARY}\r\n".encode()
_BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": CANARY}]}).encode()
_REQUEST = post(_BODY, b"/v1/chat/completions?key=" + CANARY.encode(), _HIDDEN)
CONNECT = (
    b"CONNECT inference.local:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic " + CANARY.encode() + b"\r\n\r\n"
)


class Scene:
    """A door, its upstream, and what is told of both."""

    def __init__(self, door: Door, upstream: Upstream) -> None:
        self.door = door
        self.upstream = upstream

    def events(self, expected: int) -> list[dict[str, Any]]:
        """All events when so many are there, each valid, with its human twin in the same place."""
        deadline = time.monotonic() + 10
        while len(lines := self.door.logged().splitlines()) < expected and time.monotonic() < deadline:
            pass  # what the client last saw may come before the door's own look at it
        events = read_events(self.door.ocsf.getvalue())
        assert len(lines) == len(events)
        for line, event in zip(lines, events, strict=True):
            kind, *words = line.removeprefix("pointsman: ").split(" ")
            assert kind == event["metadata"]["event_code"]
            assert f"id={event['metadata']['correlation_uid']}" in words
            assert ("status_code" in event) == any(word == f"reason={event.get('status_code')}" for word in words)
        assert len({event["metadata"]["uid"] for event in events}) == len(events)
        for secret in (CANARY, KEY):
            assert secret not in self.door.log.getvalue() + self.door.ocsf.getvalue()
        return events


@pytest.fixture
def scene(upstream: Upstream, quick_limits: Limits) -> Iterator[Scene]:
    limits = replace(quick_limits, response_body_bytes=2000)
    with Door(candidate(upstream.url), limits=limits) as door:
        yield Scene(door, upstream)


def completed(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        client.send(_REQUEST)
        peer = scene.upstream.accept()
        peer.request()
        peer.respond(b'{"usage":{"prompt_tokens":3,"completion_tokens":4},"x":"%b"}' % CANARY.encode())
        assert client.answer().status == 200


def stream_completed(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        client.send(_REQUEST)
        peer = scene.upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n')
        peer.end_chunks()
        assert client.answer().complete


def stream_without_an_end(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        client.send(_REQUEST)
        peer = scene.upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b'data: {"choices":[{"finish_reason":null}]}\n\n')
        peer.end_chunks()
        assert client.answer().complete


def answer(status: int) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with scene.door.tunnel() as client:
            client.send(_REQUEST)
            peer = scene.upstream.accept()
            peer.request()
            # The body of any other answer is the upstream's, whatever is in it.
            key = KEY if status in (401, 403) else ""
            text = f'{{"error":"Incorrect API key provided: {key}, {CANARY}"}}'.encode()
            head = f"HTTP/1.1 {status} {CANARY}\r\nX-Secret: {CANARY}\r\nContent-Length: {len(text)}\r\n\r\n"
            peer.send(head.encode() + text)
            assert client.answer().status == status

    return run


def broken_answer(data: bytes) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with scene.door.tunnel() as client:
            client.send(_REQUEST)
            peer = scene.upstream.accept()
            peer.request()
            peer.send(data)
            peer.close()
            assert client.answer().status == 502

    return run


def silent_upstream(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        client.send(_REQUEST)
        scene.upstream.accept().request()
        assert client.answer().status == 503


def cut(how: str) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with scene.door.tunnel() as client:
            client.send(_REQUEST)
            peer = scene.upstream.accept()
            peer.request()
            peer.start_events()
            peer.chunk(b"data: %b\n\n" % (CANARY.encode() if how != "cap" else b"x" * 2000))
            if how == "reset":
                client.read_until(b"\n\n")
                peer.reset()
            assert b"proxy_stream_error" in client.read_until(b"\r\n0\r\n\r\n")

    return run


def client_gone(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        peer = begin(client, scene.upstream)
        client.reset()
        assert peer.wait_closed(5)


def bad_body(scene: Scene) -> None:
    with scene.door.tunnel() as client:
        client.send(post(b'{"model":"%b",' % CANARY.encode(), fields=_HIDDEN))
        assert client.answer().status == 400


def sent(data: bytes, status: int) -> Callable[[Scene], None]:
    """Bytes inside the tunnel that are refused at once."""

    def run(scene: Scene) -> None:
        with scene.door.tunnel() as client:
            client.send(data)
            assert client.answer().status == status

    return run


def asked(data: bytes, status: int) -> Callable[[Scene], None]:
    """Bytes at the proxy's port that are refused at once."""

    def run(scene: Scene) -> None:
        with scene.door.connect() as client:
            client.send(data)
            assert client.answer().status == status

    return run


def never_asked(scene: Scene) -> None:
    with scene.door.connect() as client:
        client.send(CONNECT[:30])
        assert client.read_to_end() == b""


def handshake(start: Callable[[Any, Scene], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with scene.door.connect() as client:
            client.send(CONNECT)
            client.read_until(b"\r\n\r\n")
            with contextlib.suppress(ssl.SSLError, OSError):
                start(client, scene)
            with contextlib.suppress(OSError):
                client.read_to_end()

    return run


def other_name(client: Any, scene: Scene) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.wrap_socket(client.sock, server_hostname="example.com")


ENDED = ["request_matched"]
NO_HEAD = [*ENDED, "upstream_failed upstream_protocol", "infer_failed upstream_protocol"]
TRUNCATED = [*ENDED, "stream_truncated stream_truncated", "infer_failed stream_truncated"]
LONG = b"GET /v1/%b HTTP/1.1\r\nHost: inference.local\r\n\r\n" % (b"a" * 9000)
ELSEWHERE = b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"
BAD_FIELD = post(fields=b"A\x01: %b\r\n" % CANARY.encode())
REFUSED = "request_refused"
MALFORMED = "request_refused malformed_request"
SCENES: dict[str, tuple[Callable[[Scene], None], list[str]]] = {
    "completed": (completed, [*ENDED, "infer_completed"]),
    "stream completed": (stream_completed, [*ENDED, "infer_completed"]),
    "stream without an end": (stream_without_an_end, [*ENDED, "infer_failed stream_truncated"]),
    "key refused": (answer(401), [*ENDED, "infer_failed auth_error"]),
    "rate limit": (answer(429), [*ENDED, "infer_failed rate_limit"]),
    "no such model": (answer(404), [*ENDED, "infer_failed model_unavailable"]),
    "request disliked": (answer(422), [*ENDED, "infer_failed request_rejected"]),
    "upstream's error": (answer(500), [*ENDED, "infer_failed server_error"]),
    "redirect": (answer(302), [*ENDED, "infer_failed server_error"]),
    "no HTTP": (broken_answer(b"%b\r\n\r\n" % CANARY.encode()), NO_HEAD),
    "bad header": (broken_answer(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % CANARY.encode()), NO_HEAD),
    "no head": (broken_answer(b""), NO_HEAD),
    "silence": (silent_upstream, [*ENDED, "upstream_failed upstream_unavailable", "infer_failed upstream_unavailable"]),
    "cut": (cut("reset"), TRUNCATED),
    "idle": (cut("idle"), TRUNCATED),
    "too long": (cut("cap"), TRUNCATED),
    "client gone": (client_gone, [*ENDED, "infer_cancelled client_gone"]),
    "bad body": (bad_body, [*ENDED, MALFORMED]),
    "wrong path": (sent(GET_MODELS.replace(b"models", CANARY.encode()), 403), ["request_denied not_inference"]),
    "bad HTTP": (sent(b"GET\r\n\r\n", 400), [MALFORMED]),
    "bad header value": (
        sent(BAD_FIELD, 400),
        [MALFORMED],
    ),
    "long target": (
        sent(LONG, 414),
        [REFUSED + " target_too_long"],
    ),
    "slow body": (sent(post(b"xx")[:-1], 408), [REFUSED + " request_timeout"]),
    "coded body": (sent(post(fields=b"Content-Encoding: gzip\r\n"), 415), [REFUSED + " encoded_body"]),
    "elsewhere": (
        asked(ELSEWHERE, 403),
        ["connection_denied not_inference"],
    ),
    "bad CONNECT": (asked(b"CONNECT inference.local:443\r\n\r\n", 400), [MALFORMED]),
    "slow CONNECT": (never_asked, [REFUSED + " request_timeout"]),
    "distrust": (
        handshake(lambda client, _: client.start_tls(ssl.create_default_context(), "inference.local")),
        ["handshake_failed ca_not_trusted"],
    ),
    "other name": (handshake(other_name), ["handshake_failed wrong_name"]),
    "clear text": (handshake(lambda client, _: client.send(GET_MODELS)), ["handshake_failed not_tls"]),
    "no handshake": (handshake(lambda client, _: None), ["handshake_failed handshake_timeout"]),
    "hung up": (handshake(lambda client, _: client.half_close()), ["handshake_failed handshake_ended"]),
}


@pytest.mark.parametrize("name", SCENES)
def test_an_outcome_leaves_its_events(scene: Scene, name: str) -> None:
    provoke, expected = SCENES[name]
    provoke(scene)
    events = scene.events(len(expected))
    told = [f"{each['metadata']['event_code']} {each.get('status_code', '')}".strip() for each in events]
    assert told == expected


def test_the_scenes_show_every_kind_that_a_request_can_leave() -> None:
    shown = {word.split(" ")[0] for _, expected in SCENES.values() for word in expected}
    # The others: tests of the proxy's start, of its gateway, of its log, and of a bug.
    rest = {"routes_loaded", "inference_enabled", "inference_disabled", "events_dropped", "internal_error"}
    rest |= {"routes_updated", "route_left_out", "fetch_failed", "fetch_recovered"}
    assert shown == {kind.name for kind in EVENT_KINDS} - rest
