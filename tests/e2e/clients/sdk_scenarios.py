"""The official Python SDKs as an ordinary program uses them: no argument names a URL, a key, a proxy or a certificate.

Runs the scenarios named on its command line and prints one JSON line for each: {name, value} or {name, error}.
"""

import json
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import anthropic
import openai

OPENAI = openai.OpenAI(max_retries=0)
ANTHROPIC = anthropic.Anthropic(max_retries=0)
GREET = "Say hello to the world."
CUT = "Be cut off."
# A real model then says the same each time. llama.cpp leaves out message_start where an answer begins with an emoji.
STEADY: Any = {"extra_body": {"temperature": 0}}


def say(text: str) -> Any:
    return [{"role": "user", "content": text}]


def chat(text: str, **rest: Any) -> Any:
    return OPENAI.chat.completions.create(model="any", messages=say(text), max_tokens=16, **STEADY, **rest)


def respond(text: str, **rest: Any) -> Any:
    return OPENAI.responses.create(model="any", input=text, max_output_tokens=16, **STEADY, **rest)


def message(text: str, **rest: Any) -> Any:
    return ANTHROPIC.messages.create(model="any", max_tokens=16, messages=say(text), **STEADY, **rest)


def gather(stream: Any, pick: Callable[[Any], str | None]) -> tuple[str, Any]:
    text, last = "", None
    for last in stream:
        text += pick(last) or ""
    return text, last


def chat_text(chunk: Any) -> str | None:
    return chunk.choices[0].delta.content if chunk.choices else ""


def response_text(event: Any) -> str:
    return event.delta if event.type == "response.output_text.delta" else ""


def message_text(event: Any) -> str:
    return event.delta.text if event.type == "content_block_delta" else ""


def chat_stream() -> list[object]:
    text, last = gather(chat(GREET, stream=True, stream_options={"include_usage": True}), chat_text)
    return [text, last.usage.completion_tokens > 0]


def responses_stream() -> list[object]:
    text, last = gather(respond(GREET, stream=True), response_text)
    return [text, last.type]


def messages_stream() -> list[object]:
    text, last = gather(message(GREET, stream=True), message_text)
    return [text, last.type]


def messages_helper() -> object:
    with ANTHROPIC.messages.stream(model="any", max_tokens=16, messages=say(GREET), **STEADY) as stream:
        return stream.get_final_text()


def count_tokens() -> bool:
    return ANTHROPIC.messages.count_tokens(model="any", messages=say(GREET)).input_tokens > 0


SCENARIOS: dict[str, Callable[[], object]] = {
    "chat": lambda: chat(GREET).choices[0].message.content,
    "chat_stream": chat_stream,
    "chat_cut": lambda: gather(chat(CUT, stream=True), chat_text),
    "responses": lambda: respond(GREET).output_text,
    "responses_stream": responses_stream,
    "responses_cut": lambda: gather(respond(CUT, stream=True), response_text),
    "messages": lambda: message(GREET).content[0].text,
    "messages_stream": messages_stream,
    "messages_helper": messages_helper,
    "messages_cut": lambda: gather(message(CUT, stream=True), message_text),
    "models": lambda: bool(OPENAI.models.list().data),
    "count_tokens": count_tokens,
    "elsewhere": lambda: urllib.request.urlopen("https://example.com/", timeout=10).status,
}

for name in sys.argv[1:]:
    outcome: dict[str, object] = {"name": name}
    try:
        outcome["value"] = SCENARIOS[name]()
    except Exception as error:
        outcome["error"] = {"type": type(error).__name__, "text": str(error)}
    print(json.dumps(outcome), flush=True)
