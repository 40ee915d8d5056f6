"""What the official SDKs and a runner's client make of answers that rules redact or block."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anthropic
import openai
import pytest

from pointsman.core.policy import Effect
from tests.support.answers import (
    answer_rule,
    chat_events,
    completion_events,
    delta,
    event,
    message_events,
    response_events,
)
from tests.support.played_runner import PlayedRunner
from tests.support.policed_door import PolicedDoor
from tests.support.serving_gateway import serving_gateway
from tests.support.upstream import Upstream

PARTS = ["the way to the sec", "r", "et is long, ", "and it has no end"]
REDACTED = "the way to the [redacted] is long, and it has no end"
HIDE, BLOCK = answer_rule("hide", Effect.REDACT, pattern="secret"), answer_rule("no", pattern="secret")


@contextmanager
def serving(upstream: Upstream, events: list[bytes]) -> Iterator[None]:
    """Answer one request so, each event by itself; a client that goes away ends it."""

    def serve() -> None:
        peer = upstream.accept()
        peer.request()
        try:
            peer.start_events()
            for each in events:
                peer.chunk(each)
            peer.end_chunks()
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def by_openai(policed: PolicedDoor) -> Iterator[openai.OpenAI]:
    host, port = policed.door.address
    with openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture
def by_anthropic(policed: PolicedDoor) -> Iterator[anthropic.Anthropic]:
    host, port = policed.door.address
    with anthropic.Anthropic(base_url=f"http://{host}:{port}", api_key="x", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI) -> str:
    stream = client.chat.completions.create(model="fast", messages=[], stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def completion(client: openai.OpenAI) -> str:
    return "".join(chunk.choices[0].text for chunk in client.completions.create(model="fast", prompt="", stream=True))


def response(client: openai.OpenAI) -> str:
    said, whole = "", ""
    for each in client.responses.create(model="fast", input="", stream=True):
        if each.type == "response.output_text.delta":
            said += each.delta
        elif each.type == "response.completed":
            whole = each.response.output_text
    assert said == whole
    return said


OPENAI = pytest.mark.parametrize(
    ("call", "events"),
    [(chat, chat_events(PARTS)), (completion, completion_events(PARTS)), (response, response_events(PARTS))],
)


@pytest.mark.guarantee("P6")
@OPENAI
def test_openais_client_reads_a_redacted_stream(
    policed: PolicedDoor,
    upstream: Upstream,
    by_openai: openai.OpenAI,
    call: Callable[[openai.OpenAI], str],
    events: list[bytes],
) -> None:
    policed.set(HIDE)
    with serving(upstream, events):
        assert call(by_openai) == REDACTED


@OPENAI
def test_openais_client_raises_where_a_rule_ends_a_stream(
    policed: PolicedDoor,
    upstream: Upstream,
    by_openai: openai.OpenAI,
    call: Callable[[openai.OpenAI], str],
    events: list[bytes],
) -> None:
    policed.set(BLOCK)
    with serving(upstream, events), pytest.raises(openai.APIError, match=r"policy_blocked|'no'"):
        call(by_openai)


@pytest.mark.guarantee("P7")
def test_openais_client_gets_a_status_for_a_denied_call(
    policed: PolicedDoor, upstream: Upstream, by_openai: openai.OpenAI
) -> None:
    policed.set(answer_rule("no-shell", denied_tools=("bash",)))
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": ""}}
    with serving(upstream, [event(delta(tool_calls=[call]))]), pytest.raises(openai.PermissionDeniedError) as raised:
        chat(by_openai)
    assert raised.value.code == "policy_blocked"


@pytest.mark.guarantee("P6")
def test_anthropics_client_reads_a_redacted_stream(
    policed: PolicedDoor, upstream: Upstream, by_anthropic: anthropic.Anthropic
) -> None:
    policed.set(HIDE)
    with (
        serving(upstream, message_events(PARTS)),
        by_anthropic.messages.stream(model="fast", max_tokens=9, messages=[]) as stream,
    ):
        assert stream.get_final_text() == REDACTED
        assert stream.get_final_message().stop_reason == "end_turn"


def test_anthropics_client_raises_where_a_rule_ends_a_stream(
    policed: PolicedDoor, upstream: Upstream, by_anthropic: anthropic.Anthropic
) -> None:
    policed.set(BLOCK)
    with serving(upstream, message_events(PARTS)), pytest.raises(anthropic.APIStatusError, match="policy_blocked"):
        for _ in by_anthropic.messages.create(model="fast", max_tokens=9, messages=[], stream=True):
            pass


POLICY = """
rules:
  - {id: hide, side: response, effect: redact, pattern: secret, routes: [llama]}
  - {id: no-shell, side: response, effect: block, denied_tools: [bash], routes: [llama]}
"""


@pytest.mark.guarantee("P6")
def test_answers_of_a_runner_are_held_against_rules_at_a_real_gateway(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with serving_gateway(tmp_path / "data") as gateway:
        gateway.run("policy", "set", str(policy))
        gateway.run("policy", "enforce")
        runner = PlayedRunner(gateway)
        runner.model("llama")
        gateway.until_served("llama")
        lines = [each.decode().strip() for each in chat_events(PARTS)]
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": ""}}
        with runner.dialled_in() as line:
            with gateway.connect() as client:
                gateway.send(client, {"model": "llama", "stream": True})
                line.stream(*lines)
                answer = client.answer()
            assert answer.value(b"x-pointsman-policy") == b"enforced=1; answers=block,redact"
            said = [json.loads(each[6:]) for each in answer.body.split(b"\n\n") if each.startswith(b"data: {")]
            assert "".join(each["choices"][0]["delta"].get("content", "") for each in said) == REDACTED
            assert answer.body.endswith(b"data: [DONE]\n\n")
            with gateway.connect() as client:
                gateway.send(client, {"model": "llama", "stream": True})
                start = line.receive()
                line.answer(start, event(delta(tool_calls=[call])).decode().strip())
                assert client.answer().status == 403
                asked = line.receive()
                assert (asked["operation"], asked["request_id"]) == ("cancel", start["request_id"])
