"""Official SDKs raise when a stream is cut: never a silent end (DESIGN D21)."""

import json
import threading
from collections.abc import Callable, Iterator

import anthropic
import openai
import pytest

from tests.support.door import Door
from tests.support.upstream import Upstream, UpstreamPeer

CHAT = {
    "id": "c1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}],
}
COMPLETION = {**CHAT, "object": "text_completion", "choices": [{"index": 0, "text": "hi", "finish_reason": None}]}
RESPONSE = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "hi"}
RESPONSE |= {"sequence_number": 1, "logprobs": []}
MESSAGE = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}


def serve_half(peer: UpstreamPeer, event: dict[str, object], name: str) -> None:
    """One good event, half of another, and the end."""
    peer.request()
    peer.start_events()
    line = f"event: {name}\n" if name else ""
    text = f"{line}data: {json.dumps(event)}\n\n".encode()
    peer.chunk(text)
    peer.chunk(text[: len(text) // 2])
    peer.reset()


@pytest.fixture
def openai_client(door: Door) -> Iterator[openai.OpenAI]:
    proxy = f"http://127.0.0.1:{door.tunnel_address[1]}"
    http = openai.DefaultHttpxClient(proxy=proxy, verify=door.client_context(), trust_env=False)
    with openai.OpenAI(base_url="https://inference.local/v1", api_key="x", http_client=http, max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(door: Door) -> Iterator[anthropic.Anthropic]:
    proxy = f"http://127.0.0.1:{door.tunnel_address[1]}"
    http = anthropic.DefaultHttpxClient(proxy=proxy, verify=door.client_context(), trust_env=False)
    with anthropic.Anthropic(
        base_url="https://inference.local", api_key="x", http_client=http, max_retries=0
    ) as client:
        yield client


def cut_stream(upstream: Upstream, event: dict[str, object], name: str, call: Callable[[], Iterator[object]]) -> int:
    """Events received before the error that `call` must raise."""
    thread = threading.Thread(target=lambda: serve_half(upstream.accept(), event, name))
    thread.start()
    received = 0
    try:
        for _ in call():
            received += 1
    finally:
        thread.join()
        assert received == 1
    return received


def test_openai_chat_raises(upstream: Upstream, openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="response truncated: upstream read error"):
        cut_stream(
            upstream,
            CHAT,
            "",
            lambda: iter(openai_client.chat.completions.create(model="m", messages=[], stream=True)),
        )


def test_openai_completions_raise(upstream: Upstream, openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="response truncated: upstream read error"):
        cut_stream(
            upstream, COMPLETION, "", lambda: iter(openai_client.completions.create(model="m", prompt="", stream=True))
        )


def test_openai_responses_raise(upstream: Upstream, openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="response truncated: upstream read error"):
        cut_stream(
            upstream,
            RESPONSE,
            "response.output_text.delta",
            lambda: iter(openai_client.responses.create(model="m", input="", stream=True)),
        )


def test_anthropic_messages_raise(upstream: Upstream, anthropic_client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="response truncated: upstream read error"):
        cut_stream(
            upstream,
            MESSAGE,
            "content_block_delta",
            lambda: iter(anthropic_client.messages.create(model="m", max_tokens=1, messages=[], stream=True)),
        )


def test_a_cut_json_answer_raises(upstream: Upstream, openai_client: openai.OpenAI) -> None:
    def serve() -> None:
        peer = upstream.accept()
        peer.request()
        peer.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"id":')
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(openai.APIConnectionError):
        openai_client.chat.completions.create(model="m", messages=[])
    thread.join()
