"""Chains under failures: 200 requests at once, each with a nonce in every part of its answer, and every count compared.

    .venv/bin/python bench/chain_soak.py [--seed N] [--clients 200] [--rounds 5] [--requests 20]    # make chain-soak

A real gateway with three chains (one for each strategy) of three providers and a fallback. Providers answer 429, 5xx,
401 and 404, cut before and after the first event, begin with an error, are slow, and refuse connections for a while;
clients leave. After each round: every answer held its own nonce alone, in order, whole or told as cut;
`/stats/live`, the usage rows and the providers' own counts of successes are equal; the operation log has
one beginning and one end of every request, and the end that its client saw. Exit status 1 when anything was wrong.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.chain_callers import STRATEGIES, Crowd, End
from bench.chain_upstreams import FALLBACK, PROVIDERS, Upstreams
from tests.support.gateway_process import GatewayProcess, fetch

_LIMITS = {"p0": 100_000, "p1": 200_000, "p2": 50_000, FALLBACK: 1_000_000}
"""Never reached, so that the weights stay as they are."""
_SETTLING_SECONDS = 20.0
_ENDS = ("infer_completed", "infer_failed", "infer_cancelled")
_END_OF = {"whole": "infer_completed", "cut": "infer_failed", "refused": "infer_failed", "left": "infer_cancelled"}


@dataclass(frozen=True, slots=True)
class Counted:
    """The same thing, as four parties have it."""

    live: dict[str, int]
    """`/stats/live`, by provider."""
    rows: Counter[str]
    """Usage rows by provider; those of nobody under the empty name."""
    started: int
    """In the operation log."""
    ends: Counter[str]
    """There, by `request_id`."""
    events: dict[str, str]
    """There, the end of each `request_id`."""


def configuration(ports: dict[str, int]) -> str:
    """As an operator writes it."""
    lines = ["providers:"]
    for name in PROVIDERS:
        at = f"base_url: 'http://127.0.0.1:{ports[name]}/v1', model: model-{name}, api_key: none"
        lines.append(f"  - {{name: {name}, type: openai_compatible, {at}, daily_request_limit: {_LIMITS[name]}}}")
    members = ", ".join(name for name in PROVIDERS if name != FALLBACK)
    lines.append("routes:")
    lines += [
        f"  - {{name: {strategy}, candidates: [{members}], strategy: {strategy}, fallback: {FALLBACK}}}"
        for strategy in STRATEGIES
    ]
    return "\n".join([*lines, ""])


def counted(gateway: GatewayProcess) -> Counted:
    """As of now."""
    status, body = fetch(gateway.ports["control"], "/stats/live", gateway.token_file.read_text().strip())
    if status != 200:
        raise OSError(f"/stats/live answered {status}")
    live = {each["provider_name"]: each["daily_count"] for each in json.loads(body)["providers"]}
    with contextlib.closing(sqlite3.connect(gateway.directory / "pointsman.db", timeout=10)) as database:
        rows = Counter(dict(database.execute("SELECT provider, count(*) FROM usage GROUP BY provider").fetchall()))
    started, ends, events = 0, Counter[str](), {}
    for path in sorted((gateway.directory / "operations").glob("operations-*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            started += entry["event"] == "infer_started"
            if entry["event"] in _ENDS:
                ends[entry["request_id"]] += 1
                events[entry["request_id"]] = entry["event"]
    return Counted(live, rows, started, ends, events)


def complaints(told: Counted, succeeded: Counter[str], seen: Sequence[End]) -> list[str]:
    """What does not agree."""
    wrong = []
    expected = {name: succeeded[name] for name in PROVIDERS}
    if told.live != expected:
        wrong.append(f"/stats/live has {told.live}, the providers {expected}")
    by_rows = {name: told.rows[name] for name in PROVIDERS}
    if by_rows != expected:
        wrong.append(f"usage rows have {by_rows}, the providers {expected}")
    if told.rows.total() != len(seen):
        wrong.append(f"{told.rows.total()} usage rows of {len(seen)} requests")
    if told.started != len(seen):
        wrong.append(f"the operation log has {told.started} beginnings of {len(seen)} requests")
    if len(told.ends) != len(seen) or told.ends.total() != len(seen):
        wrong.append(f"the operation log has {told.ends.total()} ends of {len(told.ends)} of {len(seen)} requests")
    kinds = Counter(told.events.values())
    by_clients = Counter(_END_OF[end.kind] for end in seen)
    if kinds != by_clients:
        wrong.append(f"the operation log has {dict(kinds)}, the clients {dict(by_clients)}")
    for end in seen:
        event = told.events.get(end.request_id)
        if end.request_id and event != _END_OF[end.kind]:
            wrong.append(f"{end}: the operation log has {event}")
    return wrong


async def _settled(gateway: GatewayProcess, upstreams: Upstreams, crowd: Crowd) -> list[str]:
    """What does not agree, once clients that left have been noticed and rows been written."""
    until = time.monotonic() + _SETTLING_SECONDS
    while True:
        told = await asyncio.to_thread(counted, gateway)
        found = complaints(told, upstreams.succeeded, crowd.ends)
        if not found or time.monotonic() > until:
            return found
        await asyncio.sleep(0.2)


async def soak(directory: Path, seed: int, clients: int, rounds: int, requests: int) -> tuple[list[str], str]:
    """All that was wrong, and a line of figures."""
    upstreams, began = Upstreams(seed), time.monotonic()
    async with upstreams.listening():
        file = directory / "pointsman.yaml"
        file.write_text(configuration(upstreams.ports))
        gateway = GatewayProcess(directory / "data", (0, 0, 0), f"--config={file}")
        await asyncio.to_thread(gateway.start)
        crowd = Crowd(upstreams, gateway.ports["data"], seed, clients)
        wrong: list[str] = []
        try:
            with crowd.kept():
                for number in range(rounds):
                    await crowd.round(f"r{number}", requests)
                    wrong += [f"round {number}: {each}" for each in await _settled(gateway, upstreams, crowd)]
                    if wrong or crowd.wrong:
                        break
        finally:
            await asyncio.to_thread(gateway.close)
    wrong += crowd.wrong + upstreams.wrong
    wrong += [line.strip() for line in gateway.lines if "internal error" in line or "Traceback" in line]
    injected = {name: count for name, count in upstreams.played.most_common() if name not in ("ok", "slow")}
    agreed = "= /stats/live = usage rows" if not wrong else "by the providers"
    line = (
        f"{len(crowd.ends)} requests of {clients} clients at once: {dict(crowd.kinds.most_common())}; "
        f"injected {injected}; successes {dict(upstreams.succeeded.most_common())} {agreed}; "
        f"{len(wrong)} wrong; {time.monotonic() - began:.0f} s, seed {seed}"
    )
    return wrong, line


def main() -> int:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20, help="of each client in a round")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pointsman-chains-") as directory:
        wrong, line = asyncio.run(soak(Path(directory), chosen.seed, chosen.clients, chosen.rounds, chosen.requests))
    print(f"chain soak: {line}")
    for each in wrong[:40]:
        print(f"  {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
