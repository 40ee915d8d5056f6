"""Who may call what on a real gateway: keys, sandbox tokens, requests that come back around, and the rows of all."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.answering_upstream import AnsweringUpstream
from tests.support.ports import free_ports
from tests.support.processes import following_process
from tests.support.raw_client import RawClient, post
from tests.support.serving_gateway import ServingGateway, serving_gateway
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until


@pytest.fixture
def answering() -> Iterator[AnsweringUpstream]:
    with AnsweringUpstream() as answering:
        yield answering


def code_of(body: bytes) -> str:
    code: str = json.loads(body)["error"]["code"]
    return code


def chain(gateway: ServingGateway, name: str, *candidates: str) -> None:
    more = [word for each in candidates for word in ("--candidate", each)]
    gateway.run("route", "create", name, *more, "--no-verify")


@pytest.fixture
def closed(tmp_path: Path, answering: AnsweringUpstream) -> Iterator[ServingGateway]:
    """Asks for keys; has three chains, of which sandboxes know two."""
    with serving_gateway(tmp_path / "data", "--data-auth=keys") as gateway:
        gateway.provide("work", answering.url)
        for name in ("fast", "system", "other"):
            chain(gateway, name, f"work=real-{name}")
        gateway.run("inference", "set", "--route", "fast", "--no-verify")
        gateway.run("inference", "set", "--system", "--route", "system", "--no-verify")
        yield gateway


@pytest.mark.guarantee("L1")
def test_a_sandboxs_token_opens_its_own_bundles_routes_and_no_others(closed: ServingGateway) -> None:
    shared = closed.run("sandbox", "token", "create", "shared")
    own = closed.run("sandbox", "token", "create", "own", "--route", "other")
    wait_until(lambda: closed.call("other", own).status == 200)
    assert closed.models(shared) == ["fast", "system"]
    assert closed.models(own) == ["other", "system"]
    for token, model, status in (
        (shared, "fast", 200),
        (shared, "system", 200),
        (shared, "other", 403),
        (shared, "nobody", 404),
        (shared, "inference.local", 404),
        (own, "other", 200),
        (own, "fast", 403),
        ("pointsman-sandbox-unknown", "fast", 401),
        ("", "fast", 401),
    ):
        answer = closed.call(model, token)
        assert answer.status == status, (model, answer.body)
        if status == 403:
            assert code_of(answer.body) == "model_not_authorized"
    closed.run("sandbox", "token", "revoke", "own")
    wait_until(lambda: closed.call("other", own).status == 401)
    assert closed.call("fast", shared).status == 200


def test_a_sandbox_in_a_chain_is_let_in_by_its_own_token_and_has_rows_of_its_own(
    closed: ServingGateway, tmp_path: Path
) -> None:
    token = closed.run("sandbox", "token", "create", "laptop")
    key = closed.run("key", "create", "laptop")
    wait_until(lambda: closed.call("other", key).status == 200)
    with (
        following_process(closed.url, token, tmp_path) as proxy,
        RawClient(socket.create_connection(("127.0.0.1", proxy.port), 20)) as client,
    ):
        client.enter_tunnel(proxy.client_context())
        client.send(post(b'{"model":"any"}'))
        answer = client.answer()
    assert (answer.status, answer.value(b"x-pointsman-route"), answer.value(b"x-pointsman-model")) == (
        200,
        b"fast",
        b"real-fast",
    )
    wait_until(lambda: [row[1] for row in closed.usage()][-1:] == ["fast"])
    rows = [row for row in closed.usage() if row[4] == 200]
    assert rows[-2:] == [
        ("default", "other", "work", "real-other", 200, 5, 1, 1, "laptop"),
        ("default", "fast", "work", "real-fast", 200, 4, 1, 1, "sandbox:laptop"),
    ]


@pytest.fixture
def open_(tmp_path: Path) -> Iterator[ServingGateway]:
    with serving_gateway(tmp_path / "open") as gateway:
        yield gateway


@pytest.mark.guarantee("L3")
def test_a_provider_that_is_the_gateway_itself_is_a_failed_attempt_and_the_chain_goes_on(
    open_: ServingGateway, answering: AnsweringUpstream
) -> None:
    open_.provide("itself", open_.data_url)
    open_.provide("work", answering.url)
    chain(open_, "ring", "itself=ring", "work=real")
    open_.run("route", "create", "straight", "--provider", "itself", "--model", "straight", "--no-verify")
    wait_until(lambda: open_.call("ring").status == 200)
    before = answering.answered.total()
    answer = open_.call("ring")
    assert (answer.status, answer.value(b"x-pointsman-model")) == (200, b"real")
    assert answering.answered.total() == before + 1
    wait_until(lambda: open_.call("straight").status == 508)
    answer = open_.call("straight")
    assert code_of(answer.body) == "loop_detected"
    assert answering.answered.total() == before + 1


def test_a_loop_is_told_in_the_words_of_its_dialect(open_: ServingGateway, upstream: Upstream) -> None:
    open_.provide("hand", upstream.url)
    open_.run("route", "create", "hand", "--provider", "hand", "--model", "real", "--no-verify")
    wait_until(lambda: open_.models("") == ["hand"])
    with open_.connect() as client:
        open_.send(client, {"model": "hand"})
        peer = upstream.accept()
        mark = peer.request().value(b"x-pointsman-hop")
        peer.respond()
        assert client.answer().status == 200
    assert mark is not None
    for path, kind in (("/v1/chat/completions", "server_error"), ("/v1/messages", "api_error")):
        with open_.connect() as client:
            head = b"POST %b HTTP/1.1\r\nHost: a\r\nX-Pointsman-Hop: 1, %b\r\nContent-Length: 2\r\n\r\n{}"
            client.send(head % (path.encode(), mark))
            answer = client.answer()
        assert (answer.status, json.loads(answer.body)["error"]["type"]) == (508, kind)


@pytest.mark.guarantee("L3")
def test_two_gateways_that_point_at_each_other_end(tmp_path: Path) -> None:
    with serving_gateway(tmp_path / "a") as first, serving_gateway(tmp_path / "b", ports=free_ports(3)) as second:
        for one, other in ((first, second), (second, first)):
            one.provide("peer", other.data_url)
            chain(one, "ring", "peer=ring")
        wait_until(lambda: first.models("") == second.models("") == ["ring"])
        answer = first.call("ring")
        assert (answer.status, code_of(answer.body)) == (503, "no_provider_available")
        wait_until(lambda: bool(first.usage()))
        assert [row[4] for row in first.usage()] == [503]
        assert {row[4] for row in second.usage()} == {503}
        assert len(second.usage()) <= 2


@pytest.mark.guarantee("L4")
def test_every_way_out_has_a_row(open_: ServingGateway, upstream: Upstream) -> None:
    open_.provide("hand", upstream.url)
    open_.provide("off", "http://127.0.0.1:1/v1")
    for name in ("hand", "off"):
        open_.run("route", "create", name, "--provider", name, "--model", f"real-{name}", "--no-verify")
    wait_until(lambda: open_.models("") == ["hand", "off"])
    with open_.connect() as client:
        for reply in (
            b'200 OK\r\nContent-Length: 60\r\n\r\n{"usage":{"prompt_tokens":12,"completion_tokens":34}}       ',
            b"400 Bad\r\nContent-Length: 2\r\n\r\n{}",
        ):
            open_.send(client, {"model": "hand"})
            peer = upstream.accept()
            peer.request()
            peer.send(b"HTTP/1.1 " + reply.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            client.answer()
            peer.close()
        open_.send(client, {"model": "hand", "stream": True})
        peer = upstream.accept()
        peer.request()
        peer.start_events()
        peer.chunk(b"data: 1\n\n")
        peer.close()
        client.answer()
        for model in ("off", "nobody"):
            open_.send(client, {"model": model})
            client.answer()
        open_.send(client, {"model": "hand"})
        upstream.accept().request()
    wait_until(lambda: len(open_.usage()) == 6)
    assert open_.usage() == [
        ("default", "hand", "hand", "real-hand", 200, 12, 34, 1, ""),
        ("default", "hand", "hand", "real-hand", 400, None, None, 1, ""),
        ("default", "hand", "hand", "real-hand", 200, 9, 1, 1, ""),
        ("default", "off", "", "", 503, None, None, 1, ""),
        ("default", "", "", "", 404, None, None, 0, ""),
        ("default", "hand", "", "", 0, 5, 0, 1, ""),
    ]


@pytest.mark.guarantee("L4")
def test_a_gateway_that_is_told_to_stop_writes_the_last_rows_and_one_that_is_killed_has_the_others(
    open_: ServingGateway,
) -> None:
    assert open_.call("nobody").status == 404
    assert open_.end(signal.SIGTERM) == 0
    assert len(open_.usage()) == 1
    open_.start()
    assert open_.call("nobody").status == 404
    wait_until(lambda: len(open_.usage()) == 2, seconds=10)
    open_.end(signal.SIGKILL)
    assert len(open_.usage()) == 2
