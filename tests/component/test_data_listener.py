"""The gateway's data listener: its paths, its own answers, and the data plane's bounds on it."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import trustme

from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.version import VERSION
from tests.support.data_door import DataDoor
from tests.support.raw_client import RawClient

GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: gateway.example:8780\r\n\r\n"


def request(method: str, target: str) -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: anything\r\n\r\n".encode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("gateway.example", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


@pytest.fixture
def data() -> Iterator[DataDoor]:
    with DataDoor() as data:
        yield data
    assert not data.leftover


def test_health_is_ok_and_the_connection_is_kept(data: DataDoor) -> None:
    with data.connect() as client:
        for _ in range(3):
            client.send(GET_HEALTH)
            answer = client.answer()
            assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok", "version": VERSION})
            assert answer.value(b"content-type") == b"application/json"
            assert answer.value(b"x-pointsman-request-id")
    assert data.logged() == ""


@pytest.mark.parametrize("target", ["/health", "/health?x=1"])
def test_head_gets_the_same_head_without_the_body(data: DataDoor, target: str) -> None:
    with data.connect() as client:
        client.send(request("HEAD", target) + GET_HEALTH)
        head = client.read_until(b"\r\n\r\n")
        answer = client.answer()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: %d\r\n" % len(answer.body) in head
    assert answer.status == 200


@pytest.mark.parametrize("target", ["/", "/health/", "/healthz", "/v1/chat/completions/", "/v2/models", "//health"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_every_other_path_is_404_in_openais_shape(data: DataDoor, method: str, target: str) -> None:
    with data.connect() as client:
        client.send(request(method, target) + GET_HEALTH)
        answer = client.answer()
        assert client.read_to_end() == b""  # refused before its body was read: nothing behind it is parsed
    assert answer.status == 404
    assert json.loads(answer.body) == {
        "error": {
            "message": "there is no such path, or not with this method; see the paths under /v1",
            "type": "invalid_request_error",
            "param": None,
            "code": "unknown_url",
        }
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_health_is_only_read(data: DataDoor, method: str) -> None:
    with data.connect() as client:
        client.send(request(method, "/health"))
        answer = client.answer()
    assert (answer.status, answer.value(b"allow")) == (405, b"GET, HEAD")
    assert json.loads(answer.body)["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT inference.local:443 HTTP/1.1\r\nHost: inference.local:443\r\n\r\n", 400),
        (b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10485761\r\n\r\n", 413),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 65536 + b"\r\n\r\n", 431),
    ],
)
def test_what_the_strict_grammar_refuses_is_answered_in_openais_shape(data: DataDoor, sent: bytes, status: int) -> None:
    with data.connect() as client:
        client.send(sent)
        answer = client.answer()
        assert client.read_to_end() == b""
    assert answer.status == status
    error = json.loads(answer.body)["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, None)
    assert "request_refused" in data.logged()


class Store:
    """A store whose health a test decides."""

    def __init__(self) -> None:
        self.asked = 0
        self.check: Callable[[], bool] = lambda: True
        self.answers = asyncio.Event()
        self.answers.set()

    async def is_healthy(self) -> bool:
        self.asked += 1
        await self.answers.wait()
        return self.check()


def fails() -> bool:
    raise OSError("gone")


@pytest.mark.parametrize("check", [lambda: False, fails], ids=["says no", "raises"])
def test_health_is_degraded_when_the_store_is_gone_and_ok_when_it_is_back(check: Callable[[], bool]) -> None:
    store = Store()
    store.check = check
    with DataDoor(store.is_healthy) as data, data.connect() as client:
        client.send(GET_HEALTH)
        answer = client.answer()
        assert (answer.status, json.loads(answer.body)["status"]) == (503, "degraded")
        store.check = lambda: True
        data.advance(1.0)
        client.send(GET_HEALTH)
        assert client.answer().status == 200
    assert not data.leftover


def test_a_store_that_does_not_answer_is_gone() -> None:
    store = Store()
    store.answers.clear()
    with DataDoor(store.is_healthy) as data, data.connect() as client:
        client.send(GET_HEALTH)
        assert client.answer().status == 503
    assert not data.leftover


def test_the_store_is_asked_once_a_second_however_many_ask() -> None:
    store = Store()
    with DataDoor(store.is_healthy) as data:

        def ask() -> None:
            with data.connect() as client:
                client.send(GET_HEALTH * 5)
                assert [client.answer().status for _ in range(5)] == [200] * 5

        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.asked == 1
        data.advance(0.99)
        ask()
        assert store.asked == 1
        data.advance(0.01)
        ask()
        assert store.asked == 2


def test_with_tls_every_name_is_served(server_context: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    with DataDoor(context=server_context) as data:
        for name in ("gateway.example", "127.0.0.1"):
            with data.connect() as client:
                client.start_tls(trusting, name)
                client.send(GET_HEALTH)
                assert client.answer().status == 200
    assert not data.leftover


def test_with_tls_clear_text_gets_no_answer_and_a_line_in_the_log(server_context: ssl.SSLContext) -> None:
    with DataDoor(context=server_context) as data:
        with data.connect() as client:
            client.send(GET_HEALTH)
            assert b"HTTP/" not in client.read_to_end()
        assert "handshake_failed" in data.logged()
    assert not data.leftover


# The data plane's bounds hold here too


@pytest.mark.parametrize("way", ["clear", "tls"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"", None), (b"GET /health HTTP/1.1\r\nHost: x\r\nA: ", 408)],
    ids=["silence", "half a head"],
)
def test_a_client_that_stops_sending_is_ended_at_its_deadline(
    way: str, sent: bytes, status: int | None, server_context: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    context = server_context if way == "tls" else None
    with DataDoor(context=context) as data, data.connect() as client:
        if context is not None:
            client.start_tls(trusting, "gateway.example")
        client.send(GET_HEALTH)
        assert client.answer().status == 200
        client.send(sent)
        seconds = DEFAULT_LIMITS.head_seconds if sent else DEFAULT_LIMITS.keep_alive_seconds
        data.advance(seconds - 1)
        assert_open(client)
        data.advance(1)
        if status is not None:
            assert client.answer().status == status
            data.advance(2)
        assert client.read_to_end() == b""


def assert_open(client: RawClient) -> None:
    """Nothing has come, and the connection has not ended."""
    client.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(10)


def test_a_tls_handshake_has_its_deadline(server_context: ssl.SSLContext) -> None:
    with DataDoor(context=server_context) as data, data.connect() as client:
        client.send(b"\x16\x03\x01")
        data.advance(DEFAULT_LIMITS.tls_handshake_seconds)
        assert client.read_to_end() == b""
        assert "handshake_timeout" in data.logged()


@pytest.mark.limit("connections")
def test_clients_beyond_the_bound_are_told_so_and_let_in_when_another_has_gone() -> None:
    few = replace(DEFAULT_LIMITS, connections=2)
    with DataDoor(limits=few) as data, data.connect() as first, data.connect() as second:
        for client in (first, second):
            client.send(GET_HEALTH)
            assert client.answer().status == 200
        with data.connect() as third:
            answer = third.answer()
            assert (answer.status, json.loads(answer.body)["error"]["type"]) == (503, "server_error")
            assert third.read_to_end() == b""
            data.advance(2)
        first.close()
        data.advance(0)
        with data.connect() as fourth:
            fourth.send(GET_HEALTH)
            assert fourth.answer().status == 200
    assert not data.leftover


def test_closing_ends_idle_connections_and_the_listener(data: DataDoor) -> None:
    with data.connect() as client:
        client.send(GET_HEALTH)
        client.answer()
        data.call(data.listener.close())
        assert client.read_to_end() == b""
    with pytest.raises(ConnectionRefusedError):
        data.connect()
