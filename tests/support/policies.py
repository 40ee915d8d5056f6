"""Policies in short, and requests for them."""

import json
from typing import Any

from pointsman.core.caller import ANYBODY, Caller
from pointsman.core.policy import Effect, Policy, Rule, Side
from pointsman.routing.policy import CompiledPolicy, Decision, compile_patterns, compile_policy, evaluate

CHAT, MESSAGES, RESPONSES = "openai_chat_completions", "anthropic_messages", "openai_responses"


def rule(name: str = "rule", effect: Effect = Effect.BLOCK, **conditions: Any) -> Rule:
    """A rule about requests."""
    return Rule(name, Side.REQUEST, effect, **conditions)


def compiled(
    *rules: Rule, dialect: str = CHAT, is_enforced: bool = True, caller: Caller = ANYBODY, route: str = "fast"
) -> CompiledPolicy | None:
    """What applies of them."""
    policy = Policy("default", 1, rules, is_enforced)
    return compile_policy(policy, compile_patterns(policy, Side.REQUEST), caller, route, dialect)


def decide(body: bytes | dict[str, Any], *rules: Rule, dialect: str = CHAT, is_enforced: bool = True) -> Decision:
    """What they say of a body."""
    made = compiled(*rules, dialect=dialect, is_enforced=is_enforced)
    assert made is not None
    return evaluate(made, body if isinstance(body, bytes) else json.dumps(body).encode())


def places(decision: Decision) -> list[str]:
    """Where something matched."""
    return [hit.place for hit in decision.hits]
