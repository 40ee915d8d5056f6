"""Finding the models of this machine's servers, none of which is believed beyond a bound."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from pointsman.core.runner_endpoint import RunnerEndpoint, parse_runner_endpoint
from pointsman.runner.discovery import DEFAULT_PROBE_LIMITS, MOST_URLS, Probed, discover, places, probe
from tests.support.model_server import Visit, answering, model_server, whole
from tests.support.ports import free_ports


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def listing(*names: object, pad: int = 0) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in names], "pad": "x" * pad}).encode()


def probed(*pieces: bytes) -> Probed:
    async def main() -> Probed:
        async with model_server(answering(*pieces)) as server:
            return await probe(parse_runner_endpoint(server.url))

    found: Probed = run(main())
    return found


def test_a_server_is_asked_once_for_its_list_and_its_models_come_in_its_order() -> None:
    async def main() -> None:
        async with model_server(answering(whole(listing("b", "a", "b")))) as server:
            endpoint = parse_runner_endpoint(server.url)
            assert await probe(endpoint) == Probed(endpoint, ("b", "a"))
            (visit,) = server.visits
            assert visit.head == (
                b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept: application/json\r\n"
                b"accept-encoding: identity\r\nconnection: close\r\n\r\n" % server.port
            )

    run(main())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (whole(b"{}"), "something else than a list"),
        (whole(b"<html>"), "something else than a list"),
        (whole(listing(1)), "something else than a list"),
        (whole(listing("a").replace(b"a", b"\xff")), "something else than a list"),
        (whole(b"[" * 100_000), "something else than a list"),
        (whole(b"", b"302 Found", b"location: http://127.0.0.1:1/\r\n"), "status 302"),
        (whole(b"no", b"401 Unauthorized"), "status 401"),
        (b"220 mail.example ready\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", "broke its answer off"),
    ],
)
def test_what_is_not_a_list_of_models_is_a_problem_and_no_model(answer: bytes, problem: str) -> None:
    found = probed(answer)
    assert found.models == ()
    assert problem in found.problem


@pytest.mark.parametrize(("count", "warned"), [(255, False), (256, False), (257, True)])
@pytest.mark.guarantee("S7")
def test_256_models_of_one_server_are_listed_and_more_are_told_of(count: int, warned: bool) -> None:
    found = probed(whole(listing(*(f"m{number}" for number in range(count)))))
    assert len(found.models) == min(count, 256)
    assert ("the first 256" in found.problem) is warned


@pytest.mark.parametrize(("more", "passes"), [(-1, True), (0, True), (1, False)])
@pytest.mark.guarantee("S7")
def test_a_list_may_have_1_mib(more: int, passes: bool) -> None:
    body = listing("a", pad=1024 * 1024 + more - len(listing("a")))
    assert bool(probed(whole(body)).models) is passes


def test_a_name_that_a_terminal_would_obey_or_that_is_too_long_is_left_out() -> None:
    found = probed(whole(listing("good", "\x1b[2Jbad", "", " ", "x" * 256, "x" * 257, "a\nb", "\u202eevil")))
    assert found.models == ("good", "x" * 256)
    assert found.problem == "has 6 models whose names are none; they are left out"


@pytest.mark.guarantee("S7")
def test_a_server_that_is_slow_costs_two_seconds_at_most_and_holds_nobody_up() -> None:
    async def main() -> None:
        async def mute(visit: Visit) -> None:
            await visit.gone()

        assert DEFAULT_PROBE_LIMITS.seconds == 2
        limits = replace(DEFAULT_PROBE_LIMITS, seconds=0.3)
        async with model_server(mute) as slow, model_server(answering(whole(listing("a")))) as server:
            ends = [parse_runner_endpoint(each.url) for each in (slow, server)]
            first, second = await discover(ends, limits)
            assert first == Probed(ends[0], problem="did not answer within 0.3 s")
            assert second.models == ("a",)
            assert slow.closed == 1

    run(main())


def test_where_nobody_listens_is_said() -> None:
    endpoint = RunnerEndpoint("localhost", free_ports(1)[0])
    assert run(probe(endpoint)) == Probed(endpoint, problem="nobody listens there", is_there=False)


def test_the_usual_places_come_first_and_each_place_once() -> None:
    extra = [RunnerEndpoint("localhost", 8080), RunnerEndpoint("127.0.0.1", 9)]
    assert [each.authority for each in places(extra)] == [
        "localhost:11434",
        "localhost:1234",
        "localhost:8000",
        "localhost:8080",
        "127.0.0.1:9",
    ]


@pytest.mark.parametrize(("more", "passes"), [(MOST_URLS - 5, True), (MOST_URLS - 4, True), (MOST_URLS - 3, False)])
def test_sixteen_places_are_looked_at_and_no_more(more: int, passes: bool) -> None:
    extra = [RunnerEndpoint("localhost", 20000 + number) for number in range(more)]
    if passes:
        assert len(places(extra)) == more + 4
    else:
        with pytest.raises(ValueError, match="at most 16"):
            places(extra)
