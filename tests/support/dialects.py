"""A scripted model's answers, spelled in each dialect. Values in, values out.

Not here: the server that sends them (`scripted_model`). Every function gives the whole answer, or the events of a
stream as (event name, data) pairs; a name that is empty is not written.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MODEL = "scripted-model"
INPUT_TOKENS, OUTPUT_TOKENS = 11, 7
Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool of the agent's to be run."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    freeform: str = ""
    """The whole input of a tool that takes text instead of arguments."""


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something."""

    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A stream that ends in the middle of an event, after `text`."""

    text: str


Reply = Say | ToolCall | Cut


def _words(text: str) -> list[str]:
    """Pieces of a stream; never none."""
    return [f"{word} " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]]


def chat_answer(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(reply, ToolCall):
        function = {"name": reply.name, "arguments": json.dumps(reply.arguments)}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    else:
        message["content"] = reply.text
    finish = "tool_calls" if isinstance(reply, ToolCall) else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": _chat_usage(),
    }


def _chat_usage() -> dict[str, int]:
    total = INPUT_TOKENS + OUTPUT_TOKENS
    return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": total}


def chat_events(reply: Reply) -> Iterable[Event]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        return "", {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if isinstance(reply, ToolCall):
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": reply.name, "arguments": ""}}
        yield chunk({"tool_calls": [call]})
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(reply.arguments)}}]})
        yield chunk({}, "tool_calls")
    else:
        for word in _words(reply.text):
            yield chunk({"content": word})
        yield chunk({}, "stop")
    usage = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": []}
    yield "", {**usage, "usage": _chat_usage()}


def _output_item(reply: Reply, status: str) -> dict[str, Any]:
    """One item of a Responses answer; without its content while in progress."""
    done = status == "completed"
    if isinstance(reply, ToolCall) and reply.freeform:
        call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": reply.name, "status": status}
        return {**call, "input": reply.freeform if done else ""}
    if isinstance(reply, ToolCall):
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": reply.name, "status": status}
        return {**call, "arguments": json.dumps(reply.arguments) if done else ""}
    content = [{"type": "output_text", "text": reply.text, "annotations": []}] if done else []
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content}


def responses_answer(reply: Reply, status: str = "completed") -> dict[str, Any]:
    done = status == "completed"
    usage = {
        "input_tokens": INPUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": MODEL,
        "output": [_output_item(reply, status)] if done else [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "usage": usage if done else None,
    }


def responses_events(reply: Reply) -> Iterable[Event]:
    bodies: list[dict[str, Any]] = [{"type": "response.created", "response": responses_answer(reply, "in_progress")}]
    bodies.append({"type": "response.output_item.added", "output_index": 0, "item": _output_item(reply, "in_progress")})
    if isinstance(reply, ToolCall):
        if not reply.freeform:
            arguments = json.dumps(reply.arguments)
            place = {"item_id": "fc_1", "output_index": 0}
            bodies.append({"type": "response.function_call_arguments.delta", **place, "delta": arguments})
            bodies.append({"type": "response.function_call_arguments.done", **place, "arguments": arguments})
    else:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        empty, full = ({"type": "output_text", "text": text, "annotations": []} for text in ("", reply.text))
        bodies.append({"type": "response.content_part.added", **place, "part": empty})
        delta = {"type": "response.output_text.delta", **place, "logprobs": []}
        bodies += [{**delta, "delta": word} for word in _words(reply.text)]
        bodies.append({"type": "response.output_text.done", **place, "text": reply.text, "logprobs": []})
        bodies.append({"type": "response.content_part.done", **place, "part": full})
    bodies.append({"type": "response.output_item.done", "output_index": 0, "item": _output_item(reply, "completed")})
    bodies.append({"type": "response.completed", "response": responses_answer(reply)})
    for number, body in enumerate(bodies):
        yield body["type"], {**body, "sequence_number": number}


def messages_answer(reply: Reply) -> dict[str, Any]:
    tool = isinstance(reply, ToolCall)
    block: dict[str, Any]
    if isinstance(reply, ToolCall):
        block = {"type": "tool_use", "id": "toolu_1", "name": reply.name, "input": reply.arguments}
    else:
        block = {"type": "text", "text": reply.text}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [block],
        "stop_reason": "tool_use" if tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS},
    }


def messages_events(reply: Reply) -> Iterable[Event]:
    answer = messages_answer(reply)
    block = answer["content"][0]
    start = {**answer, "content": [], "stop_reason": None, "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1}}
    bodies: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    if isinstance(reply, ToolCall):
        bodies.append({"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}})
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}]
    else:
        bodies.append({"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}})
        deltas = [{"type": "text_delta", "text": word} for word in _words(reply.text)]
    bodies += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    bodies.append({"type": "content_block_stop", "index": 0})
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    bodies.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": OUTPUT_TOKENS}})
    bodies.append({"type": "message_stop"})
    for body in bodies:
        yield body["type"], body
