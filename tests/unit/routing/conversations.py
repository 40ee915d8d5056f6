"""Conversations as scripts, and the same written in each dialect."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pointsman.core.protocols import InferenceProtocol as P

DIALECTS = (P.CHAT_COMPLETIONS, P.MESSAGES, P.RESPONSES)
SEPARATORS = ((", ", ": "), (",", ":"), (" ,\n ", " : "))


class Step(NamedTuple):
    """What one does: `user`, `assistant` or `system` says the first text; `round`: a tool's call for each text."""

    kind: str
    texts: tuple[str, ...]
    tool: str = "read"


def said(kind: str, text: str) -> Step:
    return Step(kind, (text,))


def called(*texts: str, tool: str = "read") -> Step:
    return Step("round", texts, tool)


def messages_of(protocol: str, steps: Sequence[Step]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        ids = [f"call_{number}_{each}" for each in range(len(step.texts))]
        written += _WRITERS[P(protocol)](step, ids)
    return written


def _chat(step: Step, ids: Sequence[str]) -> list[dict[str, Any]]:
    if step.kind != "round":
        return [{"role": step.kind, "content": step.texts[0]}]
    calls = [
        {"id": each, "type": "function", "function": {"name": step.tool, "arguments": '{"a": [1]}'}} for each in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": each, "content": text} for each, text in zip(ids, step.texts, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _anthropic(step: Step, ids: Sequence[str]) -> list[dict[str, Any]]:
    if step.kind != "round":
        return [{"role": step.kind, "content": step.texts[0]}]
    calls = [{"type": "tool_use", "id": each, "name": step.tool, "input": {"a": [1]}} for each in ids]
    results = [
        {"type": "tool_result", "tool_use_id": each, "content": text}
        for each, text in zip(ids, step.texts, strict=True)
    ]
    return [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def _responses(step: Step, ids: Sequence[str]) -> list[dict[str, Any]]:
    if step.kind != "round":
        return [{"role": step.kind, "content": step.texts[0]}]
    calls = [{"type": "function_call", "call_id": each, "name": step.tool, "arguments": "{}"} for each in ids]
    outputs = [
        {"type": "function_call_output", "call_id": each, "output": text}
        for each, text in zip(ids, step.texts, strict=True)
    ]
    return [*calls, *outputs]


_WRITERS = {P.CHAT_COMPLETIONS: _chat, P.MESSAGES: _anthropic, P.RESPONSES: _responses}


def tool(protocol: str, name: str) -> dict[str, Any]:
    if protocol == P.CHAT_COMPLETIONS:
        return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    if protocol == P.MESSAGES:
        return {"name": name, "input_schema": {"type": "object"}}
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def key_of(protocol: str) -> str:
    return "input" if protocol == P.RESPONSES else "messages"


def body_of(
    protocol: str, steps: Sequence[Step], tools: Sequence[str] = (), separators: tuple[str, str] = (", ", ": ")
) -> bytes:
    """Its messages are the last member, so that it ends in `]}`."""
    fields: dict[str, Any] = {"model": "m", "stream": True, "temperature": 1.0}
    if tools:
        fields["tools"] = [tool(protocol, each) for each in tools]
    fields[key_of(protocol)] = messages_of(protocol, steps)
    return json.dumps(fields, ensure_ascii=False, separators=separators).encode()
