"""Direct models on the data listener: served where they may lead to, and never dialled anywhere else."""

import ipaddress
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pointsman.core.ai_model import DIRECT, AiModel
from pointsman.core.candidate import Candidate
from pointsman.core.model_table import ModelTable
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.routing.registered_models import direct_candidate
from tests.support.canary import PROMPT
from tests.support.data_door import DataDoor
from tests.support.door import Door, candidate
from tests.support.name_server import in_own_network
from tests.support.raw_client import Answer, RawClient
from tests.support.raw_client import post as to_door
from tests.support.upstream import Upstream, UpstreamPeer

OPENED = DirectReach((ipaddress.ip_network("127.0.0.1/32"),))
SPELLINGS = ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]")
"""Of an address where `upstream` listens."""

MARK = b"0123456789abcdef"


def direct(url: str) -> Candidate:
    return direct_candidate(AiModel("0" * 32, "default", "Mine", "mine", DIRECT, None, url, "real-mine", 0.0))


def provided(url: str) -> Candidate:
    """An operator's provider, which has no key either."""
    return candidate(url, route="ours", model="real-ours", provider_type="openai_compatible", api_key=None)


@contextmanager
def serving(reach: DirectReach, *candidates: Candidate) -> Iterator[DataDoor]:
    data = DataDoor(table=ModelTable({each.route: each for each in candidates}))
    data.reach = reach
    data.mark = MARK
    with data:
        yield data
        assert "internal error" not in data.logged()
    assert not data.leftover


def send(client: RawClient, model: str, *, stream: bool = False, fields: bytes = b"") -> None:
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": PROMPT}]}).encode()
    client.send(to_door(body, fields=fields))


def ask(data: DataDoor, model: str, *, stream: bool = False) -> Answer:
    with data.connect() as client:
        send(client, model, stream=stream)
        return client.answer()


def refused(host: str) -> str:
    return f'upstream_unavailable detail="{host} has no address that may be dialled"'


def told(data: DataDoor) -> list[str]:
    """Why upstreams failed, by the log."""
    return [line.partition(" reason=")[2] for line in data.logged().splitlines() if " upstream_failed " in line]


@pytest.mark.guarantee("M2")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", SPELLINGS)
def test_a_direct_model_on_this_machine_is_not_dialled(upstream: Upstream, host: str, scheme: str) -> None:
    name = host.strip("[]")
    with serving(ONLY_PUBLIC, direct(f"{scheme}://{host}:{upstream.port}/v1")) as data:
        for number, stream in enumerate((False, True), 1):
            answer = ask(data, "mine", stream=stream)
            assert answer.status == 503
            # What its name leads to in here is the operator's business.
            assert json.loads(answer.body)["error"]["message"] == "inference service unavailable"
            assert told(data) == [refused(name)] * number
    assert upstream.saw_nothing()


@pytest.mark.guarantee("M2")
@pytest.mark.parametrize("host", SPELLINGS)
def test_what_the_operator_has_opened_is_served_whole_and_as_a_stream(upstream: Upstream, host: str) -> None:
    url = f"http://{host}:{upstream.port}/v1"
    with serving(OPENED, direct(url)) as data, data.connect() as client:
        send(client, "mine")
        peer = upstream.accept()
        received = peer.request()
        assert received.line == b"POST /v1/chat/completions HTTP/1.1"
        assert received.value(b"host") == f"{host}:{upstream.port}".encode()
        assert json.loads(received.body)["model"] == "real-mine"
        peer.respond(b'{"ok":true}')
        answer = client.answer()
        assert (answer.status, answer.body) == (200, b'{"ok":true}')
        assert (answer.value(b"x-pointsman-route"), answer.value(b"x-pointsman-model")) == (b"mine", b"real-mine")
        send(client, "mine", stream=True)
        peer.request()  # over the same connection
        peer.start_events()
        peer.chunk(b'data: {"n":1}\n\n')
        client.read_until(b'data: {"n":1}\n\n')
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_chunks()
        client.read_until(b"0\r\n\r\n")
    assert upstream.saw_nothing()


@pytest.mark.guarantee("K2")
def test_no_credential_goes_to_a_direct_model_and_the_hop_does(upstream: Upstream) -> None:
    secrets = (b"Authorization", b"Proxy-Authorization", b"X-Api-Key", b"Api-Key", b"Cookie")
    fields = b"".join(b"%b: Bearer secret-of-the-client\r\n" % name for name in secrets)
    with serving(OPENED, direct(upstream.url)) as data, data.connect() as client:
        send(client, "mine", fields=fields + b"Accept: text/event-stream\r\n")
        peer = upstream.accept()
        received = peer.request()
        assert {name.lower() for name, _ in received.fields} == {
            b"host",
            b"accept",
            b"x-pointsman-hop",
            b"content-length",
        }
        assert received.value(b"x-pointsman-hop") == MARK
        peer.respond(b"{}", b"X-Pointsman-Route: another\r\nX-Pointsman-Fallback: local\r\nConnection: close\r\n")
        answer = client.answer()
        assert answer.value(b"x-pointsman-route") == b"mine"
        assert answer.value(b"x-pointsman-fallback") is None
        send(client, "mine", fields=b"X-Pointsman-Hop: %b\r\n" % MARK)
        assert client.answer().status == 508
    assert upstream.saw_nothing()


@pytest.mark.guarantee("M2", "U1")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_direct_model_cannot_send_the_gateway_elsewhere(upstream: Upstream, status: int) -> None:
    with Upstream() as inside, serving(OPENED, direct(upstream.url)) as data, data.connect() as client:
        send(client, "mine")
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 %d X\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (status, inside.url.encode()))
        assert client.answer().status == status
        assert inside.saw_nothing()
        assert upstream.saw_nothing()


@pytest.mark.guarantee("M2")
def test_a_connection_to_an_operators_provider_is_not_lent_to_a_direct_model(upstream: Upstream) -> None:
    with serving(ONLY_PUBLIC, provided(upstream.url), direct(upstream.url)) as data, data.connect() as client:
        send(client, "ours")
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        assert ask(data, "mine").status == 503
        assert upstream.saw_nothing()
        send(client, "ours")
        peer.request()  # it was kept all along
        peer.respond()
        assert client.answer().status == 200
    assert upstream.saw_nothing()


@pytest.mark.guarantee("M2")
def test_each_rule_has_connections_of_its_own_to_the_same_server(upstream: Upstream) -> None:
    with serving(OPENED, provided(upstream.url), direct(upstream.url)) as data, data.connect() as client:
        peers: dict[str, UpstreamPeer] = {}
        for model in ("mine", "ours", "mine", "ours"):
            send(client, model)
            peer = peers.get(model) or upstream.accept()
            peers[model] = peer
            assert json.loads(peer.request().body)["model"] == f"real-{model}"
            peer.respond()
            assert client.answer().status == 200
    assert upstream.saw_nothing()


@pytest.mark.guarantee("M2")
def test_a_router_that_was_told_of_no_opened_networks_confines_too(upstream: Upstream) -> None:
    with Door(replace(candidate(upstream.url), is_confined=True)) as door, door.tunnel() as client:
        client.send(to_door(b'{"model":"x"}'))
        assert client.answer().status == 503
    assert upstream.saw_nothing()


@pytest.mark.guarantee("M2", "U3")
def test_a_name_that_was_public_when_the_model_was_made_is_judged_again_for_each_connection() -> None:
    result: Mapping[str, object] = in_own_network("confined", [])
    assert result["made"] == "http://rebound.example"
    assert result["statuses"] == [200, 503, 503, 503, 200]
    assert result["dialled inside"] == 0
    assert result["reasons"] == [refused("rebound.example")] * 3


def test_a_direct_model_with_a_slow_name_does_not_hold_up_an_operators_provider() -> None:
    assert in_own_network("silent", []) == {"status": 200, "answered": 0}
