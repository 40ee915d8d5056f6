"""Keys are rotated under a door: connections stay with their key, and nothing of old keys stays."""

import contextlib
from dataclasses import replace

from pointsman.core.candidate import Candidate, make_bundle
from pointsman.core.secret import Secret
from pointsman.testing import FakeClock
from tests.support.answering_upstream import AnsweringUpstream
from tests.support.door import Door, candidate
from tests.support.raw_client import post
from tests.support.upstream import Upstream
from tests.support.waiting import wait_until


def swap(door: Door, *candidates: Candidate, revision: str = "r") -> None:
    async def on_the_loop() -> None:
        door.router.routes.swap(make_bundle(candidates, revision))

    door.call(on_the_loop())


def with_key(url: str, key: str) -> Candidate:
    return candidate(url, api_key=Secret(key))


def test_a_kept_connection_survives_a_swap_that_leaves_its_route_alone(upstream: Upstream) -> None:
    with Door(with_key(upstream.url, "a")) as door, door.tunnel() as client:
        client.send(post())
        peer = upstream.accept()
        for number in range(3):
            peer.request()
            peer.respond()
            assert client.answer().status == 200
            swap(door, with_key(upstream.url, "a"), candidate("mock://other", route="other"), revision=str(number))
            client.send(post())
        peer.request()  # of the same connection
        peer.respond()
        assert client.answer().status == 200
        assert upstream.saw_nothing()


def test_a_kept_connection_survives_a_change_of_the_model_alone(upstream: Upstream) -> None:
    with Door(with_key(upstream.url, "a")) as door, door.tunnel() as client:
        client.send(post())
        peer = upstream.accept()
        peer.request()
        peer.respond()
        assert client.answer().status == 200
        swap(door, replace(with_key(upstream.url, "a"), model="other"))
        client.send(post())
        assert b'"other"' in peer.request().body
        peer.respond()
        assert client.answer().status == 200


def test_an_upload_that_spans_a_swap_goes_wholly_where_it_was_admitted(upstream: Upstream) -> None:
    body = b'{"model":"any","pad":"' + b"x" * 1_000_000 + b'"}'
    request = post(body)
    with (
        Upstream() as next_upstream,
        Door(replace(with_key(upstream.url, "old"), model="old")) as door,
        door.tunnel() as client,
    ):
        client.send(request[:500_000])
        wait_until(lambda: door.router.held_body_bytes > 0)  # the head has been read
        swap(door, replace(with_key(next_upstream.url, "new"), model="new"))
        client.send(request[500_000:])
        for place, name in ((upstream, b"old"), (next_upstream, b"new")):
            peer = place.accept()
            arrived = peer.request()
            assert arrived.value(b"authorization") == b"Bearer " + name
            assert arrived.body == body.replace(b'"any"', b'"%b"' % name)
            peer.respond()
            assert client.answer().value(b"x-pointsman-model") == name
            if place is upstream:
                client.send(request)
        assert upstream.saw_nothing()


def test_no_request_mixes_what_belongs_to_two_bundles(upstream: Upstream) -> None:
    def of(number: int) -> Candidate:
        return replace(with_key(f"{upstream.url}/{number}", f"key-{number}"), model=f"model-{number}")

    with Door(of(0)) as door, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(door.tunnel()) for _ in range(16)]
        for turn in range(1, 9):
            for client in clients:
                client.send(post(b'{"model":"any"}'))
            swap(door, of(turn))
            for _ in clients:
                peer = upstream.accept()
                request = peer.request()
                key = (request.value(b"authorization") or b"").removeprefix(b"Bearer key-")
                assert request.body == b'{"model":"model-%b"}' % key
                assert b"/%b/" % key in request.line
                peer.respond(fields=b"Connection: close\r\n")
            assert {client.answer().status for client in clients} == {200}
    assert not door.leftover


def test_a_connection_is_never_shared_between_two_keys(upstream: Upstream) -> None:
    with Door(with_key(upstream.url, "a")) as door, door.tunnel() as client:
        client.send(post())
        first = upstream.accept()
        assert first.request().value(b"authorization") == b"Bearer a"
        first.respond()
        assert client.answer().status == 200
        swap(door, with_key(upstream.url, "b"))
        client.send(post())
        second = upstream.accept()
        assert second.request().value(b"authorization") == b"Bearer b"
        second.respond()
        assert client.answer().status == 200


def test_a_thousand_rotations_leave_no_origin_connection_or_task_behind(answering: AnsweringUpstream) -> None:
    clock = FakeClock()
    with Door(with_key(answering.url, "first"), clock=clock) as door, door.plain() as client:
        for number in range(1000):
            swap(door, with_key(answering.url, f"key-{number}"))
            client.send(post())
            assert client.answer().status == 200
            if number % 100 == 99:
                door.logged()  # until then the log holds the candidates of what it will tell
                door.advance(6)  # longer than a connection without TLS is kept
                assert door.router.known_origins <= 1
        swap(door)
        door.advance(6)
        assert door.router.known_origins == 0
    assert not door.leftover
