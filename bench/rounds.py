"""Rounds of measurements: their order, and what is measured again because the machine was busy."""

import random
import sys
import time
from dataclasses import replace

from bench.candidates import Candidate
from bench.measure import QUIET, Bench, Sample, measure
from bench.processes import Neighbours, Starved, Unusable
from bench.workloads import WORKLOADS, Workload

Key = tuple[str, str]
"""Names of a workload and a candidate."""
_ORDER_SEED = 20
_ATTEMPTS = 3


def order(names: list[str] | None, candidates: list[Candidate], rounds: int) -> list[tuple[int, Workload, Candidate]]:
    """Rounds over all workloads; in each the candidates follow each other closely, in an order that changes."""
    dice = random.Random(_ORDER_SEED)
    chosen = [workload for workload in WORKLOADS if not names or workload.name in names]
    found: list[tuple[int, Workload, Candidate]] = []
    for number in range(rounds):
        for workload in dice.sample(chosen, len(chosen)):
            takers = [
                candidate
                for candidate in candidates
                if workload.surface in candidate.surfaces
                and (not candidate.workloads or workload.name in candidate.workloads)
            ]
            found += [(number, workload, candidate) for candidate in dice.sample(takers, len(takers))]
    return found


class Rounds:
    """Collects samples by workload, candidate and round."""

    def __init__(self, bench: Bench, repeat_seconds: float) -> None:
        self._bench = bench
        self._repeat_seconds = repeat_seconds
        self.samples: dict[Key, dict[int, Sample]] = {}
        self.failures: dict[Key, str] = {}
        """Faults, after which a candidate is not measured again, and starvation when no round succeeded."""
        self.repeated = 0
        """Measurements made again because others were busy."""

    def measure(self, steps: list[tuple[int, Workload, Candidate]]) -> None:
        """Work through the steps in order."""
        starved: dict[Key, str] = {}
        for place, (number, workload, candidate) in enumerate(steps):
            key = (workload.name, candidate.name)
            if key in self.failures:
                continue
            _progress(f"bench: {place + 1}/{len(steps)} {workload.title}, {candidate.name}")
            try:
                self.samples.setdefault(key, {})[number] = self._quietly(workload, candidate)
            except Unusable as error:
                (starved if isinstance(error, Starved) else self.failures)[key] = str(error)
                _progress("")
                print(f"bench: {workload.title}, {candidate.name}: {error}", flush=True)
        _progress("")
        for key in self.failures:
            self.samples.pop(key, None)
        for key, why in starved.items():
            if not self.samples.get(key):
                self.failures.setdefault(key, why)

    def _quietly(self, workload: Workload, candidate: Candidate) -> Sample:
        """The first sample with quiet neighbours, or the one with the quietest of a few.

        What decides is what others did, never the figures, so that no result is picked. A wrong answer is a fault at
        once; being starved is one unless the neighbours were loud.
        """
        best: Sample | None = None
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1 or self._repeat_seconds <= 0
            neighbours, begun = Neighbours(), time.monotonic()
            try:
                sample = measure(self._bench, candidate, workload)
            except Starved as error:
                share = neighbours.share()
                if share <= QUIET:
                    raise Unusable(f"{error}, and the machine was quiet") from None
                if last and best is None:
                    raise
            else:
                sample = replace(sample, others=neighbours.share())
                if best is None or sample.others < best.others:
                    best = sample
                if sample.others <= QUIET:
                    break
            if last:
                break
            self.repeated += 1
            self._repeat_seconds -= time.monotonic() - begun
        assert best is not None
        return best


def _progress(line: str) -> None:
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end="", flush=True)
