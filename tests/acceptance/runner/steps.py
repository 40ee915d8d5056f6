"""The steps in their order: what works, then what breaks (`faults`), then what must not be found (`traces`)."""

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import openai

from tests.acceptance.runner import faults, traces
from tests.acceptance.runner.asking import new_nonce, until
from tests.acceptance.runner.transcript import Tell, Transcript
from tests.acceptance.runner.world import MODEL, READY, URL, Step, World, world

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def run(transcript: Transcript, directory: Path) -> None:
    """All of them; the first must hold, or there is nothing to try."""
    with contextlib.ExitStack() as stack:
        parts: list[World] = []

        def begin(tell: Tell) -> None:
            parts.append(stack.enter_context(world(directory)))
            tell(f"names that the gateway does not know lead to another provider, at port {parts[0].provider.port}")

        first: tuple[tuple[str, Step], ...] = (
            ("one API process and two data workers start", start_gateway),
            ("two llama.cpp servers, each with a recording before it", start_models),
            ("register, discover, approve: two runners with the same model", register),
        )
        if not transcript.step("PostgreSQL, nats-server and two more networks", begin):
            return
        for name, step in first:
            if not transcript.step(name, partial(step, parts[0])):
                return
        for name, step in (*STEPS, *faults.STEPS, *traces.STEPS):
            transcript.step(name, partial(step, parts[0]))


def start_gateway(made: World, tell: Tell) -> None:
    made.api.start(READY)
    with ThreadPoolExecutor() as pool:
        said = [made.api.lines[-1], *pool.map(lambda worker: worker.start(READY), made.workers)]
    for program, line in zip((made.api, *made.workers), said, strict=True):
        tell(f"{program.name}: {line.strip()}")
    made.make_keys()


def start_models(made: World, tell: Tell) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda host: host.start_model(), made.hosts))
    tell(f"{MODEL} at {URL} of each machine")


def register(made: World, tell: Tell) -> None:
    first, second = made.hosts
    told = first.register("desk", made.user_key)
    tell(told.rstrip())
    until(lambda: MODEL in first.command("models"), "the model was not found")
    listed = first.command("models")
    assert "Nothing was registered" in listed, listed
    tell(listed.rstrip())
    told = first.command("models", "--register-all", key_file=made.user_key)
    tell(told.rstrip())
    until(lambda: MODEL in second.command("models"), "the model was not found")
    told = second.register("attic", made.user_key, "--register-all")
    tell(told.rstrip())
    for host in made.hosts:
        listing = json.loads(host.command("models", "--register-all", "-o", "json", key_file=made.user_key))
        (model,) = [each for each in listing if each["model_identifier"] == MODEL]
        assert model["approved"]
        assert model["base_url"] == URL
        host.alias = model["alias"]
        tell(host.runner.start(READY).strip())
    assert first.alias != second.alias
    tell(f"aliases: {first.alias}, {second.alias}")
    for client in made.clients:
        for host in made.hosts:
            took = until(partial(client.works, host.alias), "not served")
            tell(f"port {client.port} serves {host.alias} after {took:.1f} s")


def _sdk(made: World, worker: int) -> openai.OpenAI:
    client = made.clients[worker]
    return openai.OpenAI(base_url=f"http://127.0.0.1:{client.port}/v1", api_key=client.key, max_retries=0, timeout=60)


def sdk_streams(made: World, tell: Tell) -> None:
    for worker, client in enumerate(made.clients):
        with _sdk(made, worker) as sdk:
            for host in made.hosts:
                nonce = new_nonce()
                began = time.monotonic()
                chunks = sdk.chat.completions.create(
                    model=host.alias,
                    messages=[{"role": "user", "content": f"Count from one to ten. {nonce}"}],
                    max_tokens=32,
                    stream=True,
                )
                first, pieces = 0.0, []
                for chunk in chunks:
                    if chunk.choices and chunk.choices[0].delta.content:
                        first = first or time.monotonic() - began
                        pieces.append(chunk.choices[0].delta.content)
                seconds = time.monotonic() - began
                assert len(pieces) > 4, pieces
                assert len(host.reached(nonce)) == 1
                tell(
                    f"port {client.port}, {host.alias}: {len(pieces)} pieces in {seconds:.2f} s, "
                    f"the first after {first:.2f} s: {''.join(pieces)[:40]!r}"
                )


def raw_stream(made: World, tell: Tell) -> None:
    host = made.hosts[0]
    asking = made.clients[1].stream(host.alias, max_tokens=8, ignore_eos=False)
    assert (asking.response.getheader("content-type") or "").startswith("text/event-stream")
    route, model, attempts = (
        asking.response.getheader(f"x-pointsman-{each}") for each in ("route", "model", "attempts")
    )
    end = asking.end()
    asking.connection.close()
    assert end.is_done, end.lines[-2:]
    assert end.is_whole
    tell(f"{len(end.lines)} events; route {route}, model {model}, attempts {attempts}")
    tell(f"the last two: {end.lines[-2][:80]}… and {end.lines[-1]}")
    (reached,) = host.reached(asking.nonce)
    assert json.loads(reached.body)["model"] == MODEL
    names = sorted(line.split(":")[0].lower() for line in reached.head.split("\r\n")[1:] if line)
    tell(f"what llama.cpp was sent: {reached.head.splitlines()[0]}; {', '.join(names)}")
    assert reached.head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert not {"authorization", "x-mine", "cookie"} & set(names)


def _weather(city: str) -> list[dict[str, Any]]:
    call = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return [
        {"role": "user", "content": f"What is the weather in {city}?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call-1", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ]


def tools(made: World, tell: Tell) -> None:
    messages: Any = [*_weather("Rome"), {"role": "user", "content": "What is the weather in Paris?"}]
    given: Any = {"messages": messages, "tools": _TOOLS, "max_tokens": 64, "temperature": 0, "seed": 1}
    host = made.hosts[1]
    nonce = new_nonce()
    with _sdk(made, 0) as sdk:
        answer = sdk.chat.completions.create(model=host.alias, **given, user=nonce)
        (call,) = answer.choices[0].message.tool_calls or []
        tell(f"buffered: {call.function.name}({call.function.arguments}), {answer.choices[0].finish_reason}")
        assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
        arguments, chunks = "", 0
        for chunk in sdk.chat.completions.create(model=host.alias, **given, stream=True, user=new_nonce()):
            for choice in chunk.choices:
                for piece in choice.delta.tool_calls or []:
                    arguments += piece.function.arguments or "" if piece.function else ""
                    chunks += 1
        assert json.loads(arguments) == {"city": "Paris"}
        tell(f"streamed: the same in {chunks} pieces")
    (reached,) = host.reached(nonce)
    assert json.loads(reached.body)["tools"] == _TOOLS


def buffered(made: World, tell: Tell) -> None:
    for worker, host in ((0, made.hosts[0]), (1, made.hosts[1])):
        with _sdk(made, worker) as sdk:
            answer = sdk.chat.completions.create(
                model=host.alias,
                messages=[{"role": "user", "content": f"Name a colour. {new_nonce()}"}],
                max_tokens=16,
            )
        assert answer.usage is not None
        tell(f"{host.alias}: {answer.usage.completion_tokens} tokens, {answer.choices[0].finish_reason}")


def sandboxed(made: World, tell: Tell) -> None:
    host = made.hosts[1]
    token = made.directory / "keys" / "sandbox"
    made.pointsman("sandbox", "token", "create", "agent", f"--route={host.alias}", "--out", str(token))
    made.secrets += (token.read_text().strip(),)
    nonce = new_nonce()
    body = {"model": "any", "messages": [{"role": "user", "content": nonce}], "stream": True, "max_tokens": 8}
    curl = ["curl", "-sSN", "https://inference.local/v1/chat/completions", "-d", json.dumps(body)]
    curl += ["-H", "content-type: application/json"]
    answer = made.pointsman("sandbox", "run", "--token-file", str(token), "--", *curl)
    lines = [line for line in answer.splitlines() if line]
    assert lines[-1] == "data: [DONE]", answer
    (reached,) = host.reached(nonce)
    assert json.loads(reached.body)["model"] == MODEL
    tell(f"curl got {len(lines)} events from https://inference.local, the last data: [DONE]")


STEPS: tuple[tuple[str, Step], ...] = (
    ("the official SDK streams, through each worker from each runner", sdk_streams),
    ("the raw stream ends with data: [DONE]", raw_stream),
    ("tools: the model asks for a call", tools),
    ("buffered", buffered),
    ("an agent in a sandbox, whose route is a runner's model", sandboxed),
)
