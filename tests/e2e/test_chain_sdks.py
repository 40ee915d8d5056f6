"""The official SDKs on a chain of a real gateway: answers, tools, and what each failure becomes in a program.

The providers are scripted. Every SDK object is as its users make it, but for the base URL.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.support.chained_gateway import ChainedGateway, chained_gateway
from tests.support.client_commands import run_client
from tests.support.dialects import Cut, Reply, Say, ToolCall
from tests.support.scripted_model import Asked, Failure
from tests.support.waiting import wait_until

GREET: Any = [{"role": "user", "content": "Hello?"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
NOBODY = "no provider of this model can answer at present; try again later"


def failure(status: int, code: str, **fields: str) -> Failure:
    error = {"message": f"it was {code}", "type": "x", "param": None, "code": code}
    return Failure(status, {"error": error}, {name.replace("_", "-"): value for name, value in fields.items()})


BROKEN = failure(500, "broken")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChainedGateway]:
    with chained_gateway(tmp_path_factory.mktemp("chained")) as running:
        yield running


@pytest.fixture
def gateway(running: ChainedGateway) -> ChainedGateway:
    running.plays.clear()
    return running


@pytest.fixture
def client(gateway: ChainedGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused") as client:
        yield client


@pytest.fixture
def claude(gateway: ChainedGateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key="unused") as client:
        yield client


def chat(client: openai.OpenAI, model: str = "fast") -> str | None:
    return client.chat.completions.create(model=model, messages=GREET).choices[0].message.content


def stream(client: openai.OpenAI, model: str = "fast") -> str:
    chunks = client.chat.completions.create(model=model, messages=GREET, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def message(claude: anthropic.Anthropic, model: str = "mixed") -> Any:
    return claude.messages.create(model=model, max_tokens=9, messages=GREET)


def streamed_message(claude: anthropic.Anthropic) -> str:
    with claude.messages.stream(model="mixed", max_tokens=9, messages=GREET) as events:
        return "".join(events.text_stream)


def test_answers_and_streams_come_from_the_second_when_the_first_fails(
    gateway: ChainedGateway, client: openai.OpenAI
) -> None:
    assert (chat(client), stream(client)) == ("first says so", "first says so")
    gateway.plays["first"] = BROKEN
    assert (chat(client), stream(client)) == ("second says so", "second says so")
    assert client.responses.create(model="fast", input="Hello?").output_text == "second says so"


def use_tool(asked: Asked) -> Reply:
    results = [each["content"] for each in asked.conversation if each["role"] == "tool"]
    return Say(f"It is {results[0]}.") if results else ToolCall("weather", {"city": "Oslo"})


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_comes_back_through_a_failing_chain(
    gateway: ChainedGateway, client: openai.OpenAI, streamed: bool
) -> None:
    gateway.plays = {"first": BROKEN, "second": use_tool}
    messages: Any = [*GREET]
    if streamed:
        with client.chat.completions.stream(model="fast", messages=messages, tools=[WEATHER]) as events:
            said = events.get_final_completion().choices[0].message
    else:
        said = client.chat.completions.create(model="fast", messages=messages, tools=[WEATHER]).choices[0].message  # type: ignore[assignment]  # the plain kind
    assert said.tool_calls is not None
    [call] = said.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    messages += [said.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "cold"}]
    answer = client.chat.completions.create(model="fast", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "It is cold."
    assert gateway.models["second"].calls[-1].tools() == {"weather": WEATHER["function"]}


def test_routes_are_listed_and_retrieved_as_models(client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [each.id for each in client.models.list()] == ["fast", "mixed", "safe"]
    assert [each.id for each in claude.models.list()] == ["fast", "mixed", "safe"]
    assert client.models.retrieve("fast").id == claude.models.retrieve("fast").id == "fast"


def test_an_unknown_model_is_not_found_in_each_dialect(client: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    with pytest.raises(openai.NotFoundError, match="did you mean 'fast'") as caught:
        chat(client, "fsat")
    assert caught.value.code == "model_not_found"
    with pytest.raises(anthropic.NotFoundError, match="did you mean 'fast'"):
        message(claude, "fsat")


@pytest.mark.parametrize("ask", [chat, stream])
def test_a_request_that_is_refused_is_the_sdks_bad_request_and_is_sent_once(
    gateway: ChainedGateway, client: openai.OpenAI, ask: Callable[[openai.OpenAI], object]
) -> None:
    gateway.plays["first"] = failure(400, "bad_parameter")
    before = gateway.calls()
    with pytest.raises(openai.BadRequestError, match="it was bad_parameter") as caught:
        ask(client)
    assert caught.value.code == "bad_parameter"
    assert [after - had for after, had in zip(gateway.calls(), before, strict=True)] == [1, 0, 0]


@pytest.mark.alone
def test_when_all_are_broken_the_sdk_waits_as_it_is_told_between_its_three_tries(
    gateway: ChainedGateway, client: openai.OpenAI
) -> None:
    gateway.plays = {"first": BROKEN, "second": BROKEN}
    before, since = gateway.calls(), time.monotonic()
    with pytest.raises(openai.InternalServerError, match=NOBODY) as caught:
        chat(client)
    assert (caught.value.status_code, caught.value.code) == (503, "no_provider_available")
    assert caught.value.response.headers["retry-after"] == "1"
    assert time.monotonic() - since > 1.9  # the SDK's own first pauses are shorter
    assert [after - had for after, had in zip(gateway.calls(), before, strict=True)] == [6, 6, 0]


def test_truncation_in_the_middle_of_a_stream_is_raised_by_each_sdk(
    gateway: ChainedGateway, client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    gateway.plays = {"first": Cut("says"), "claude": Cut("says")}
    with pytest.raises(openai.APIError, match="response truncated: upstream read error"):
        stream(client)
    with pytest.raises(anthropic.APIStatusError, match="response truncated: upstream read error"):
        streamed_message(claude)


def test_anthropics_sdk_is_served_by_whoever_speaks_its_dialect(
    gateway: ChainedGateway, claude: anthropic.Anthropic
) -> None:
    before = gateway.calls()
    assert message(claude).content[0].text == streamed_message(claude) == "claude says so"
    assert claude.messages.count_tokens(model="mixed", messages=GREET).input_tokens == 11
    assert [after - had for after, had in zip(gateway.calls(), before, strict=True)] == [0, 0, 3]


def test_anthropics_sdk_learns_why_a_chain_of_openais_dialects_cannot_serve_it(claude: anthropic.Anthropic) -> None:
    told = "this model does not speak anthropic_messages, and requests are not translated; it speaks openai_chat"
    with pytest.raises(anthropic.BadRequestError, match=told):
        message(claude, "fast")
    with pytest.raises(anthropic.BadRequestError, match=told):
        claude.messages.count_tokens(model="fast", messages=GREET)


def test_an_overloaded_provider_of_anthropics_is_an_sdks_503_with_a_time_to_come_back(
    gateway: ChainedGateway, claude: anthropic.Anthropic
) -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    gateway.plays["claude"] = Failure(529, overloaded)
    with pytest.raises(anthropic.InternalServerError, match=NOBODY) as caught:
        message(claude.with_options(max_retries=0))
    assert caught.value.response.headers["retry-after"] == "1"


def test_a_key_that_may_not_and_one_that_was_revoked_are_told_apart_in_each_dialect(gateway: ChainedGateway) -> None:
    process = gateway.process

    def operate(*command: str) -> str:
        done = run_client(process.url, *command, environ={"POINTSMAN_DATA_DIR": str(process.directory)})
        assert done.exit_code == 0, done.output
        return done.stdout.strip()

    key = operate("key", "create", "trial", "--route", "fast")
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client,
        anthropic.Anthropic(base_url=gateway.url, api_key=key) as claude,
    ):
        wait_until(lambda: [each.id for each in client.models.list()] == ["fast"])  # the listener looks for new keys
        assert chat(client) == "first says so"
        with pytest.raises(openai.PermissionDeniedError, match="this key may not use the model 'safe'") as denied:
            chat(client, "safe")
        assert denied.value.code == "model_not_authorized"
        with pytest.raises(anthropic.PermissionDeniedError, match="this key may not use the model 'mixed'"):
            message(claude)
        operate("key", "revoke", "trial")
        wait_until(lambda: is_refused(client))
        with pytest.raises(openai.AuthenticationError, match="was revoked") as revoked:
            chat(client)
        assert revoked.value.code == "invalid_api_key"
        with pytest.raises(anthropic.AuthenticationError, match="was revoked"):
            message(claude)


def is_refused(client: openai.OpenAI) -> bool:
    try:
        client.models.list()
    except openai.AuthenticationError:
        return True
    return False


# The last: from here on the first two are exhausted.
@pytest.mark.timeout(120)
def test_with_every_provider_at_429_the_local_model_answers_and_says_so(
    gateway: ChainedGateway, client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    limited = failure(429, "rate_limit_exceeded", Retry_After="600")
    gateway.plays = {"first": limited, "second": limited, "claude": limited}
    with pytest.raises(anthropic.InternalServerError, match=NOBODY):
        message(claude)
    with pytest.raises(openai.InternalServerError, match=NOBODY) as caught:
        chat(client.with_options(max_retries=0))
    assert caught.value.response.headers["retry-after"] in ("599", "600")
    before = gateway.calls()
    with pytest.raises(openai.InternalServerError):
        chat(client)  # with its own retries, which reach nobody
    with pytest.raises(anthropic.InternalServerError, match=NOBODY):
        message(claude)  # the SDK does not sleep until somebody has recovered
    raw = client.chat.completions.with_raw_response.create(
        model="safe", messages=GREET, max_tokens=4, tools=[WEATHER], timeout=100
    )
    assert raw.headers["x-pointsman-fallback"] == "local"
    assert raw.parse().choices[0].message.content
    assert claude.messages.create(model="safe", max_tokens=4, messages=GREET).content
    assert gateway.calls() == before
    long: Any = [{"role": "user", "content": "word " * 20_000}]
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as refused:
        client.chat.completions.create(model="safe", messages=long)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.response.headers["x-pointsman-fallback"] == "local"
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available context size") as refused_too:
        claude.messages.create(model="safe", max_tokens=4, messages=long)
    assert isinstance(refused_too.value.body, dict)
    assert refused_too.value.body["error"]["type"] == "invalid_request_error"
