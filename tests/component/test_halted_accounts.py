"""Halting an account: what runs ends at once and truthfully, what comes is refused, and nobody else is touched."""

import json
from collections.abc import Iterator

import pytest

from pointsman.core.caller import KEY, Caller
from pointsman.core.model_table import Entry, ModelTable
from pointsman.core.token_digest import digest_of
from tests.support.chain_door import ChainDoor, chain
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import RawClient, post
from tests.support.upstream import Upstream, UpstreamPeer

CHAT, MESSAGES = b"/v1/chat/completions", b"/v1/messages"
STOPPED = {
    CHAT: {"error": {"message": "response truncated: account_halted", "type": "proxy_stream_error"}},
    MESSAGES: {
        "type": "error",
        "error": {"type": "proxy_stream_error", "message": "response truncated: account_halted"},
    },
}
STOPPED[CHAT]["error"]["code"] = "account_halted"  # type: ignore[index]


@pytest.fixture
def data(upstream: Upstream) -> Iterator[DataDoor]:
    door = DataDoor(table=ModelTable({"fast": candidate(upstream.url, route="fast")}))
    for account in ("default", "team"):
        door.keys[digest_of(account)] = Entry(Caller(account, "laptop", KEY), door.table)
    with door:
        yield door
    assert not door.leftover


def ask(client: RawClient, account: str, path: bytes = CHAT) -> None:
    client.send(post(b'{"model":"fast"}', path, b"Authorization: Bearer %b\r\n" % account.encode()))


def streaming(client: RawClient, upstream: Upstream, account: str, path: bytes = CHAT) -> UpstreamPeer:
    """A stream whose first event the client has."""
    ask(client, account, path)
    peer = upstream.accept()
    peer.request()
    peer.start_events()
    peer.chunk(b"data: 1\n\n")
    client.read_until(b"data: 1\n\n\r\n")
    return peer


@pytest.mark.guarantee("L5")
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_a_running_stream_ends_at_once_in_one_error_event(data: DataDoor, upstream: Upstream, path: bytes) -> None:
    with data.connect() as client:
        peer = streaming(client, upstream, "team", path)
        peer.chunk(b"data: half")
        data.halt("team")
        rest = client.read_until(b"0\r\n\r\n")
        assert peer.wait_closed()
        size, _, event = rest.partition(b"\r\n")
        event = event.removesuffix(b"\r\n0\r\n\r\n")
        assert int(size, 16) == len(event)
        assert json.loads(event.split(b"data: ")[1]) == STOPPED[path]
        ask(client, "team", path)
        assert client.answer().status == 403
    ends = [(each["event"], each.get("reason")) for each in data.ended()]
    assert ("infer_failed", "account_halted") in ends


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_what_has_no_answer_yet_gets_the_dialects_403(data: DataDoor, upstream: Upstream, path: bytes) -> None:
    with data.connect() as client:
        ask(client, "team", path)
        peer = upstream.accept()
        peer.request()
        data.halt("team")
        answer = client.answer()
        assert peer.wait_closed()
    error = json.loads(answer.body)["error"]
    assert answer.status == 403
    assert "account_halted" in error["message"]
    if path == CHAT:
        assert error["code"] == "account_halted"
    else:
        assert error["type"] == "permission_error"


def test_an_answer_that_is_no_stream_is_cut_visibly(data: DataDoor, upstream: Upstream) -> None:
    with data.connect() as client:
        ask(client, "team")
        peer = upstream.accept()
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        client.read_until(b"{")
        data.halt("team")
        assert b"0\r\n\r\n" not in client.read_to_end()
        assert peer.wait_closed()


@pytest.mark.guarantee("L5")
def test_other_accounts_streams_go_on(data: DataDoor, upstream: Upstream) -> None:
    with data.connect() as client, data.connect() as other:
        theirs = streaming(other, upstream, "default")
        streaming(client, upstream, "team")
        data.halt("team")
        client.read_until(b"0\r\n\r\n")
        theirs.chunk(b"data: [DONE]\n\n")
        theirs.end_chunks()
        assert other.read_until(b"0\r\n\r\n").startswith(b"e\r\ndata: [DONE]")


def test_a_request_whose_body_was_still_coming_is_refused(data: DataDoor, upstream: Upstream) -> None:
    with data.connect() as client:
        whole = post(b'{"model":"fast"}', CHAT, b"Authorization: Bearer team\r\nExpect: 100-continue\r\n")
        client.send(whole[:-1])
        client.read_until(b"100 Continue\r\n\r\n")
        data.halt("team")
        client.send(whole[-1:])
        assert client.answer().status == 403
    assert upstream.saw_nothing()


def test_every_path_but_health_is_refused(data: DataDoor) -> None:
    data.halt("team")
    with data.connect() as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer team\r\n\r\n")
        assert client.answer().status == 200
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer team\r\n\r\n")
        answer = client.answer()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, "account_halted")


def test_without_a_key_a_halted_default_account_is_refused_too(data: DataDoor) -> None:
    data.halt("default")
    with data.connect() as client:
        client.send(post(b'{"model":"fast"}'))
        assert client.answer().status == 403


@pytest.fixture
def two() -> Iterator[ChainDoor]:
    with chain() as running:
        yield running


def test_a_chain_that_waits_for_its_first_asks_nobody_else(two: ChainDoor) -> None:
    two.ask(stream=False)
    peer = two.asked(0)
    two.data.halt("default")
    assert peer.wait_closed()
    assert two.answer().status == 403
    assert two.upstreams[1].saw_nothing()
