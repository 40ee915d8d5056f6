"""Requests put together at random from what could name the system route: none reaches it."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.candidate import SANDBOX_SYSTEM
from tests.support.door import Door, candidate
from tests.support.upstream import Upstream

NAMES = ("sandbox-system", "SANDBOX-SYSTEM", "sandbox%2dsystem", "inference.local", "system", "")
PATHS = ("/v1/chat/completions", "/v1/models", "/v1/models/{}", "/{}/v1/messages", "/v1/responses?route={}", "/{}")
FIELDS = (
    "x-pointsman-route",
    "x-route",
    "x-model-id",
    "x-pointsman-hop",
    "host",
    "authorization",
    "x-pointsman-account",
)


class Scene:
    """A door with a mock for the agents, and an upstream that only the system route leads to."""

    def __init__(self, door: Door, upstream: Upstream) -> None:
        self.door = door
        self.upstream = upstream


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Upstream() as upstream:
        system = candidate(upstream.url, route=SANDBOX_SYSTEM)
        with Door(candidate("mock://canned", api_key=None), system) as door:
            yield Scene(door, upstream)


def test_the_supervisors_own_call_does_reach_it(scene: Scene) -> None:
    call: tuple[Any, ...] = ("openai_chat_completions", "POST", "/v1/chat/completions", [], b"{}")
    supervisor = threading.Thread(target=scene.door.system_inference, args=call)
    supervisor.start()
    peer = scene.upstream.accept()
    peer.request()
    peer.respond(fields=b"Connection: close\r\n")
    supervisor.join(10)


@pytest.mark.guarantee("G5")
@given(
    method=st.sampled_from(["POST", "GET"]),
    path=st.sampled_from(PATHS),
    name=st.sampled_from(NAMES),
    fields=st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from(NAMES)), max_size=3),
    keys=st.lists(st.sampled_from(["model", "route", "name", "provider_name"]), max_size=3),
    host=st.sampled_from(["inference.local", "sandbox-system", "inference.local:443"]),
)
def test_no_request_reaches_the_system_route_whatever_it_names(
    scene: Scene, method: str, path: str, name: str, fields: list[tuple[str, str]], keys: list[str], host: str
) -> None:
    body = json.dumps(dict.fromkeys(keys, name))
    lines = [f"{method} {path.format(name)} HTTP/1.1", f"Host: {host}", *(f"{key}: {value}" for key, value in fields)]
    request = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", body])
    with scene.door.tunnel() as client:
        client.send(request.encode())
        answer = client.answer()
        assert answer.value(b"x-pointsman-route") in (None, b"inference.local")
        assert answer.status in (200, 400, 403)
    assert scene.upstream.saw_nothing(0.0)
