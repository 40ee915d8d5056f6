"""The official SDKs on runners' models: a real gateway, real runners, and what each failure becomes in a program.

The models' server is the test's, and answers by what it is asked. Every SDK object is as its users make it, but for the
base URL.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests.support.clients import CLIENTS, PROGRAMS, Client
from tests.support.dialects import Reply, Say, ToolCall, chat_answer, chat_events
from tests.support.model_server import EVENT_STREAM, ModelServer, Visit, whole
from tests.support.processes import run_to_end
from tests.support.shared_model import SharedModels, served, shared_models

WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
REFUSALS = {"Be refused.": b"400 Bad Request", "Be broken.": b"500 Internal Server Error"}
WORDS = b'{"error":{"message":"the path /home/me/model is bad","code":"bad"}}'


def said(*texts: str) -> Any:
    return [{"role": "user", "content": text} for text in texts]


async def answer(visit: Visit) -> None:
    asked = json.loads(visit.body)
    last = asked["messages"][-1]
    text = last["content"]
    if text in REFUSALS:
        await visit.send(whole(WORDS, REFUSALS[text]))
        return
    reply: Reply = ToolCall("weather", {"city": "Oslo"}) if text == "Use a tool." else Say("all is well")
    if last["role"] == "tool":
        reply = Say(f"It is {text}.")
    if not asked.get("stream"):
        await visit.send(whole(json.dumps(chat_answer(reply)).encode()))
        return
    events = [data for _, data in chat_events(reply)]
    if not asked.get("stream_options", {}).get("include_usage"):
        events.pop()
    lines = [b"data: %b\n\n" % json.dumps(data).encode() for data in events] + [b"data: [DONE]\n\n"]
    await visit.send(EVENT_STREAM)
    for line in lines[:2] if text in ("Be cut off.", "Stay.") else lines:
        await visit.send(line)
    if text == "Stay.":
        await visit.gone()


@dataclass
class Team:
    """Who shares what: `tiny` is served, `barred` no longer, and `spare` was shared by a runner that has gone."""

    shared: SharedModels
    server: ModelServer

    def asked(self) -> int:
        return len(self.server.visits)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with (
        served(answer, "tiny", "barred", "spare") as server,
        shared_models(tmp_path_factory.mktemp("shared")) as shared,
    ):
        shared.laptop(server.url, "tiny", "barred").forbid("barred")
        shared.laptop(server.url, "spare", name="another").away()
        yield Team(shared, server)


@pytest.fixture
def client(team: Team) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{team.shared.url}/v1", api_key="unused") as client:
        yield client


def chat(client: openai.OpenAI, text: str = "Hello?", model: str = "tiny", **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=said(text), **more)


def test_answers_streams_and_usage_are_the_models_own(client: openai.OpenAI) -> None:
    assert chat(client).choices[0].message.content == "all is well"
    for wanted in (True, False):
        chunks = list(chat(client, stream=True, stream_options={"include_usage": wanted}))
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == "all is well"
        assert [each.usage.completion_tokens for each in chunks if each.usage] == ([7] if wanted else [])


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_comes_back(client: openai.OpenAI, streamed: bool) -> None:
    messages = said("Use a tool.")
    if streamed:
        with client.chat.completions.stream(model="tiny", messages=messages, tools=[WEATHER]) as events:
            message: Any = events.get_final_completion().choices[0].message
    else:
        message = client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER]).choices[0].message
    [call] = message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "cold"}]
    completion = client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER])
    assert completion.choices[0].message.content == "It is cold."


def test_what_a_program_asks_for_reaches_the_model_as_it_was_written(team: Team, client: openai.OpenAI) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True}}
    chat(client, response_format=schema, temperature=0.25, seed=7, extra_body={"min_p": 0.5, "cache_prompt": True})
    sent = json.loads(team.server.visits[-1].body)
    assert sent == {
        "model": "tiny",
        "messages": said("Hello?"),
        "response_format": schema,
        "temperature": 0.25,
        "seed": 7,
        "min_p": 0.5,
        "cache_prompt": True,
    }


def test_models_are_listed_whether_or_not_their_runner_is_there(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["barred", "spare", "tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


@pytest.mark.guarantee("N11", "S4")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_runner_that_is_away_is_an_sdks_503_at_once(team: Team, client: openai.OpenAI, streamed: bool) -> None:
    before, since = team.asked(), time.monotonic()
    with pytest.raises(openai.InternalServerError, match="start it with: pointsman runner start") as caught:
        chat(client.with_options(max_retries=0), model="spare", stream=streamed)
    assert time.monotonic() - since < 2  # most of it is other programs' on a busy machine
    assert (caught.value.status_code, caught.value.code) == (503, "runner_offline")
    assert "retry-after" not in caught.value.response.headers  # nobody can tell
    assert team.asked() == before


@pytest.mark.guarantee("N7", "S8")
def test_a_model_whose_approval_was_taken_back_is_an_sdks_403(team: Team, client: openai.OpenAI) -> None:
    before = team.asked()
    with pytest.raises(openai.PermissionDeniedError, match="approve it there with: pointsman runner models") as caught:
        chat(client, model="barred")
    assert caught.value.code == "runner_model_not_allowed"
    assert team.asked() == before


@pytest.mark.guarantee("N5", "S7")
def test_the_fifth_at_once_is_an_sdks_429_and_the_next_is_served(client: openai.OpenAI) -> None:
    with contextlib.ExitStack() as streams:
        for _ in range(4):
            next(streams.enter_context(chat(client, "Stay.", stream=True)))
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client.with_options(max_retries=0))
        assert caught.value.code == "runner_busy"
        assert not {"retry-after", "x-should-retry"} & set(caught.value.response.headers)
    assert chat(client.with_options(max_retries=5)).choices  # the SDK's own pauses are enough


@pytest.mark.parametrize(
    ("text", "kind", "times"),
    [("Be refused.", openai.BadRequestError, 1), ("Be broken.", openai.InternalServerError, 3)],
)
def test_a_refusal_keeps_its_status_and_the_sdk_asks_again_as_it_always_does(
    team: Team, client: openai.OpenAI, text: str, kind: type[openai.APIStatusError], times: int
) -> None:
    before = team.asked()
    with pytest.raises(kind) as caught:
        chat(client, text)
    assert caught.value.status_code == int(REFUSALS[text][:3])
    assert caught.value.code == "runner_upstream_error"
    assert "/home/me" not in caught.value.response.text
    assert team.asked() == before + times


def test_a_stream_that_breaks_is_raised_and_never_asked_for_again(team: Team, client: openai.OpenAI) -> None:
    before = team.asked()
    with pytest.raises(openai.APIError, match="response truncated: runner_upstream_read_error") as caught:
        list(chat(client, "Be cut off.", stream=True))
    assert caught.value.code == "runner_upstream_read_error"
    assert team.asked() == before + 1


def test_anthropics_sdk_learns_which_dialect_a_runners_model_speaks(team: Team) -> None:
    before = team.asked()
    told = "does not speak anthropic_messages, and requests are not translated; it speaks openai_chat_completions"
    with anthropic.Anthropic(base_url=team.shared.url, api_key="unused") as claude:
        for streamed in (False, True):
            with pytest.raises(anthropic.BadRequestError, match=told) as caught:
                claude.messages.create(model="tiny", max_tokens=9, messages=said("Hello?"), stream=streamed)
            assert isinstance(caught.value.body, dict)
            assert caught.value.body["type"] == "error"
            assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert team.asked() == before


NODES = [client for client in CLIENTS if client.name.startswith("node")]
TOLD = {
    "chat": "all is well",
    "stream": "all is well",
    "call": ["weather", {"city": "Oslo"}],
    "usage": 7,
    "models": ["barred", "spare", "tiny"],
}
RAISED = {
    "cut": ("APIError", None, "runner_upstream_read_error", "response truncated: runner_upstream_read_error"),
    "refused": ("BadRequestError", 400, "runner_upstream_error", "the model's server refused"),
    "broken": ("InternalServerError", 500, "runner_upstream_error", "the model's server refused"),
    "large": ("APIError", 413, "runner_request_too_large", "too large for a runner's model"),
    "barred": ("PermissionDeniedError", 403, "runner_model_not_allowed", "pointsman runner models"),
    "away": ("InternalServerError", 503, "runner_offline", "pointsman runner start"),
    "busy": ("RateLimitError", 429, "runner_busy", "as many requests as it may"),
    "dialect": ("BadRequestError", 400, None, "it speaks openai_chat_completions"),
}


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_a_node_sdk_gets_the_same(team: Team, node: Client) -> None:
    argv = [node.program[0], str(PROGRAMS / "runner_scenarios.cjs"), team.shared.url, "tiny", "barred", "spare"]
    done = run_to_end(argv, environ={**os.environ, **node.environ}, seconds=60)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, Any] = json.loads(done.stdout)
    assert {name: outcomes[name] for name in TOLD} == TOLD
    for name, (kind, status, code, text) in RAISED.items():
        raised = outcomes[name]
        assert (raised["type"], raised.get("status"), raised.get("code")) == (kind, status, code), raised
        assert text in raised["text"]
