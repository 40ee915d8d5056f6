"""What the data listener takes out of conversations on a route that says so, and on no other."""

from collections.abc import Iterator

import pytest

from pointsman.core.context_options import ContextOptions
from pointsman.core.model_table import ModelTable
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.gateway.stages.context import ContextStage
from pointsman.proxy.stages import Stages
from tests.support.data_door import DataDoor
from tests.support.door import candidate
from tests.support.raw_client import Answer, post
from tests.support.upstream import Upstream
from tests.unit.routing.conversations import body_of, called, said

STEPS = [said("user", "go"), called("x" * 400), called("x" * 400)]
BODY = body_of(P.CHAT_COMPLETIONS, STEPS).replace(b'"m"', b'"fast"', 1)
SENT = BODY.replace(b"x" * 400, b"", 1).replace(b"x" * 400, b"[The same as the result of call_1_0, above]")
SENT = SENT.replace(b'"content": ""', b'"content": "%b"' % (b"x" * 400))


class Door:
    """One upstream behind the routes `fast` and `plain`."""

    def __init__(self, upstream: Upstream) -> None:
        routes = {name: candidate(upstream.url, route=name, model=name) for name in ("fast", "plain")}
        self.door = DataDoor(table=ModelTable(routes))
        self.upstream = upstream
        self.in_force = {("default", "fast"): ContextOptions(drop_duplicates=True)}
        self.said: list[str] = []
        self.door.stages = Stages(context=ContextStage(lambda: self.in_force, self.said.append).trim)

    def ask(self, body: bytes, path: bytes = b"/v1/chat/completions") -> tuple[bytes, Answer]:
        """What the upstream got, and what the client did."""
        with self.door.connect() as client:
            client.send(post(body, path))
            peer = self.upstream.accept()
            received = peer.request().body
            peer.respond()
            peer.sock.close()
            return received, client.answer()


@pytest.fixture
def door(upstream: Upstream) -> Iterator[Door]:
    made = Door(upstream)
    with made.door:
        yield made


@pytest.mark.guarantee("X1")
def test_what_is_there_twice_is_sent_once_and_the_client_is_told_how_much_that_saved(door: Door) -> None:
    received, answer = door.ask(BODY)
    assert received == SENT
    saved = (len(BODY) - len(SENT)) // 4
    assert answer.value(b"x-pointsman-context") == b"saved=%d" % saved


def test_a_route_that_takes_nothing_out_sends_every_byte_and_says_nothing(door: Door) -> None:
    body = BODY.replace(b'"fast"', b'"plain"')
    received, answer = door.ask(body)
    assert received == body
    assert answer.value(b"x-pointsman-context") is None


@pytest.mark.guarantee("X3")
def test_a_conversation_that_is_not_understood_is_sent_as_it_came_and_that_is_told(door: Door) -> None:
    body = b'{"model":"fast","messages":[{"role":"tool","tool_call_id":"x","content":"y"}]}'
    received, answer = door.ask(body)
    assert received == body
    assert answer.value(b"x-pointsman-context") == b"saved=0; unchanged=unpaired"


def test_a_bug_in_what_takes_out_sends_the_request_as_it_came(door: Door) -> None:
    door.in_force = {("default", "fast"): None}  # type: ignore[dict-item]
    received, answer = door.ask(BODY)
    assert received == BODY
    door.in_force = {("default", "fast"): "no options"}  # type: ignore[dict-item]
    received, answer = door.ask(BODY)
    assert received == BODY
    assert answer.value(b"x-pointsman-context") == b"saved=0; unchanged=internal_error"
    assert len(door.said) == 1
    assert "AttributeError" in door.said[0]
