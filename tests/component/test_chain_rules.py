"""A chain's bounds and its rarer failures on real sockets: who is given up when, and what may not be counted."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from pointsman.core.attempts import Chain, ErrorCategory, ErrorMapping
from pointsman.core.limits import DEFAULT_LIMITS, KIB
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Counters, LedgerUnavailable, Quota, QuotaKey, Reservation
from pointsman.proxy.memory_ledger import MemoryLedger
from tests.support.canary import KEY
from tests.support.chain_door import ChainDoor, chain, deny, limited, serve
from tests.support.door import candidate

ERROR_EVENT = b'data: {"error":{"message":"overloaded"}}\n\n'
NOT_CODED = (ErrorMapping(400, ErrorCategory.RATE_LIMIT, "quota_gone"),)


@pytest.fixture
def two() -> Iterator[ChainDoor]:
    with chain() as door:
        yield door


class Uncounted(MemoryLedger):
    """Its database has gone."""

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        raise LedgerUnavailable("the disk is full; free some of it")


@pytest.mark.guarantee("A15")
def test_while_nothing_can_be_counted_a_provider_without_a_limit_is_tried() -> None:
    with chain(ledger=Uncounted()) as door:
        route = door.data.table.targets["fast"]
        assert isinstance(route, Chain)
        first = replace(route.members[0], quota=Quota(requests_per_minute=10))
        door.data.table = ModelTable({"fast": replace(route, members=(first, route.members[1]))})
        door.ask()
        serve(door, door.asked(1), stream=False)
        assert door.upstreams[0].saw_nothing()
        told = ["infer_ordering p0,p1", "infer_fallback p0 p1 uncounted", "infer_completed p1 1 fallback"]
        assert door.told() == told


@pytest.mark.guarantee("A15")
@pytest.mark.parametrize("quota", [Quota(daily_requests=1), Quota(requests_per_minute=1)])
def test_when_nobody_is_left_since_nothing_can_be_counted_the_client_may_come_back_in_a_second(quota: Quota) -> None:
    with chain(ledger=Uncounted(), quota=quota) as door:
        door.ask()
        answer = door.answer()
        assert (answer.status, answer.value(b"retry-after")) == (503, b"1")
        assert door.told()[-1] == "infer_failed exhausted 503 0"
        assert "p0 uncounted (the disk is full; free some of it)" in door.data.logged()


@pytest.mark.guarantee("A15")
def test_a_provider_without_a_limit_that_answered_429_stays_exhausted_while_nothing_can_be_counted() -> None:
    with chain(ledger=Uncounted()) as door:
        door.ask()
        deny(door.asked(0), 429, fields=b"Retry-After: 100\r\n")
        serve(door, door.asked(1), stream=False)
        door.ask()
        serve(door, door.asked(1), stream=False)
        assert door.upstreams[0].saw_nothing()


class UncountedAndExhausted(Uncounted):
    """Another request hears of p0's 429 between this one's plan and its turn."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def counters(self, key: QuotaKey, quota: Quota, now: float) -> Counters:
        self._asked += key.provider == "p0"
        return Counters(exhausted_until=now + 50 if key.provider == "p0" and self._asked > 1 else 0.0)


@pytest.mark.guarantee("A15")
def test_a_429_that_another_request_met_since_the_plan_holds_while_nothing_can_be_counted() -> None:
    with chain(ledger=UncountedAndExhausted()) as door:
        door.ask()
        serve(door, door.asked(1), stream=False)
        assert door.told()[1] == "rate_limit_hit p0 exhausted"


@pytest.mark.limit("first_event_bytes")
@pytest.mark.guarantee("A6")
@pytest.mark.parametrize(("beyond", "committed"), [(-1, False), (0, False), (1, True)])
def test_an_error_event_is_seen_if_it_ends_within_the_first_16_kib(beyond: int, committed: bool) -> None:
    limit = DEFAULT_LIMITS.first_event_bytes
    assert limit == 16 * KIB
    comment = b": " + b"x" * (limit + beyond - len(ERROR_EVENT) - 4) + b"\n\n"
    assert len(comment + ERROR_EVENT) == limit + beyond
    with chain() as door:
        door.ask(stream=True)
        peer = door.asked(0)
        peer.start_events()
        peer.chunk(comment + ERROR_EVENT)
        if committed:
            peer.end_chunks()
            assert ERROR_EVENT in door.answer().body
        else:
            serve(door, door.asked(1), stream=True)


@pytest.mark.limit("error_body_bytes")
@pytest.mark.guarantee("A14")
@pytest.mark.parametrize(("beyond", "mapped"), [(-1, True), (0, True), (1, False)])
def test_a_code_is_looked_for_in_error_bodies_of_up_to_64_kib(beyond: int, mapped: bool) -> None:
    limit = DEFAULT_LIMITS.error_body_bytes
    assert limit == 64 * KIB
    code = b'{"error":{"code":"quota_gone"}}'
    body = code + b" " * (limit + beyond - len(code))
    with chain(error_mappings=NOT_CODED) as door:
        door.ask()
        deny(door.asked(0), 400, body)
        if mapped:
            serve(door, door.asked(1), stream=False)
        else:
            answer = door.answer()
            assert (answer.status, answer.body) == (400, body)


@pytest.mark.limit("error_body_seconds")
@pytest.mark.guarantee("A14")
def test_an_error_body_that_does_not_come_is_not_waited_for() -> None:
    mappings = (ErrorMapping(500, ErrorCategory.RATE_LIMIT, "quota_gone"),)
    with chain(limits=replace(DEFAULT_LIMITS, error_body_seconds=0.2), error_mappings=mappings) as door:
        door.ask()
        for _ in range(2):
            began = time.monotonic()
            peer = door.asked(0)
            peer.send(b'HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\n{"error":')
            assert peer.wait_closed(10)
            assert time.monotonic() - began >= 0.19
        serve(door, door.asked(1), stream=False)


@pytest.mark.guarantee("A6")
@pytest.mark.parametrize("own", [False, True], ids=["the limit", "its own timeout"])
def test_a_head_that_does_not_come_in_time_is_given_up_for_the_next(two: ChainDoor, own: bool) -> None:
    seconds = 7.0 if own else DEFAULT_LIMITS.response_header_seconds
    if own:
        route = two.data.table.targets["fast"]
        assert isinstance(route, Chain)
        slow = replace(route.members[0], candidate=replace(route.members[0].candidate, timeout_seconds=seconds))
        two.data.table = ModelTable({"fast": replace(route, members=(slow, route.members[1]))})
    two.ask()
    peer = two.asked(0)
    two.data.advance(seconds - 0.1)
    assert not peer.wait_closed(0.1)
    two.data.advance(0.2)
    serve(two, two.asked(1), stream=False)
    assert two.told()[1] == "infer_fallback p0 p1 server_error"


@pytest.mark.guarantee("A6")
def test_a_provider_without_tls_where_tls_is_expected_gets_no_request(two: ChainDoor) -> None:
    route = two.data.table.targets["fast"]
    assert isinstance(route, Chain)
    secure = candidate(two.upstreams[0].url.replace("http://", "https://"), route="fast", model="model-0")
    members = (replace(route.members[0], candidate=secure), route.members[1])
    two.data.table = ModelTable({"fast": replace(route, members=members)})
    two.ask()
    peer = two.upstreams[0].accept()
    assert peer.sock.recv(1) == b"\x16"  # a handshake, and nothing of HTTP
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    serve(two, two.asked(1), stream=False)
    assert two.told()[1] == "infer_fallback p0 p1 server_error"


@pytest.mark.guarantee("A6")
def test_a_refused_connection_is_told_once_and_costs_no_place(two: ChainDoor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    route = two.data.table.targets["fast"]
    assert isinstance(route, Chain)
    absent = replace(route.members[0], candidate=candidate(f"http://127.0.0.1:{port}/v1", route="fast"))
    two.data.table = ModelTable({"fast": replace(route, members=(absent, route.members[1]))})
    two.ask()
    serve(two, two.asked(1), stream=False)
    assert two.told()[1:] == ["infer_fallback p0 p1 server_error", "infer_completed p1 2 fallback"]
    assert two.used() == [0, 1]


@pytest.mark.guarantee("A1")
def test_interim_answers_are_no_outcome(two: ChainDoor) -> None:
    two.ask()
    peer = two.asked(0)
    peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
    serve(two, peer, stream=False)


@pytest.mark.guarantee("A9")
def test_a_json_body_that_breaks_after_commit_is_cut_and_nobody_else_is_asked(two: ChainDoor) -> None:
    two.ask()
    peer = two.asked(0)
    peer.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"n":')
    assert two.client is not None
    two.client.read_until(b'{"n":')
    peer.reset()
    assert b"0\r\n\r\n" not in two.client.read_to_end()
    assert two.upstreams[1].saw_nothing()
    assert two.told() == ["infer_ordering p0,p1", "infer_failed stream_truncated 200 1"]
    assert two.used() == [1, 0]


@pytest.mark.guarantee("A3")
@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        ("Retry-After: 100", 100),
        ("Retry-After: {date}", 100),
        ("retry-after-ms: 100000", 100),
        ("x-ratelimit-reset-requests: 1m40s", 100),
        ("x-ratelimit-reset: {epoch}", 100),
        ("anthropic-ratelimit-requests-reset: {rfc3339}", 100),
        ("Retry-After: 0", 1),
    ],
)
def test_a_429_exhausts_until_the_moment_that_it_names(two: ChainDoor, field: str, seconds: int) -> None:
    now = time.time()
    rfc3339 = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 100))
    line = field.format(date=formatdate(now + 100, usegmt=True), epoch=int(now + 100), rfc3339=rfc3339)
    two.ask()
    deny(two.asked(0), 429, fields=line.encode() + b"\r\n")
    serve(two, two.asked(1), stream=False)
    until = two.counters(0).exhausted_until
    assert (until == 0.0 and seconds == 1) or now + seconds - 1.1 < until < time.time() + seconds + 0.1


@pytest.mark.guarantee("A11")
@pytest.mark.parametrize(("status", "told"), [(503, b"1"), (404, None)])
def test_the_earliest_recovery_is_that_of_a_servers_error_which_may_pass_at_once(
    two: ChainDoor, status: int, told: bytes | None
) -> None:
    two.ask()
    deny(two.asked(0), status)
    if status == 503:
        deny(two.asked(0), status)
    deny(two.asked(1), 404)
    answer = two.answer()
    assert (answer.status, answer.value(b"retry-after")) == (503, told)


@pytest.mark.guarantee("A13")
def test_the_requests_timeout_spans_all_attempts() -> None:
    with chain(made={"request_timeout_seconds": 1.0}) as door:
        began = time.monotonic()
        door.ask()
        peer = door.asked(0)
        assert not peer.wait_closed(0.5)
        deny(peer, 404)
        second = door.asked(1)
        answer = door.answer()
        assert answer.status == 503
        assert answer.value(b"retry-after") == b"1"
        assert time.monotonic() - began >= 0.99
        assert second.wait_closed()


@pytest.mark.guarantee("A13")
def test_an_answer_that_begins_before_the_requests_timeout_is_relayed_to_its_end() -> None:
    with chain(made={"request_timeout_seconds": 1.0}) as door:
        door.ask()
        peer = door.asked(0)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
        assert not peer.wait_closed(1.2)
        peer.send(b"}")
        assert door.answer().body == b"{}"


@pytest.mark.guarantee("A5")
def test_a_key_file_that_cannot_be_used_is_told_once_for_each_cause_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "p0_api_key"
    with chain(1) as door:
        route = door.data.table.targets["fast"]
        assert isinstance(route, Chain)
        keyed = replace(route.members[0], key_file=str(file))
        door.data.table = ModelTable({"fast": replace(route, members=(keyed,))})

        def refused(lines: int) -> str:
            door.ask()
            assert door.answer().status == 503
            assert door.told()[1:] == ["infer_fallback p0 nobody auth_error", "infer_failed exhausted 503 0"]
            logged = [each for each in door.data.logged().splitlines() if "provider p0 " in each]
            assert len(logged) == lines, logged
            return logged[-1]

        assert "no such file" in refused(1)
        refused(1)
        file.write_text(f"{KEY}\n{KEY}")
        assert "more than one line" in refused(2)
        refused(2)
        file.write_text(KEY)
        door.ask()
        serve(door, door.asked(0), stream=False)
        assert "provider p0 is asked again" in door.data.logged()
        assert KEY not in door.data.logged()
        assert door.used() == [1]


@pytest.mark.guarantee("A2")
@pytest.mark.parametrize("limit", [1, 2])
def test_a_quota_has_room_up_to_its_limit_and_not_beyond(two: ChainDoor, limit: int) -> None:
    two.data.table = ModelTable({"fast": limited(two, Quota(daily_requests=limit))})
    for number in [0] * limit + [1] * limit:
        two.ask()
        serve(two, two.asked(number), stream=False)
    two.ask()
    assert two.answer().status == 503
