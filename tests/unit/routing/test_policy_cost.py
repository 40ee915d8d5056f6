"""What policies cost. CPU time, with air for a busy machine; `bench/policy_rules.py` has the figures."""

import json
from typing import Any

import pytest
from bench.policy_rules import Words, large_body, least_seconds, policy_of, small_body

from pointsman.core.policy import Effect
from pointsman.routing.policy import PASSED, Unsearchable, evaluate
from tests.support.policies import compiled, rule

pytestmark = pytest.mark.alone


@pytest.mark.guarantee("P5")
def test_a_thousand_patterns_cost_a_large_body_milliseconds_and_a_small_one_microseconds() -> None:
    words = Words()
    policy, large, small = policy_of(words, 1000), large_body(words), small_body(words)
    assert evaluate(policy, large) == evaluate(policy, small) == PASSED
    assert least_seconds(lambda: evaluate(policy, large), 20) < 0.008
    assert least_seconds(lambda: [evaluate(policy, small) for _ in range(100)], 20) < 0.006


HOSTILE: list[Any] = [
    b'{"a":[' + b"[]," * 190_000 + b"0]}",
    b'{"messages":[' + b'{"content":[{"text":"a"},{"text":"b"}]},' * 10_000 + b"0]}",
    json.dumps({"a": "secret " * 500_000}).encode(),
    b'{"a":"' + b"\\u0041" * 650_000 + b'secret"}',
    json.dumps({"a": "é" * 1_900_000 + "secret"}, ensure_ascii=False).encode(),
    json.dumps({"messages": [{"tool_calls": [{"function": {"arguments": "\\n" * 600_000 + "secret"}}]}]}).encode(),
    json.dumps({"messages": [{"content": "secret"} for _ in range(20_000)]}).encode(),
]


@pytest.mark.guarantee("P5")
@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("effect", [Effect.BLOCK, Effect.REDACT])
def test_no_body_takes_long(body: bytes, effect: Effect) -> None:
    policy = compiled(*[rule(f"r{number}", effect, pattern=f"secret|w{number}") for number in range(20)])
    assert policy is not None

    def work() -> None:
        try:
            evaluate(policy, body)
        except Unsearchable:
            return

    assert least_seconds(work, 1) < 4
