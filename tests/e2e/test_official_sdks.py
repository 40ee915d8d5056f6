"""The official SDKs against a real llama.cpp server, through the proxy as a process."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.support.processes import ProxyProcess, llama_server, proxy_process

PROMPT = "Answer in one short sentence: what colour is the sky?"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    directory = tmp_path_factory.mktemp("proxy")
    with llama_server() as port:
        routes = f"""
routes:
  - route: inference.local
    endpoint: http://127.0.0.1:{port}/v1
    model: smollm2
    protocols: [openai_chat_completions, openai_completions, openai_responses, anthropic_messages, model_discovery]
    api_key: unused
"""
        with proxy_process(routes, directory) as running:
            yield running


@pytest.fixture
def context(proxy: ProxyProcess) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(proxy.bundle))


@pytest.fixture
def openai_client(proxy: ProxyProcess, context: ssl.SSLContext) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(proxy=proxy.url, verify=context, trust_env=False)
    with openai.OpenAI(
        base_url="https://inference.local/v1", api_key="none", http_client=http, max_retries=0
    ) as client:
        yield client


@pytest.fixture
def anthropic_client(proxy: ProxyProcess, context: ssl.SSLContext) -> Iterator[anthropic.Anthropic]:
    http = anthropic.DefaultHttpxClient(proxy=proxy.url, verify=context, trust_env=False)
    with anthropic.Anthropic(
        base_url="https://inference.local", api_key="none", http_client=http, max_retries=0
    ) as client:
        yield client


def test_openai_chat_answers(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="anything", messages=[{"role": "user", "content": PROMPT}], max_tokens=24
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_openai_chat_streams(openai_client: openai.OpenAI) -> None:
    stream = openai_client.chat.completions.create(
        model="anything",
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1
    assert chunks[-1].usage is not None


def test_openai_completions_stream(openai_client: openai.OpenAI) -> None:
    chunks = list(openai_client.completions.create(model="x", prompt="The sky is", max_tokens=8, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)


def test_openai_responses_stream(openai_client: openai.OpenAI) -> None:
    # Event by event: this llama.cpp leaves out content_index, which the SDK's accumulating helper wants.
    events = list(openai_client.responses.create(model="x", input=PROMPT, max_output_tokens=16, stream=True))
    assert [event for event in events if event.type == "response.output_text.delta"]
    assert events[-1].type == "response.completed"


def test_openai_models_are_listed(openai_client: openai.OpenAI) -> None:
    assert list(openai_client.models.list())


def test_anthropic_messages_answer_and_stream(anthropic_client: anthropic.Anthropic) -> None:
    message = anthropic_client.messages.create(model="x", max_tokens=16, messages=[{"role": "user", "content": PROMPT}])
    assert message.content
    with anthropic_client.messages.stream(
        model="x", max_tokens=16, messages=[{"role": "user", "content": PROMPT}]
    ) as stream:
        assert "".join(stream.text_stream)


def test_anthropic_counts_tokens(anthropic_client: anthropic.Anthropic) -> None:
    count = anthropic_client.messages.count_tokens(model="x", messages=[{"role": "user", "content": PROMPT}])
    assert count.input_tokens > 5


def test_the_proxy_ends_within_a_second_of_being_told(tmp_path: Path) -> None:
    with proxy_process("routes: []", tmp_path) as running:
        assert running.stop() == 0
