"""Figures and targets as tables, and a run's record on disk. It measures nothing."""

import json
import math
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import QUIET, Sample, median
from bench.workloads import TARGETS, WORKLOADS, Figure, Kind, Target

_FIELD = {Figure.CPU: "cpu_us", Figure.ADDED: "p50_us", Figure.RSS: "rss_kib", Figure.LATENESS: "p99_us"}
_UNIT = {Figure.ADDED: " µs", Figure.RSS: " KiB"}
UNDER_TEST = "pointsman"
DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a run found out."""

    samples: Mapping[tuple[str, str], Mapping[int, Sample]]
    """By workload and candidate, then by round."""
    failures: Mapping[tuple[str, str], str]
    versions: Mapping[str, str]
    missing: Mapping[str, str]
    """Candidates that could not run, and why."""
    rounds: int
    repeated: int
    """Measurements made again because the machine was busy."""
    seconds: float
    """How long the whole run took."""

    def of(self, workload: str, candidate: str) -> list[Sample]:
        """The samples of all rounds; empty when there are none."""
        return list(self.samples.get((workload, candidate), {}).values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target beside what was measured."""

    target: Target
    value: float
    lowest: float
    highest: float
    """Over the rounds."""
    noisy: bool = False
    """Others had too much of the machine for the figure to decide anything."""

    @property
    def word(self) -> str:
        """How it went."""
        if math.isnan(self.value):
            return "not measured"
        word = "ok" if self.value <= self.target.bound else "MISS"
        return f"{word}, but noisy" if self.noisy else word


def verdicts(run: Run) -> list[Verdict]:
    """Every target that this run can speak to: of workloads and against peers that were asked for."""
    keys = [*run.samples, *run.failures]
    workloads = {workload for workload, _ in keys}
    peers = {"", *(name for _, name in keys), *run.missing}
    return [_verdict(run, each) for each in TARGETS if each.workload in workloads and each.against in peers]


def _verdict(run: Run, target: Target) -> Verdict:
    field = _FIELD[target.figure]
    other = DIRECT if target.figure is Figure.ADDED else target.against
    ours, theirs = run.of(target.workload, UNDER_TEST), run.of(target.workload, other)
    if not ours or (other and not theirs):
        return Verdict(target, math.nan, math.nan, math.nan)

    def compare(our: float, their: float) -> float:
        return our / their if target.against else our - their

    shares = [median(samples, "others") for samples in (ours, theirs or ours)]
    noisy = max(shares) > QUIET and target.figure is not Figure.RSS
    if not other:
        each = [float(getattr(sample, field)) for sample in ours]
        return Verdict(target, median(ours, field), min(each), max(each), noisy)
    their_rounds = run.samples[target.workload, other]
    each = [
        compare(getattr(sample, field), getattr(their_rounds[number], field))
        for number, sample in run.samples[target.workload, UNDER_TEST].items()
        if number in their_rounds
    ] or [math.nan]
    return Verdict(target, compare(median(ours, field), median(theirs, field)), min(each), max(each), noisy)


def notes(run: Run) -> list[str]:
    """What a reader of the tables has to know: the machine's own part, noise, proxies that redial."""
    found = [noise(run), *(f"{name} was not measured: {why}" for name, why in run.missing.items())]
    found += [f"{workload}, {name} failed: {why}" for (workload, name), why in run.failures.items()]
    direct, nginx = run.of("one", DIRECT), run.of("one", "nginx")
    if direct and nginx:
        added = median(nginx, "p50_us") - median(direct, "p50_us")
        found.append(f"on one connection nginx itself adds {added:.0f} µs here: what waking a process costs, mostly")
    for workload in WORKLOADS:
        for name in run.versions:
            if 0 < len(run.of(workload.name, name)) < run.rounds:
                found.append(f"{workload.title}, {name}: starved in some of the rounds")
            dialled = median(run.of(workload.name, name), "upstream_connections")
            # Twice: warm-up and measurement. The rest: health checks, warm-up streams.
            if dialled > 2 * workload.connections + 40:
                found.append(f"{workload.title}, {name}: {dialled:.0f} upstream connections, so it redials")
    return found


def noise(run: Run) -> str:
    """How much of the two cores went to others while figures were taken."""
    shares = [sample.others for rounds in run.samples.values() for sample in rounds.values()]
    if not shares:
        return "nothing was measured"
    text = f"others took {statistics.median(shares):.0%} of the two cores (median; at most {max(shares):.0%})"
    return f"{text}; {run.repeated} measurements were made again because of that"


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table whose columns are padded, so that it reads well in a terminal too."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ["| " + " | ".join(_padded(row, widths)) + " |" for row in lines]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if n < 2 else ":") for n, w in enumerate(widths)) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def _padded(row: list[str], widths: list[int]) -> list[str]:
    cells = zip(row, widths, strict=True)
    return [cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(cells)]


def figures_table(run: Run) -> str:
    """Medians by workload and candidate."""
    rows = []
    for workload in WORKLOADS:
        paced = workload.kind is Kind.PACED
        for name in (*run.versions, *run.missing):
            samples = run.of(workload.name, name)
            failure = run.failures.get((workload.name, name), "") or run.missing.get(name, "")
            if not samples and not failure:
                continue
            if failure:
                rows.append([workload.title, name, "failed", *[""] * 5])
                continue
            base = median(run.of(workload.name, "nginx"), "cpu_us")
            cpu = median(samples, "cpu_us")
            rows.append(
                [
                    workload.title,
                    name,
                    _number(cpu),
                    "-" if math.isnan(cpu / base) else f"{cpu / base:.2f}",
                    _number(median(samples, "per_second")),
                    _number(median(samples, "p50_us")),
                    _number(median(samples, "p99_us")),
                    _number(median(samples, "rss_kib")) if paced else "-",
                ]
            )
    header = ["workload", "candidate", "CPU µs", "× nginx", "per s", "p50 µs", "p99 µs", "KiB/stream"]
    return table(header, rows)


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def targets_table(run: Run) -> str:
    """Targets beside what was measured."""
    titles = {workload.name: workload.title for workload in WORKLOADS}
    rows = []
    for verdict in verdicts(run):
        target = verdict.target
        unit = _UNIT.get(target.figure, " ×")
        figure = f"{target.figure.value} / {target.against}" if target.against else target.figure.value
        form = ".2f" if target.against else ".0f"
        value = "-" if math.isnan(verdict.value) else f"{verdict.value:{form}}{unit}"
        spread = "" if math.isnan(verdict.value) else f"{verdict.lowest:{form}}–{verdict.highest:{form}}"
        bound = f"≤ {target.bound:g}{unit}"
        rows.append([titles[target.workload], figure, value, spread, bound, verdict.word])
    return table(["workload", "figure", "measured", "rounds", "target", ""], rows)


def machine() -> dict[str, str]:
    """What the figures were measured on; no names, no paths."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "kernel": platform.release(), "python": platform.python_version()}


def _git(*arguments: str) -> str:
    here = Path(__file__).resolve().parent
    done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def save(run: Run, directory: Path) -> Path:
    """Write DATE-COMMIT.json and .md; returns the path of the latter."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = bool(_git("status", "--porcelain", "--untracked-files=no", "--", "../src"))
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    facts = {**machine(), "commit": commit + (" with uncommitted changes in src" if changed else ""), "date": date}
    record = {
        **facts,
        "rounds": run.rounds,
        "notes": notes(run),
        "versions": dict(run.versions),
        "missing": dict(run.missing),
        "failures": [{"workload": w, "candidate": c, "why": why} for (w, c), why in run.failures.items()],
        "targets": [
            {**asdict(v.target), "figure": v.target.figure.value, "value": _json(v.value), "result": v.word}
            for v in verdicts(run)
        ],
        "samples": [
            {"workload": w, "candidate": c, "round": number, **{k: _json(v) for k, v in asdict(sample).items()}}
            for (w, c), rounds in run.samples.items()
            for number, sample in rounds.items()
        ],
    }
    directory.mkdir(exist_ok=True)
    path = directory / f"{date}-{commit}.md"
    path.with_suffix(".json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.write_text(as_markdown(run, facts), encoding="utf-8")
    return path


def _json(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def as_markdown(run: Run, facts: Mapping[str, str]) -> str:
    """The record for people."""
    lines = [f"# Benchmark of {facts['date']}, commit {facts['commit']}", ""]
    lines += [f"{facts['cpu']}, Linux {facts['kernel']}, Python {facts['python']}; medians of {run.rounds} rounds.", ""]
    lines += [f"* {name}: {version}" for name, version in run.versions.items()]
    lines += ["", "CPU is user and system time of the proxy per request, or per event for slow streams.", ""]
    lines += [*(f"Note: {note}." for note in notes(run)), ""]
    return "\n".join([*lines, figures_table(run), "", targets_table(run), ""])
