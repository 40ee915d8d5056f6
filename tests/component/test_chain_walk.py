"""The attempt loop of chains on real sockets: who is asked next, what is committed to, and what counts."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pointsman.core.attempts import Chain, ErrorCategory, ErrorMapping, Member
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Quota
from tests.support.chain_door import ChainDoor, chain, deny, limited, serve
from tests.support.door import candidate

STREAMING = [pytest.param(False, id="whole"), pytest.param(True, id="stream")]


@pytest.fixture
def two() -> Iterator[ChainDoor]:
    with chain() as running:
        yield running


@pytest.mark.guarantee("A1")
@pytest.mark.parametrize("stream", STREAMING)
def test_the_first_answers_and_nobody_else_is_asked(two: ChainDoor, stream: bool) -> None:
    two.ask(stream=stream)
    serve(two, two.asked(0), stream=stream)
    assert two.upstreams[1].saw_nothing()
    assert two.used() == [1, 0]


@pytest.mark.guarantee("A5", "A6", "A7")
@pytest.mark.parametrize("stream", STREAMING)
@pytest.mark.parametrize("status", [401, 402, 403, 404, 410, 302, 307])
def test_a_provider_that_cannot_serve_is_passed_over_without_a_second_try(
    two: ChainDoor, status: int, stream: bool
) -> None:
    two.ask(stream=stream)
    deny(two.asked(0), status, fields=b"Location: http://elsewhere/\r\n")
    serve(two, two.asked(1), stream=stream)
    assert two.used() == [0, 1]


@pytest.mark.guarantee("A4")
@pytest.mark.parametrize("stream", STREAMING)
@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_servers_error_is_tried_once_more_at_once_then_the_next(two: ChainDoor, status: int, stream: bool) -> None:
    two.ask(stream=stream)
    deny(two.asked(0), status)
    deny(two.asked(0), status)
    serve(two, two.asked(1), stream=stream)
    assert two.used() == [0, 1]


@pytest.mark.guarantee("A4")
def test_a_retry_that_succeeds_is_the_answer(two: ChainDoor) -> None:
    two.ask()
    deny(two.asked(0), 500)
    serve(two, two.asked(0), stream=False)
    assert two.used() == [1, 0]


@pytest.mark.guarantee("A3")
@pytest.mark.parametrize("first", [429, 500])
def test_a_429_exhausts_the_provider_also_as_the_answer_to_a_retry(two: ChainDoor, first: int) -> None:
    two.ask()
    if first == 500:
        deny(two.asked(0), 500)
    before = time.time()
    deny(two.asked(0), 429, fields=b"Retry-After: 100\r\n")
    serve(two, two.asked(1), stream=False)
    assert two.used() == [0, 1]
    assert before + 99 < two.counters(0).exhausted_until < time.time() + 101
    two.ask()
    serve(two, two.asked(1), stream=False)
    assert two.upstreams[0].saw_nothing()


@pytest.mark.guarantee("A8")
@pytest.mark.parametrize("status", [400, 413, 422, 451])
def test_a_request_that_is_rejected_ends_there_and_its_answer_is_the_clients(two: ChainDoor, status: int) -> None:
    two.ask()
    deny(two.asked(0), status, b'{"error":{"message":"no"}}')
    answer = two.answer()
    assert (answer.status, answer.body) == (status, b'{"error":{"message":"no"}}')
    assert two.upstreams[1].saw_nothing()
    assert two.used() == [0, 0]


@pytest.mark.guarantee("A6")
def test_a_provider_that_is_not_there_is_passed_over() -> None:
    with chain(1) as running, socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
        gone.close()
        made = running.data.table.targets["fast"]
        assert isinstance(made, Chain)
        absent = Member("absent", candidate(f"http://127.0.0.1:{port}", route="fast"))
        running.data.table = ModelTable({"fast": replace(made, members=(absent, *made.members))})
        running.ask()
        serve(running, running.asked(0), stream=False)


@pytest.mark.guarantee("A6")
@pytest.mark.parametrize("how", ["reset", "close", "garbage"])
def test_an_answer_that_breaks_before_commit_is_passed_over(two: ChainDoor, how: str) -> None:
    two.ask()
    peer = two.asked(0)
    match how:
        case "reset":
            peer.reset()
        case "close":
            peer.close()
        case "garbage":
            peer.send(b"NOT HTTP AT ALL\r\n\r\n")
    serve(two, two.asked(1), stream=False)
    assert two.used() == [0, 1]


@pytest.mark.guarantee("A6")
@pytest.mark.parametrize(
    "beginning",
    [
        b'data: {"error":{"message":"overloaded"}}\n\n',
        b': ping\n\nevent: error\ndata: {"type":"error"}\n\n',
        b": only a comment\n\n",
        b"",
    ],
)
def test_a_stream_that_begins_with_an_error_or_ends_before_it_has_begun_is_passed_over(
    two: ChainDoor, beginning: bytes
) -> None:
    two.ask(stream=True)
    peer = two.asked(0)
    peer.start_events()
    if beginning:
        peer.chunk(beginning)
    if b"rror" not in beginning:
        peer.end_chunks()
    serve(two, two.asked(1), stream=True)
    assert two.used() == [0, 1]


@pytest.mark.guarantee("A9")
def test_after_the_first_event_nothing_is_tried_again(two: ChainDoor) -> None:
    two.ask(stream=True)
    peer = two.asked(0)
    peer.start_events()
    peer.chunk(b'data: {"n":1}\n\n')
    client = two.client
    assert client is not None
    client.read_until(b'data: {"n":1}\n\n')
    peer.reset()
    assert b'"type":"proxy_stream_error"' in client.read_until(b"0\r\n\r\n")
    assert two.upstreams[1].saw_nothing()
    assert two.used() == [1, 0]


def test_the_last_candidates_stream_is_not_looked_at(two: ChainDoor) -> None:
    two.ask(stream=True)
    deny(two.asked(0), 404)
    peer = two.asked(1)
    peer.start_events()
    peer.chunk(b'data: {"error":{"message":"overloaded"}}\n\n')
    peer.end_chunks()
    assert b"overloaded" in two.answer().body


@pytest.mark.guarantee("A11")
def test_when_nothing_is_left_the_client_is_told_when_to_come_back(two: ChainDoor) -> None:
    two.ask()
    deny(two.asked(0), 429, fields=b"Retry-After: 50\r\n")
    deny(two.asked(1), 429, fields=b"Retry-After: 20\r\n")
    answer = two.answer()
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["type"]) == (503, "no_provider_available", "server_error")
    assert answer.value(b"retry-after") in (b"19", b"20")
    assert answer.value(b"x-pointsman-attempts") == b"2"
    assert answer.value(b"x-pointsman-route") == b"fast"
    two.ask()
    assert two.answer().value(b"x-pointsman-attempts") == b"0"
    assert two.used() == [0, 0]


@pytest.mark.guarantee("A12")
def test_attempts_are_at_most_two_for_each_provider(two: ChainDoor) -> None:
    two.ask()
    for number in (0, 0, 1, 1):
        deny(two.asked(number), 500)
    assert two.answer().value(b"x-pointsman-attempts") == b"4"


@pytest.mark.guarantee("A2")
def test_a_quota_without_room_is_not_asked(two: ChainDoor) -> None:
    two.data.table = ModelTable({"fast": limited(two, Quota(daily_requests=1))})
    for number in (0, 1):
        two.ask()
        serve(two, two.asked(number), stream=False)
    two.ask()
    answer = two.answer()
    assert answer.status == 503
    assert int(answer.value(b"retry-after") or b"0") <= 86_400
    assert two.used() == [1, 1]


@pytest.mark.guarantee("A10")
def test_a_client_that_goes_ends_the_attempt_and_gives_its_place_back(two: ChainDoor) -> None:
    two.ask()
    peer = two.asked(0)
    assert two.client is not None
    two.client.close()
    assert peer.wait_closed()
    assert two.upstreams[1].saw_nothing()
    assert two.used() == [0, 0]


@pytest.mark.guarantee("A14")
def test_an_operators_mapping_by_code_wins() -> None:
    mappings = (ErrorMapping(400, ErrorCategory.RATE_LIMIT, "quota_gone"),)
    with chain(error_mappings=mappings) as running:
        running.ask()
        deny(running.asked(0), 400, b'{"error":{"code":"QUOTA_GONE"}}')
        serve(running, running.asked(1), stream=False)
        assert running.counters(0).exhausted_until > time.time()
        body = b'{"error":{"code":"other"}}'
        running.ask()
        deny(running.asked(1), 400, body)
        answer = running.answer()
        assert (answer.status, answer.body) == (400, body)


@pytest.mark.guarantee("A13")
def test_all_attempts_together_have_the_requests_timeout() -> None:
    with chain(made={"request_timeout_seconds": 0.3}) as running:
        running.ask()
        peer = running.asked(0)
        assert running.answer().status == 503
        assert peer.wait_closed()
        assert running.used() == [0, 0]


@pytest.mark.guarantee("A13")
def test_a_stream_that_has_begun_outlives_the_requests_timeout() -> None:
    with chain(made={"request_timeout_seconds": 0.3}) as running:
        running.ask(stream=True)
        peer = running.asked(0)
        peer.start_events()
        peer.chunk(b'data: {"n":1}\n\n')
        assert running.client is not None
        running.client.read_until(b'data: {"n":1}\n\n')
        assert not peer.wait_closed(0.5)
        peer.chunk(b"data: [DONE]\n\n")
        peer.end_chunks()
        running.client.read_until(b"0\r\n\r\n")
        assert running.used() == [1, 0]


@pytest.mark.guarantee("A14")
@pytest.mark.parametrize(
    ("category", "asked_again"),
    [
        (ErrorCategory.RATE_LIMIT, 0),
        (ErrorCategory.SERVER_ERROR, 1),
        (ErrorCategory.AUTH_ERROR, 0),
        (ErrorCategory.MODEL_UNAVAILABLE, 0),
        (ErrorCategory.UNKNOWN, 0),
    ],
)
def test_a_mapped_error_is_what_it_is_mapped_to(category: ErrorCategory, asked_again: int) -> None:
    with chain(error_mappings=(ErrorMapping(418, category),)) as running:
        running.ask()
        for _ in range(1 + asked_again):
            deny(running.asked(0), 418)
        serve(running, running.asked(1), stream=False)
        assert f"infer_fallback p0 p1 {category}" in running.told()
        assert (running.counters(0).exhausted_until > 0) is (category is ErrorCategory.RATE_LIMIT)


@pytest.mark.guarantee("A8", "A14")
@pytest.mark.parametrize("status", [429, 500])
def test_an_error_mapped_to_a_rejected_request_is_the_clients_answer(status: int) -> None:
    with chain(error_mappings=(ErrorMapping(status, ErrorCategory.REQUEST_REJECTED),)) as running:
        running.ask()
        deny(running.asked(0), status, b'{"error":1}')
        assert running.answer().body == b'{"error":1}'
        assert running.told()[-1] == f"infer_failed request_rejected {status} 1"
        assert running.upstreams[1].saw_nothing()
