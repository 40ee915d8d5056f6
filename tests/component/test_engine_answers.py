"""What llama.cpp answers over the engine's socket: the facts that the http backend stands on.

No router here. A later version of the binding that answers otherwise is noticed in this file first.
"""

import asyncio
import contextlib
import http.client
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pointsman.engine.supervisor import Engine, EngineAddress, EngineOptions
from tests.support.llama_server import model_path

CONTEXT = 2048
MESSAGES = {"messages": [{"role": "user", "content": "Count from one to one hundred."}]}
TOOL_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**MESSAGES, "max_tokens": 4}),
    "completions": ("/v1/completions", {"prompt": "The sky", "max_tokens": 4}),
    "responses": ("/v1/responses", {"input": "The sky", "max_output_tokens": 4}),
    "messages": ("/v1/messages", {**MESSAGES, "max_tokens": 4}),
}
USAGE = {
    "chat": ("prompt_tokens", "completion_tokens"),
    "completions": ("prompt_tokens", "completion_tokens"),
    "responses": ("input_tokens", "output_tokens"),
    "messages": ("input_tokens", "output_tokens"),
}


class OverUnixSocket(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    content: bytes


class Caller:
    """Speaks to one ready engine."""

    def __init__(self, engine: Engine, address: EngineAddress) -> None:
        self.engine = engine
        self.address = address

    def connection(self) -> OverUnixSocket:
        return OverUnixSocket(self.address.socket_path)

    def send(self, method: str, path: str, body: object = None, **headers: str) -> OverUnixSocket:
        connection = self.connection()
        fields = {"Authorization": f"Bearer {self.address.key.reveal()}", "Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        return connection

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        with contextlib.closing(self.send(method, path, body, **headers)) as connection:
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def json(self, path: str, body: object) -> tuple[int, Any]:
        response = self("POST", path, body)
        return response.status, json.loads(response.content)

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < seconds
            time.sleep(0.01)
        return time.monotonic() - start

    def seconds_until_idle(self) -> float:
        """How long the CPU was used from now on. `/slots` is not asked: that itself delays what is to be seen."""
        start = last_use = time.monotonic()
        seen = self.engine.cpu_seconds()
        while time.monotonic() - last_use < 0.5:
            assert last_use - start < 10, "the engine goes on for nobody"
            time.sleep(0.01)
            if self.engine.cpu_seconds() > seen:
                last_use, seen = time.monotonic(), self.engine.cpu_seconds()
        return last_use - start


@contextlib.contextmanager
def caller(context_tokens: int) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        options = EngineOptions(context_tokens=context_tokens)
        engine = Engine(model_path(), clock=time.monotonic, options=options)
        try:
            yield Caller(engine, runner.run(engine.address()))
        finally:
            runner.run(engine.close())


@pytest.fixture(scope="module")
def call() -> Iterator[Caller]:
    with caller(CONTEXT) as call:
        yield call


@pytest.fixture(scope="module")
def call_small() -> Iterator[Caller]:
    """An engine whose context is filled in seconds; 256 is the step in which contexts come."""
    with caller(256) as call:
        yield call


def events(response: Answer) -> list[Any]:
    lines = response.content.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_answer_carries_usage_and_the_name_of_the_file(call: Caller, dialect: str) -> None:
    path, body = DIALECTS[dialect]
    status, answer = call.json(path, {**body, "model": "whatever the client called it"})
    assert status == 200
    assert all(answer["usage"][name] > 0 for name in USAGE[dialect])
    assert answer["model"] == model_path().stem
    assert str(model_path().parent) not in json.dumps(answer)


@pytest.mark.parametrize(
    ("dialect", "end"),
    [
        ("chat", b"data: [DONE]\n\n"),
        ("completions", b"data: [DONE]\n\n"),
        ("responses", b"\n\n"),
        ("messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ],
)
def test_a_stream_ends_as_its_dialect_says_and_carries_usage(call: Caller, dialect: str, end: bytes) -> None:
    path, body = DIALECTS[dialect]
    options = {"stream_options": {"include_usage": True}} if dialect in ("chat", "completions") else {}
    response = call("POST", path, {**body, "stream": True, **options})
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert response.content.endswith(end)
    assert USAGE[dialect][1] in json.dumps(events(response)[-1 if dialect != "messages" else -2])


def test_the_last_event_of_a_responses_stream_is_completed(call: Caller) -> None:
    path, body = DIALECTS["responses"]
    assert events(call("POST", path, {**body, "stream": True}))[-1]["type"] == "response.completed"


def test_tokens_are_counted_for_messages(call: Caller) -> None:
    status, answer = call.json("/v1/messages/count_tokens", MESSAGES)
    assert (status, list(answer)) == (200, ["input_tokens"])


def test_models_lists_the_file_by_its_name_and_single_models_are_not_found(call: Caller) -> None:
    response = call("GET", "/v1/models")
    models = json.loads(response.content)
    assert [model["id"] for model in models["data"]] == [model_path().stem]
    assert call("GET", f"/v1/models/{model_path().stem}").status == 404


def test_embeddings_are_refused_with_501(call: Caller) -> None:
    status, answer = call.json("/v1/embeddings", {"input": "hi", "model": "x"})
    assert (status, answer["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Basic x"])
def test_without_the_key_nothing_is_answered(call: Caller, authorization: str) -> None:
    for path, body in DIALECTS.values():
        assert call("POST", path, body, Authorization=authorization).status == 401
    assert call("GET", "/v1/models", Authorization=authorization).status == 401


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tools_are_taken_and_the_model_does_what_it_can(call: Caller, dialect: str) -> None:
    path, body = DIALECTS[dialect]
    function = {"name": "get_weather", "parameters": TOOL_SCHEMA}
    tools: dict[str, list[dict[str, Any]]] = {
        "chat": [{"type": "function", "function": function}],
        "completions": [],
        "responses": [{"type": "function", **function}],
        "messages": [{"name": "get_weather", "input_schema": TOOL_SCHEMA}],
    }
    assert call.json(path, {**body, "tools": tools[dialect]})[0] == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_that_does_not_fit_is_400_in_every_dialect(call: Caller, dialect: str, stream: bool) -> None:
    path, body = DIALECTS[dialect]
    text = "word " * (CONTEXT + 1)
    long: dict[str, dict[str, Any]] = {
        "chat": {"messages": [{"role": "user", "content": text}]},
        "completions": {"prompt": text},
        "responses": {"input": text},
        "messages": {"messages": [{"role": "user", "content": text}]},
    }
    status, answer = call.json(path, {**body, **long[dialect], "stream": stream})
    assert (status, answer["error"]["type"]) == (400, "exceed_context_size_error")
    assert answer["error"]["n_ctx"] == CONTEXT


@pytest.mark.parametrize(("length", "status"), [(254, 200), (255, 200), (256, 400), (257, 400)])
def test_a_prompt_fits_when_one_token_of_answer_does(call_small: Caller, length: int, status: int) -> None:
    assert call_small.json("/v1/completions", {"prompt": [1000] * length, "max_tokens": 9})[0] == status


def test_an_answer_that_reaches_the_end_of_the_context_stops_with_length_and_is_not_shifted(call_small: Caller) -> None:
    status, answer = call_small.json("/v1/completions", {"prompt": [1000] * 250, "max_tokens": 50, "ignore_eos": True})
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 256


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": "no list"}),
        ("/v1/chat/completions", {**MESSAGES, "n": 2}),
        ("/v1/completions", {"prompt": [99_999_999]}),
        ("/v1/responses", {"input": "x", "previous_response_id": "y"}),
    ],
)
def test_a_request_that_it_cannot_serve_is_400(call: Caller, path: str, body: object) -> None:
    status, answer = call.json(path, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_the_head_of_a_stream_comes_before_the_prompt_is_read_and_that_of_a_whole_answer_after_it(
    call: Caller,
) -> None:
    path, body = DIALECTS["completions"]
    ended = {}
    for stream in (True, False):
        prompt = {"prompt": [2000 + stream, *[1000] * 80], "stream": stream}
        before = call.engine.cpu_seconds()
        with contextlib.closing(call.send("POST", path, {**body, **prompt})) as connection:
            response = connection.getresponse()
            ended[stream] = call.engine.cpu_seconds() - before
            response.read()
    assert ended[True] < ended[False] / 2


def test_heads_name_the_server_and_carry_an_empty_cors_field(call: Caller) -> None:
    response = call("POST", *DIALECTS["chat"])
    assert response.headers["Server"] == "llama.cpp"
    assert response.headers["Access-Control-Allow-Origin"] == ""
    assert response.headers["Keep-Alive"] == "timeout=5, max=100"
    assert call("POST", "/v1/chat/completions", {"messages": 1}).headers["Connection"] == "close"


def test_the_cpu_time_grows_while_a_prompt_is_read_and_stands_still_when_idle(call: Caller) -> None:
    call.seconds_until_idle()
    before = call.engine.cpu_seconds()
    with contextlib.closing(call.send("POST", "/v1/completions", {"prompt": [*range(1000, 1400)], "max_tokens": 1})):
        call.until(lambda: call.engine.cpu_seconds() > before + 0.3, 10)
    call.seconds_until_idle()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["prompt", "answer"])
def test_the_engine_stops_within_a_second_and_a_step_when_its_client_goes(
    call: Caller, phase: str, stream: bool
) -> None:
    call.seconds_until_idle()
    long_prompt = {"prompt": [3000 + stream, *range(1000, 2500)], "max_tokens": 1}
    long_answer = {"prompt": "The sky", "max_tokens": 1500, "ignore_eos": True}
    body = {**(long_prompt if phase == "prompt" else long_answer), "stream": stream}
    before = call.engine.cpu_seconds()
    with contextlib.closing(call.send("POST", "/v1/completions", body)):
        call.until(lambda: call.engine.cpu_seconds() > before + 0.5, 10)
    # llama.cpp looks once a second whether a client that gets nothing yet is there; the rest is the machine's share.
    # Both requests would go on for 15 seconds and more.
    assert call.seconds_until_idle() < 2.5


def test_those_who_wait_for_the_one_slot_and_go_cost_next_to_nothing(call: Caller) -> None:
    long = {"prompt": [4000, *range(1000, 2500)], "max_tokens": 1}
    with contextlib.closing(
        call.send("POST", "/v1/completions", {**DIALECTS["completions"][1], "max_tokens": 60})
    ) as first:
        for number in range(5):
            call.send("POST", "/v1/completions", {**long, "prompt": [4000 + number, *range(1000, 2500)]}).close()
        assert first.getresponse().status == 200
    assert call.seconds_until_idle() < 6


def test_whoever_comes_while_many_wait_for_the_one_slot_is_heard(call: Caller) -> None:
    long = {"prompt": "The sky", "max_tokens": 1500, "ignore_eos": True}
    waiting = [call.send("POST", "/v1/completions", long) for _ in range(100)]
    assert call("GET", "/health").status == 200
    assert not select.select([connection.sock for connection in waiting], [], [], 0)[0]
    for connection in waiting:
        connection.close()
    assert call.seconds_until_idle() < 6


def test_a_hundred_clients_are_served_in_turn(call: Caller) -> None:
    connections = [call.send("POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1}) for _ in range(100)]
    assert [connection.getresponse().status for connection in connections] == [200] * 100
    for connection in connections:
        connection.close()
