"""What the operation log is told of requests on the data listener: every step, and one end on every way out."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.limits import DEFAULT_LIMITS
from pointsman.core.model_table import ModelTable
from pointsman.core.quota import Quota, QuotaKey, Reservation
from pointsman.proxy.memory_ledger import MemoryLedger
from tests.support.canary import KEY, PROMPT
from tests.support.chain_door import ChainDoor, chain, deny, limited, serve
from tests.support.door import candidate
from tests.support.upstream import Upstream

USAGE = b'{"usage":{"prompt_tokens":12,"completion_tokens":34}}'
EVENT = b'data: {"n":1}\n\n'
JSON = b"Content-Type: application/json\r\nConnection: close\r\n"


@pytest.fixture
def two() -> Iterator[ChainDoor]:
    with chain() as door:
        yield door


@pytest.fixture
def direct(two: ChainDoor) -> ChainDoor:
    """The same listener, where `fast` is a direct route to the first upstream."""
    target = candidate(two.upstreams[0].url, route="fast", model="model-0", provider="p0")
    two.data.table = ModelTable({"fast": target})
    return two


@pytest.mark.guarantee("A1")
def test_an_answer_is_told_when_its_body_has_ended(two: ChainDoor) -> None:
    two.ask()
    peer = two.asked(0)
    assert not [each for each in two.data.operations() if each["event"] == "infer_completed"]
    peer.respond(USAGE, JSON)
    two.answer()
    assert two.told() == ["infer_ordering p0,p1", "infer_completed p0 1"]
    completed = two.data.operations()[-1]
    assert (completed["prompt_tokens"], completed["completion_tokens"]) == (12, 34)
    assert (completed["model"], completed["route"], completed["account"]) == ("model-0", "fast", "default")


@pytest.mark.guarantee("A1")
def test_a_stream_is_told_at_its_first_byte_and_at_its_end(two: ChainDoor) -> None:
    two.ask(stream=True)
    serve(two, two.asked(0), stream=True)
    assert two.told() == ["infer_ordering p0,p1", "stream_started p0", "stream_completed p0", "infer_completed p0 1"]


@pytest.mark.guarantee("A3", "A4", "A5", "A6", "A7")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (429, "rate_limit"),
        (500, "server_error"),
        (401, "auth_error"),
        (302, "server_error"),
        (404, "model_unavailable"),
    ],
)
def test_a_provider_that_fails_is_told_with_its_reason_and_the_next_is_a_fallback(
    two: ChainDoor, status: int, reason: str
) -> None:
    two.ask()
    deny(two.asked(0), status)
    if status == 500:
        deny(two.asked(0), status)
    serve(two, two.asked(1), stream=False)
    retried = ["infer_retried p0 server_error"] * (status == 500)
    completed = f"infer_completed p1 {2 + len(retried)} fallback"
    assert two.told() == ["infer_ordering p0,p1", *retried, f"infer_fallback p0 p1 {reason}", completed]


@pytest.mark.guarantee("A2")
def test_a_provider_known_to_have_no_room_is_told_with_the_plan(two: ChainDoor) -> None:
    two.data.table = ModelTable({"fast": limited(two, Quota(daily_requests=1))})
    two.ask()
    serve(two, two.asked(0), stream=False)
    two.ask()
    serve(two, two.asked(1), stream=False)
    ordering = "infer_ordering p1 without p0: quota_daily"
    assert two.told() == [ordering, "rate_limit_hit p0 quota_daily", "infer_completed p1 1"]


class LastPlaceGone(MemoryLedger):
    """Another took the last place of the first provider since the plan was made."""

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        return None if key.provider == "p0" else await super().reserve(key, quota, now)


@pytest.mark.guarantee("A2")
def test_a_place_that_has_gone_since_the_plan_is_told_in_its_turn() -> None:
    with chain(ledger=LastPlaceGone()) as door:
        door.ask()
        serve(door, door.asked(1), stream=False)
        assert door.upstreams[0].saw_nothing()
        told = ["infer_ordering p0,p1", "rate_limit_hit p0 exhausted", "infer_completed p1 1 fallback"]
        assert door.told() == told


@pytest.mark.guarantee("A8")
@pytest.mark.parametrize("status", [400, 422])
def test_a_rejected_request_is_told_as_one(two: ChainDoor, status: int) -> None:
    two.ask()
    deny(two.asked(0), status)
    assert two.answer().status == status
    assert two.told() == ["infer_ordering p0,p1", f"infer_failed request_rejected {status} 1"]


@pytest.mark.guarantee("A9")
def test_a_stream_that_breaks_is_told_as_truncated(two: ChainDoor) -> None:
    two.ask(stream=True)
    peer = two.asked(0)
    peer.start_events()
    peer.chunk(EVENT)
    assert two.client is not None
    two.client.read_until(EVENT)
    peer.reset()
    two.client.read_until(b"0\r\n\r\n")
    assert two.told() == ["infer_ordering p0,p1", "stream_started p0", "infer_failed stream_truncated 200 1"]
    assert two.used() == [1, 0]


@pytest.mark.guarantee("A9")
def test_a_stream_that_ends_well_without_a_last_event_is_relayed_as_it_is_and_told_as_truncated(
    two: ChainDoor,
) -> None:
    two.ask(stream=True)
    peer = two.asked(0)
    peer.start_events()
    peer.chunk(EVENT)
    peer.end_chunks()
    assert two.answer().body == EVENT
    assert two.told()[-1] == "infer_failed stream_truncated 200 1"
    assert two.used() == [1, 0]


@pytest.mark.guarantee("A11")
def test_when_nobody_is_left_each_failure_is_told_and_then_the_end(two: ChainDoor) -> None:
    two.ask()
    deny(two.asked(0), 429, fields=b"Retry-After: 50\r\n")
    deny(two.asked(1), 403)
    assert two.answer().status == 503
    steps = ["infer_fallback p0 p1 rate_limit", "infer_fallback p1 nobody auth_error"]
    assert two.told() == ["infer_ordering p0,p1", *steps, "infer_failed exhausted 503 2"]
    assert "nobody left: p0 rate_limit (status 429); p1 auth_error (status 403)" in two.data.logged()


@pytest.mark.guarantee("A13")
def test_an_attempt_that_the_requests_timeout_ends_is_told_as_failed() -> None:
    with chain(made={"request_timeout_seconds": 0.2}) as door:
        door.ask()
        door.asked(0)
        assert door.answer().status == 503
        steps = ["infer_fallback p0 nobody server_error", "infer_failed exhausted 503 1"]
        assert door.told() == ["infer_ordering p0,p1", *steps]


@pytest.mark.guarantee("A10")
@pytest.mark.parametrize("phase", ["asked", "retried", "window", "body"])
def test_a_client_that_goes_is_told_as_such_in_every_phase(two: ChainDoor, phase: str) -> None:
    two.ask(stream=phase == "window")
    client, peer = two.client, two.asked(0)
    assert client is not None
    match phase:
        case "retried":
            deny(peer, 500)
            peer = two.asked(0)
        case "window":
            peer.start_events()
            peer.chunk(b": wait\n\n")
            two.data.advance(0)  # so that it has been read
        case "body":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
            client.read_until(b"{")
    client.close()
    assert peer.wait_closed()
    assert two.told()[-1] == f"infer_cancelled client_gone {2 if phase == 'retried' else 1}"
    assert two.used() == [1 if phase in ("window", "body") else 0, 0]
    assert two.upstreams[1].saw_nothing()


@pytest.mark.guarantee("A10")
def test_a_client_that_goes_after_the_last_event_had_its_answer(two: ChainDoor) -> None:
    two.ask(stream=True)
    peer = two.asked(0)
    peer.start_events()
    peer.chunk(EVENT + b"data: [DONE]\n\n")
    assert two.client is not None
    two.client.read_until(b"[DONE]\n\n")
    two.client.close()
    assert two.told()[-1] == "infer_completed p0 1"


@pytest.mark.guarantee("A10")
def test_a_client_that_takes_nothing_is_told_as_stalled() -> None:
    with chain(limits=replace(DEFAULT_LIMITS, client_stall_seconds=5.0)) as door:
        door.ask()
        peer = door.asked(0)
        size = 24 * 1024 * 1024
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        peer.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            peer.send(bytes(size))
        door.data.advance(5.1)
        assert door.told()[-1] == "infer_cancelled client_stalled 1"


@pytest.mark.guarantee("A17")
def test_a_body_that_is_refused_after_its_route_was_found_is_told(two: ChainDoor) -> None:
    two.ask(body=b'{"model":"fast","model":"fast"}')
    assert two.answer().status == 400
    assert two.told() == ["infer_failed malformed_request 400 0"]  # nobody was chosen, let alone called
    assert two.used() == [0, 0]


@pytest.mark.guarantee("A17")
def test_what_leads_to_no_route_is_no_operation(two: ChainDoor) -> None:
    two.ask(body=b'{"model":"other"}')
    assert two.answer().status == 404
    assert two.data.operations() == []
    two.requests = 0


class Broken(MemoryLedger):
    """Raises what no ledger may raise."""

    async def reserve(self, key: QuotaKey, quota: Quota, now: float) -> Reservation | None:
        raise RuntimeError("a bug")


@pytest.mark.guarantee("A17")
def test_an_error_of_our_own_is_told() -> None:
    with chain(ledger=Broken()) as door:
        door.may_break = True
        door.ask()
        assert door.answer().status == 502
        assert door.told() == ["infer_ordering p0,p1", "infer_failed internal_error 502 0"]


@pytest.mark.guarantee("A17")
def test_a_direct_routes_request_is_told_too(direct: ChainDoor) -> None:
    direct.ask()
    direct.asked(0).respond(USAGE, JSON)
    direct.answer()
    assert direct.told() == ["infer_completed p0 1"]
    direct.ask(stream=True)
    serve(direct, direct.asked(0), stream=True)
    assert direct.told() == ["stream_started p0", "stream_completed p0", "infer_completed p0 1"]
    for status, reason in ((429, "rate_limit"), (500, "server_error"), (400, "request_rejected")):
        direct.ask()
        deny(direct.asked(0), status, fields=b"Connection: close\r\n")
        assert direct.answer().status == status
        assert direct.told() == [f"infer_failed {reason} {status} 1"]
    direct.ask()
    direct.asked(0).reset()
    direct.answer()
    assert direct.told() == ["infer_failed upstream_protocol 502 1"]


@pytest.mark.guarantee("A17")
def test_the_final_fallback_is_told_as_one_also_when_it_is_first() -> None:
    with Upstream() as last, chain() as door:
        fallback = Member("last", candidate(last.url, route="fast", model="model-0"))
        route = limited(door, Quota(daily_requests=1))
        door.data.table = ModelTable({"fast": replace(route, members=route.members[:1], fallback=fallback)})
        door.ask()
        serve(door, door.asked(0), stream=False)
        door.upstreams[0] = last
        door.ask()
        serve(door, door.asked(0), stream=False)
        assert door.told()[-1] == "infer_completed last 1 fallback"


@pytest.mark.guarantee("A17")
def test_neither_prompt_nor_key_nor_url_is_told(two: ChainDoor) -> None:
    two.ask(body=json.dumps({"model": "fast", "messages": [{"role": "user", "content": PROMPT}]}).encode())
    deny(two.asked(0), 500, KEY.encode())
    deny(two.asked(0), 500, KEY.encode())
    serve(two, two.asked(1), stream=False)
    told = json.dumps(two.data.operations())
    assert "infer_completed" in told
    for secret in (PROMPT, KEY, two.upstreams[0].url, "127.0.0.1"):
        assert secret not in told


def test_a_chain_is_not_counted_twice_in_the_events() -> None:
    """The number of attempts in the log is that in the answer."""
    with chain(3) as door:
        made = door.data.table.targets["fast"]
        assert isinstance(made, Chain)
        door.ask()
        for number in (0, 0, 1):
            deny(door.asked(number), 500 if number == 0 else 404)
        peer = door.asked(2)
        peer.respond(USAGE, JSON)
        assert door.answer().value(b"x-pointsman-attempts") == b"4"
        assert door.told()[-1] == "infer_completed p2 4 fallback"
