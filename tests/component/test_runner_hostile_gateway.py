"""A gateway that was taken over: whatever it sends, it reaches what the operator approved, by one request or not."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.core.limits import DEFAULT_RUNNER_LIMITS
from pointsman.wire.runner_frames import ModelResponse, encode_frame
from tests.component.test_runner_connection import run, running, stays, until_closed
from tests.support.model_server import ModelServer, Visit, answering, model_server, whole
from tests.support.runner_gateway import Line, approve_model, scripted_gateway, start_frame

_BODY = {"model": "tiny", "messages": []}
_REFUSED = ModelResponse("r", 403, error="runner_model_not_allowed", done=True)
Change = Callable[[dict[str, Any], int], object]


def altered(url: str, change: Change, other_port: int) -> str:
    frame = json.loads(encode_frame(start_frame(url, body=json.dumps(_BODY).encode())))
    change(frame, other_port)
    return json.dumps(frame)


def _url(form: str) -> Change:
    return lambda frame, other: frame.update(
        base_url=form.format(port=frame["base_url"].split(":")[2].split("/")[0], other=other)
    )


_ALTERED: dict[str, Change] = {
    "another port": _url("http://127.0.0.1:{other}/v1"),
    "another spelling of the host": _url("http://localhost:{port}/v1"),
    "another loopback address": _url("http://127.0.0.2:{port}/v1"),
    "a number for a host": _url("http://2130706433:{port}/v1"),
    "a name that leads here": _url("http://localtest.example:{port}/v1"),
    "user info": _url("http://127.0.0.1:{port}@127.0.0.1:{other}/v1"),
    "another path": _url("http://127.0.0.1:{port}/api/delete"),
    "a path that climbs": _url("http://127.0.0.1:{port}/v1/../api"),
    "a query": _url("http://127.0.0.1:{port}/v1?x=1"),
    "a fragment": _url("http://127.0.0.1:{port}/v1#"),
    "https": _url("https://127.0.0.1:{port}/v1"),
    "a space": _url("http://127.0.0.1:{port}/v1 "),
    "another model id": lambda frame, _: frame.update(model_id="b2" * 16),
    "a model id in other letters": lambda frame, _: frame.update(model_id=frame["model_id"].upper()),
    "another model": lambda frame, _: frame["body"].update(model="huge"),
    "no model": lambda frame, _: frame["body"].pop("model"),
    "a model in other letters": lambda frame, _: frame["body"].update(Model="huge"),
}


@pytest.mark.parametrize("how", _ALTERED)
@pytest.mark.guarantee("N7", "S1", "S8")
def test_what_is_not_exactly_approved_is_refused_and_no_server_hears_of_it(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        reply = answering(whole(b"{}"))
        async with model_server(reply) as server, model_server(reply) as other, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.send(altered(server.url, _ALTERED[how], other.port))
                assert await line.received() == _REFUSED
                await line.ask(start_frame(server.url, "after", json.dumps(_BODY).encode()))
                assert (await line.frame()).data == "{}"
                assert (len(server.visits), len(other.visits)) == (1, 0)

    run(main())


@pytest.mark.guarantee("N7", "S8")
def test_two_models_in_one_body_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(answering(whole(b"{}"))) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.send(start_frame(server.url, body=b'{"model":"tiny","mod\\u0065l":"huge"}'))
                assert await line.received() == _REFUSED
                assert server.visits == []

    run(main())


@pytest.mark.guarantee("N6", "S8")
def test_what_it_adds_to_a_start_changes_nothing_of_the_request(tmp_path: Path) -> None:
    more = {
        "method": "DELETE",
        "path": "/api/delete",
        "headers": {"x-evil": "1", "host": "evil.example", "authorization": "Bearer x"},
        "query": "x=1",
        "url": "http://127.0.0.1:1/v1",
    }

    async def main() -> None:
        async with model_server(answering(whole(b"{}"))) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.send(altered(server.url, lambda frame, _: frame.update(more), 0))
                assert (await line.received()) == ModelResponse("r", data="{}", done=True)
                (visit,) = server.visits
                assert visit.head.startswith(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port
                )
                assert visit.head.count(b"\r\n") == 8
                assert b"evil" not in visit.head

    run(main())


async def _violate(line: Line, server: ModelServer, how: str) -> None:
    next_frame = '{"type":"model_request","request_id":"r","operation":"next"}'
    too_long = {"model": "tiny", "pad": "x" * DEFAULT_RUNNER_LIMITS.request_bytes}
    if how == "a next before its frame":
        server.answer = Visit.gone
    await line.send(start_frame(server.url, "r"))
    if how != "a next before its frame":
        assert isinstance(await line.received(), ModelResponse)
    while not server.visits:
        await asyncio.sleep(0.005)
    sent: dict[str, list[Any]] = {
        "a next before its frame": [next_frame],
        "two nexts": [next_frame, next_frame],
        "a start twice": [start_frame(server.url, "r")],
        "no JSON": ["{"],
        "not UTF-8 in bytes": [b"\xff"],
        "a frame in bytes": [next_frame.encode()],
        "another type": ['{"type":"job","request_id":"r","operation":"next"}'],
        "another operation": [next_frame.replace("next", "exec")],
        "a number for an id": [next_frame.replace('"r"', "1")],
        "an id that is too long": [next_frame.replace('"r"', '"' + "x" * 129 + '"')],
        "a next with a body": [next_frame.replace('"next"', '"next","body":{}')],
        "a start without a body": [json.dumps({**json.loads(encode_frame(start_frame(server.url))), "body": None})],
        "a body that is too long": [start_frame(server.url, "s", json.dumps(too_long).encode())],
        "a frame that is too long": ["x" * (DEFAULT_RUNNER_LIMITS.start_frame_bytes + 1)],
        "deep nesting": ['{"type":"model_request","request_id":"s","operation":"start","body":' + "[" * 100_000],
    }
    for message in sent[how]:
        await line.send(message)


_VIOLATIONS = (
    "a next before its frame", "two nexts", "a start twice", "no JSON", "not UTF-8 in bytes", "a frame in bytes",
    "another type", "another operation", "a number for an id", "an id that is too long", "a next with a body",
    "a start without a body", "a body that is too long", "a frame that is too long", "deep nesting",
)  # fmt: skip


@pytest.mark.parametrize("how", _VIOLATIONS)
@pytest.mark.guarantee("N4")
def test_what_no_gateway_sends_ends_the_line_and_every_request_on_it(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await _violate(line, server, how)
                code, reason = await line.closed()
                assert code == (1009 if how == "a frame that is too long" else 1008)
                assert "xxxx" not in reason
                await until_closed(server, 1)
                assert len(server.visits) == 1
                server.answer = stays
                line = await gateway.line()  # it comes back, and nothing of the old line with it
                await line.ask(start_frame(server.url, "r"))
                assert (await line.frame()).data == "data: 1"

    run(main())


def test_sprayed_ids_are_answered_by_nothing_and_disturb_no_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.ask(start_frame(server.url))
                await line.frame()
                for number in range(2000):
                    operation = "next" if number % 2 else "cancel"
                    await line.send(f'{{"type":"model_request","request_id":"{number}","operation":"{operation}"}}')
                await line.ask(start_frame(server.url, "after"))
                assert (await line.frame()).request_id == "after"
                assert server.closed == 0

    run(main())


def test_a_gateway_that_does_not_close_its_side_keeps_no_server_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                await line.ask(start_frame(server.url))
                await line.frame()
                line.socket.transport.pause_reading()  # no close frame will be seen, and none answered
                await line.send("{")
                async with asyncio.timeout(1.5):  # the closing handshake itself is given up after 2 s
                    await until_closed(server, 1)
                line.socket.transport.resume_reading()

    run(main())


def test_starts_that_are_refused_hold_no_slot(tmp_path: Path) -> None:
    async def main() -> None:
        async with model_server(stays) as server, scripted_gateway() as gateway:
            approve_model(tmp_path, server.url)
            async with running(gateway, tmp_path):
                line = await gateway.line()
                for _ in range(20):
                    await line.send(start_frame(server.url, body=b'{"model":"huge"}'))
                    assert await line.received() == _REFUSED
                await line.ask(start_frame(server.url))
                assert (await line.frame()).data == "data: 1"

    run(main())
