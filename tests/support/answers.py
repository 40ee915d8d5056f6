"""Answers in the dialects' forms, and what rules make of them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pointsman.core.caller import ANYBODY
from pointsman.core.policy import Blocked, Effect, Policy, PolicyHit, Rule, Side
from pointsman.routing.answer_rules import AnswerRules
from pointsman.routing.policy import CompiledPolicy, compile_patterns, compile_policy
from tests.support.policies import CHAT

DONE = b"data: [DONE]\n\n"


def answer_rule(name: str = "rule", effect: Effect = Effect.BLOCK, **conditions: Any) -> Rule:
    """A rule about answers."""
    return Rule(name, Side.RESPONSE, effect, **conditions)


def rules_of(*rules: Rule, dialect: str = CHAT, is_enforced: bool = True) -> AnswerRules:
    """Made ready."""
    policy = Policy("default", 1, rules, is_enforced)
    compiled = compile_policy(policy, compile_patterns(policy, Side.RESPONSE), ANYBODY, "fast", dialect, Side.RESPONSE)
    assert compiled is not None
    return AnswerRules([compiled])


class Passed:
    """What came of an answer."""

    def __init__(self, rules: AnswerRules, pieces: Iterable[bytes], *, is_stream: bool = True) -> None:
        self.hits: list[PolicyHit] = []
        self.told = ""
        self.steps: list[bytes] = []
        """What could go on after each piece."""
        made = rules.filter(is_stream=is_stream, is_coded=False, tell=self._tell)
        try:
            for piece in pieces:
                self.steps.append(made.receive(piece))
            self.steps.append(made.finish())
        except Blocked as blocked:
            self.steps.append(blocked.passed)
            self.told = blocked.told

    def _tell(self, _: CompiledPolicy, hit: PolicyHit) -> None:
        self.hits.append(hit)

    @property
    def out(self) -> bytes:
        return b"".join(self.steps)

    @property
    def places(self) -> list[tuple[str, str]]:
        return [(hit.rule, hit.place) for hit in self.hits]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Passed) and (self.out, self.hits, self.told) == (other.out, other.hits, other.told)

    def __hash__(self) -> int:
        return hash(self.out)


def event(value: Any, name: str = "", *, ascii_only: bool = True) -> bytes:
    """One event."""
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: " + data + b"\n\n"


def delta(index: int = 0, **fields: Any) -> dict[str, Any]:
    """A chunk of a chat's stream."""
    choice = {"index": index, "delta": fields, "finish_reason": None}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def chat_events(parts: Sequence[str], *, ascii_only: bool = True) -> list[bytes]:
    """A stream of chat whose text comes in these parts."""
    finish = delta()
    finish["choices"][0]["finish_reason"] = "stop"
    return [
        event(delta(role="assistant", content="")),
        *(event(delta(content=part), ascii_only=ascii_only) for part in parts),
        event(finish),
        DONE,
    ]


def message_events(parts: Sequence[str], *, ascii_only: bool = True) -> list[bytes]:
    """The same of Anthropic's messages."""

    def one(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, **fields}, kind, ascii_only=ascii_only)

    message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1}}  # fmt: skip
    return [
        one("message_start", message=message),
        one("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        one("ping"),
        *(one("content_block_delta", index=0, delta={"type": "text_delta", "text": part}) for part in parts),
        one("content_block_stop", index=0),
        one("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        one("message_stop"),
    ]


def response_events(parts: Sequence[str], *, ascii_only: bool = True) -> list[bytes]:
    """The same of OpenAI's responses, which tell the whole text again."""
    text, number = "".join(parts), iter(range(10_000))
    place = {"item_id": "i", "output_index": 0, "content_index": 0}

    def one(kind: str, **fields: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(number), **fields}, kind, ascii_only=ascii_only)

    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    start = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
             "status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto"}  # fmt: skip
    return [
        one("response.created", response=start),
        one("response.output_item.added", output_index=0, item={**item, "content": [], "status": "in_progress"}),
        one("response.content_part.added", **place, part={**part, "text": ""}),
        *(one("response.output_text.delta", **place, delta=each, logprobs=[]) for each in parts),
        one("response.output_text.done", **place, text=text, logprobs=[]),
        one("response.content_part.done", **place, part=part),
        one("response.output_item.done", output_index=0, item=item),
        one("response.completed", response={**start, "status": "completed", "output": [item]}),
    ]


def completion_events(parts: Sequence[str], *, ascii_only: bool = True) -> list[bytes]:
    """The same of the old completions."""
    return [
        *(event({"object": "text_completion", "choices": [{"index": 0, "text": part, "logprobs": None,
                 "finish_reason": None}]}, ascii_only=ascii_only) for part in parts),
        DONE,
    ]  # fmt: skip


STREAMS = {
    "openai_chat_completions": chat_events,
    "openai_completions": completion_events,
    "openai_responses": response_events,
    "anthropic_messages": message_events,
}


def text_of(stream: bytes) -> str:
    """What a client puts together of the deltas of any of these streams."""
    said = []
    for each in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        data = b"\n".join(line[6:] for line in each.split(b"\n") if line.startswith(b"data: "))
        if not data or data == b"[DONE]":
            continue
        value = json.loads(data)
        choices = value.get("choices", ())
        said += [each.get("text") or each.get("delta", {}).get("content") or "" for each in choices]
        found = value.get("delta", "")
        said.append(found if isinstance(found, str) else found.get("text", ""))
    return "".join(said).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
