"""An agent in a sandbox, as an ordinary program: no argument names a URL, a key, a proxy or a certificate.

Reads one request per line, `{"text", "stream"}`, and prints what comes of it as JSON lines: `{"text"}` for each piece
of an answer, then `{"end"}` with the model that was used, or `{"error"}`. Asked for "models" it lists them.
"""

import json
import sys
from typing import Any

import openai

CLIENT = openai.OpenAI(max_retries=0)
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def piece(choice: Any) -> str | None:
    said = choice.delta if hasattr(choice, "delta") else choice.message
    calls = said.tool_calls or ()
    return said.content or "".join(f"{call.function.name or ''}{call.function.arguments}" for call in calls)


def answer(text: str, *, stream: bool) -> None:
    if text == "models":
        say(end=[each.id for each in CLIENT.models.list()])
        return
    messages: Any = [{"role": "user", "content": text}]
    raw = CLIENT.chat.completions.with_raw_response.create(
        model="any", messages=messages, tools=[WEATHER], stream=stream
    )
    parsed: Any = raw.parse()
    for each in parsed if stream else [parsed]:
        for choice in each.choices:
            if found := piece(choice):
                say(text=found)
    say(end=raw.headers["x-pointsman-model"])


for line in sys.stdin:
    try:
        answer(**json.loads(line))
    except openai.APIError as error:
        status = getattr(error, "status_code", None)
        say(error=[type(error).__name__, status, error.code, error.message])
