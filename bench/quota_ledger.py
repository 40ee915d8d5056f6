"""What a quota costs, and whether it is exact: CPU time of a reservation on SQLite, and two workers on one file.

    .venv/bin/python bench/quota_ledger.py              # CPU µs, then 100 runs of 10 N on N left
    .venv/bin/python bench/quota_ledger.py --runs 0     # CPU µs only
    .venv/bin/python bench/quota_ledger.py --url postgresql://…   # the runs on PostgreSQL, in an empty database

CPU time, so that other programs on the machine count for little; the best of five rounds. Exit status 1 when a run
admitted another number than its limit.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from tests.conformance.ledgers import KEY, NOON, Counting
from tests.support.quota_workers import quota_workers

from pointsman.core.quota import Quota

ROUNDS = 5
TIMES = 2_000


async def cpu_microseconds(counting: Counting) -> dict[str, float]:
    """Of each operation, alone."""
    best = {"reserve": float("inf"), "release": float("inf"), "refused": float("inf"), "counters": float("inf")}
    quota, full = Quota(10**6, 10**6), Quota(1)

    def note(name: str, began: float) -> float:
        best[name] = min(best[name], (time.thread_time() - began) / TIMES * 1e6)
        return time.thread_time()

    async with counting.opened() as ledger:
        for _ in range(ROUNDS):
            began = time.thread_time()
            places = [await ledger.reserve(KEY, quota, NOON) for _ in range(TIMES)]
            began = note("reserve", began)
            for place in places[1:]:
                assert place is not None
                await ledger.release(place)
            began = note("release", began)
            for _ in range(TIMES):
                await ledger.reserve(KEY, full, NOON)
            began = note("refused", began)
            for _ in range(TIMES):
                ledger.counters(KEY, quota, NOON)
            note("counters", began)
            await ledger.look(NOON)
    return best


def wrong_runs(counting: Counting, runs: int) -> int:
    """How many of so many runs with 10 N concurrent reservations, in two processes, did not admit exactly N."""
    numbers = random.Random(runs)
    wrong = 0
    with quota_workers(counting, 2) as workers:
        for run in range(runs):
            limit = numbers.randrange(1, 21)
            quota = Quota(limit, 0) if run % 2 else Quota(0, limit)
            wrong += sum(workers.admitted(f"run{run}", quota, 5 * limit)) != limit
    return wrong


def main() -> int:
    """Print both; 1 if a run was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--url", default="", help="of an empty PostgreSQL database, for the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        file = Counting(Path(directory) / "quota.db")
        for name, cost in asyncio.run(cpu_microseconds(file)).items():
            print(f"{name:10} {cost:6.1f} µs CPU")
        wrong = wrong_runs(Counting(url=options.url) if options.url else file, options.runs)
    print(f"{options.runs} runs of 10 N on N left, two processes: {wrong} not exact")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
