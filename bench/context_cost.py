"""What taking something out of conversations costs a request, in CPU time of one thread.

    .venv/bin/python bench/context_cost.py           # some ten seconds

First the stage on a listener without such routes, and on a route beside one; then bodies of some sizes, and what was
taken out of them; last the worst bodies of 10 MiB. The best of many rounds.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from pointsman.core.candidate import Candidate
from pointsman.core.context_options import ContextOptions
from pointsman.core.endpoint import Endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.events.record import Record
from pointsman.gateway.stages.context import ContextStage
from pointsman.proxy.stages import Passage
from pointsman.routing.context_trim import optimise
from pointsman.wire.request import Request, RequestHead

_MIB = 1024 * 1024
_TOOLS = [{"type": "function", "function": {"name": f"t{n}", "parameters": {"d": "x" * 400}}} for n in range(30)]


def conversation(size: int) -> bytes:
    """Rounds of one call each; every third result is there already."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s" * 4000}, {"role": "user", "content": "go"}]
    length = number = 0
    while length < size:
        text = f"result {number - number % 3 if number % 3 < 2 else number} " + "line of a file\n" * 120
        call = {"id": f"call_{number}", "type": "function", "function": {"name": f"t{number % 5}", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text})
        length, number = length + len(text) + 250, number + 1
    return json.dumps({"model": "m", "tools": _TOOLS, "messages": messages}).encode()


WORST = {
    "10 MiB of empty messages": b'{"messages":[' + b'{"role":"user"},' * (10 * _MIB // 16) + b'{"role":"user"}]}',
    "10 MiB of numbers": b'{"messages":[' + b"1," * (5 * _MIB - 10) + b"1]}",
    "10 MiB in one message": b'{"messages":[{"role":"user","content":"' + b"x" * (10 * _MIB - 100) + b'"}]}',
    "10 MiB of escapes": b'{"messages":[{"role":"user","content":"' + b"\\n" * (5 * _MIB - 100) + b'"}]}',
}

SIZES = {"20 KiB": 20 * 1024, "200 KiB": 200 * 1024, "2 MiB": 2 * _MIB, "10 MiB": 9 * _MIB}


def best(rounds: int, work: Callable[[], object]) -> float:
    """Microseconds."""
    found = float("inf")
    for _ in range(rounds):
        began = time.thread_time()
        work()
        found = min(found, (time.thread_time() - began) * 1e6)
    return found


def stage_cost(in_force: dict[tuple[str, str], ContextOptions]) -> float:
    """Of a request on a route that takes nothing out, microseconds."""
    record = Record("id", 0.0, "POST", "/v1/chat/completions", P.CHAT_COMPLETIONS)
    record.route = "plain"
    request = Request(RequestHead("POST", "/v1/chat/completions", 1, []), b"{}")
    target = Candidate("plain", Endpoint("mock", "", 0, ""), "m", (P.CHAT_COMPLETIONS,))
    stage, passage = ContextStage(lambda: in_force, print), Passage(request, record, target)

    async def many() -> float:
        began = time.thread_time()
        for _ in range(1000):
            await stage.trim(passage)
        return (time.thread_time() - began) * 1000

    return min(asyncio.run(many()) for _ in range(20))


def main(arguments: list[str]) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args(arguments).rounds
    print(f"{'no such route (µs)':34}{stage_cost({}):10.2f}")
    options = ContextOptions(True, True, 25_000)
    print(f"{'another route (µs)':34}{stage_cost({('default', 'trimmed'): options}):10.2f}")
    for name, size in SIZES.items():
        body = conversation(size)
        for word, chosen in (("duplicates", ContextOptions(drop_duplicates=True)), ("all", options)):
            found = optimise(body, P.CHAT_COMPLETIONS, chosen)
            cost = best(rounds, lambda body=body, chosen=chosen: optimise(body, P.CHAT_COMPLETIONS, chosen))  # type: ignore[misc]
            print(
                f"{f'{name}, {word} (ms)':34}{cost / 1000:10.2f}  saved {found.saved_tokens} of {len(body) // 4} tokens"
            )
    for name, body in WORST.items():
        found = optimise(body, P.CHAT_COMPLETIONS, options)
        cost = best(3, lambda body=body: optimise(body, P.CHAT_COMPLETIONS, options))  # type: ignore[misc]
        print(f"{f'{name} (ms)':34}{cost / 1000:10.2f}  {found.unchanged or found.saved_tokens}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
