"""What policies cost: `python -m bench.policy_rules`. CPU of one evaluation, the least of many.

Small: a request of 400 bytes. Large: one of 200 KiB, with 20 tools and 150 messages. No rule matches in either.
"""

import json
import random
import time
from collections.abc import Callable
from functools import partial

from pointsman.core.caller import ANYBODY
from pointsman.core.policy import Effect, Policy, Rule, Side
from pointsman.routing.policy import PASSED, CompiledPolicy, compile_patterns, compile_policy, evaluate

_CHAT = "openai_chat_completions"


class Words:
    """Text that is the same each time."""

    def __init__(self) -> None:
        self.luck = random.Random(1)  # the same text each time
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.all = ["".join(self.luck.choices(letters, k=self.luck.randint(3, 9))) for _ in range(5000)]

    def text(self, characters: int) -> str:
        """So many characters, or a few more."""
        made = ""
        while len(made) < characters:
            made += self.luck.choice(self.all) + " "
        return made


def small_body(words: Words) -> bytes:
    """A question."""
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": words.text(300)}]
    return json.dumps({"model": "fast", "messages": messages, "max_tokens": 100}, separators=(",", ":")).encode()


def large_body(words: Words, size: int = 200 * 1024) -> bytes:
    """An agent's conversation."""
    schema = {f"p{number}": {"type": "string", "description": words.text(60)} for number in range(8)}
    tools = [
        {"type": "function", "function": {"name": f"t{number}", "description": words.text(300), "parameters": schema}}
        for number in range(20)
    ]
    messages: list[dict[str, object]] = [{"role": "system", "content": words.text(2000)}]
    body = {"model": "fast", "messages": messages, "tools": tools, "max_tokens": 100}
    while len(json.dumps(body)) < size:
        parts = [{"type": "text", "text": f"{words.text(600)}\n{words.text(200)}"}]
        messages.append({"role": "user", "content": parts})
        messages.append({"role": "assistant", "content": words.text(500)})
    return json.dumps(body, separators=(",", ":")).encode()


def policy_of(words: Words, patterns: int) -> CompiledPolicy:
    """Rules of tools, fields and tokens, and so many of patterns."""
    rules = [
        Rule("tools", Side.REQUEST, Effect.BLOCK, denied_tools=("shell*", "bash")),
        Rule("fields", Side.REQUEST, Effect.BLOCK, denied_fields=("logit_bias",)),
        Rule("tokens", Side.REQUEST, Effect.BLOCK, most_tokens=1000),
    ]
    for number in range(patterns):
        word = words.luck.choice(words.all) + words.luck.choice(words.all)
        rules.append(Rule(f"r{number}", Side.REQUEST, Effect.BLOCK, pattern=rf"\b{word}[0-9]{{3,5}}\b"))
    policy = Policy("default", 1, tuple(rules), is_enforced=True)
    made = compile_policy(policy, compile_patterns(policy, Side.REQUEST), ANYBODY, "fast", _CHAT)
    if made is None:
        raise AssertionError("rules for all apply to everybody")
    return made


def least_seconds(work: Callable[[], object], times: int) -> float:
    """CPU seconds of the quickest of many."""
    least = float("inf")
    for _ in range(times):
        before = time.process_time_ns()
        work()
        least = min(least, (time.process_time_ns() - before) / 1e9)
    return least


def main() -> None:
    """Print a table."""
    words = Words()
    small, large = small_body(words), large_body(words)
    print("patterns  small  large (µs)")
    for patterns in (0, 1, 10, 100, 1000):
        compiled = policy_of(words, patterns)
        if evaluate(compiled, small) != PASSED or evaluate(compiled, large) != PASSED:
            raise AssertionError("no rule was to match")

        def many(compiled: CompiledPolicy = compiled) -> None:
            for _ in range(100):
                evaluate(compiled, small)

        of_small = least_seconds(many, 50) / 100
        of_large = least_seconds(partial(evaluate, compiled, large), 100)
        print(f"{patterns:8}  {of_small * 1e6:5.1f}  {of_large * 1e6:5.0f}")


if __name__ == "__main__":
    main()
