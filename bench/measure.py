"""One measurement: start a candidate, drive it, read its CPU time and memory at the right moments."""

import contextlib
import http.client
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from bench.candidates import Candidate, Job, Running
from bench.configurations import UPSTREAM_MODEL, Certificates
from bench.processes import LOAD_CORE, Starved, Unusable, cpu_between, cpu_by_thread, free_ports, resident_kib, started
from bench.workloads import EVENTS_PER_SECOND, Kind, Workload

QUIET = 0.1
"""Share of the two cores that others may have before figures mean little."""
_SETTLE_SECONDS = 0.02  # what a proxy still does after the last byte went out belongs to the request
_WARM_STREAMS = 20
_TOO_SLOW = 75  # the loader's exit status when it saw no error but ran out of time
_LOST_EVENTS = 0.02
"""Share of the offered events that may be missing: streams begin and end inside a turn of the wheel."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one measurement gave; a figure that does not apply is NaN."""

    cpu_us: float
    """Per request; per event for paced streams."""
    per_second: float
    """Requests or events."""
    p50_us: float
    p99_us: float
    """Latency of a request; lateness of an event."""
    rss_kib: float
    """Growth per stream."""
    upstream_connections: int = 0
    others: float = 0.0
    """Share of the two cores that went to programs of others meanwhile."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are measured, in seconds."""

    warm: float
    closed_loop: float
    streams: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements share."""

    load: Path
    """The loader's binary."""
    work: Path
    certificates: Certificates
    upstream_ports: dict[Kind, int]
    pace: Pace

    def job(self, candidate: Candidate, workload: Workload) -> Job:
        """Describe one start of a candidate, in a directory of its own."""
        directory = self.work / f"{candidate.name}-{workload.name}"
        directory.mkdir(parents=True, exist_ok=True)
        port = self.upstream_ports[workload.kind]
        return Job(workload.surface, workload.kind, port, directory, self.certificates)

    def request_file(self, size: int) -> Path:
        """Where the request with a body of this size lies."""
        return self.work / f"request-{size}"

    def upstream_counts(self) -> dict[str, Any]:
        """What the upstream says of itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_ports[Kind.SMALL], timeout=5)
        with contextlib.closing(connection):
            connection.request("GET", "/stats")
            return cast(dict[str, Any], json.load(connection.getresponse()))


@contextlib.contextmanager
def upstream(binary: Path, log: Path) -> Iterator[dict[Kind, int]]:
    """The scripted upstream, one port for each kind of answer."""
    kinds = list(Kind)
    ports = dict(zip(kinds, free_ports(len(kinds)), strict=True))
    command = [str(binary), "--seconds", "120"]
    for kind, port in ports.items():
        command += [f"--{kind.value}", str(port)]
    with started(command, LOAD_CORE, log) as process:
        while b"ready" not in log.read_bytes():
            if process.poll() is not None:
                raise Unusable(f"the upstream ended: {log.read_text()[:200]}")
            time.sleep(0.01)
        yield ports


def measure(bench: Bench, candidate: Candidate, workload: Workload) -> Sample:
    """Start a candidate afresh and measure it. Raises Unusable when an answer was wrong or missing."""
    with candidate.start(bench.job(candidate, workload)) as running:
        before = bench.upstream_counts()["connections"]
        sample = _paced if workload.kind is Kind.PACED else closed_loop
        measured = sample(bench, running, workload)
        counts = bench.upstream_counts()
        if candidate.name == "pointsman" and counts["last_model"] != UPSTREAM_MODEL:
            raise Unusable(f"the upstream was asked for model {counts['last_model']!r}, not {UPSTREAM_MODEL!r}")
        return replace(measured, upstream_connections=counts["connections"] - before - 1)


def closed_loop(bench: Bench, running: Running, workload: Workload) -> Sample:
    """Measure a running candidate with requests one after the other on each connection."""
    options = ["--connections", str(workload.connections), "--expect-bytes", str(workload.expect_bytes)]
    options += ["--warm", str(bench.pace.warm), "--seconds", str(bench.pace.closed_loop)]
    with _loader(bench, running, workload, options) as loader:
        loader.expect("warm")
        time.sleep(_SETTLE_SECONDS)
        before = _cpu(running)
        loader.tell("go")
        result = loader.result()
        time.sleep(_SETTLE_SECONDS)
        used = cpu_between(before, _cpu(running))
    requests = result["requests"]
    if not requests:
        raise Unusable("no request was answered")
    return Sample(
        cpu_us=used / requests / 1000 if running.pid else float("nan"),
        per_second=requests / result["seconds"],
        p50_us=result["p50_us"],
        p99_us=result["p99_us"],
        rss_kib=float("nan"),
    )


def _paced(bench: Bench, running: Running, workload: Workload) -> Sample:
    # The first requests make a proxy allocate what does not belong to a stream.
    _stream(bench, running, workload, _WARM_STREAMS, 0.3)
    time.sleep(_SETTLE_SECONDS)
    resident = resident_kib(running.pid)
    streamed = _stream(bench, running, workload, workload.connections, bench.pace.streams)
    events, seconds = streamed.result["events"], streamed.result["seconds"]
    offered = workload.connections * EVENTS_PER_SECOND * seconds
    if events < offered * (1 - _LOST_EVENTS):
        raise Starved(f"{events} of {offered:.0f} events arrived")
    return Sample(
        cpu_us=streamed.cpu_ns / events / 1000,
        per_second=events / seconds,
        p50_us=streamed.result["p50_us"],
        p99_us=streamed.result["p99_us"],
        rss_kib=(streamed.resident_kib - resident) / workload.connections,
    )


@dataclass(frozen=True, slots=True)
class _Streamed:
    cpu_ns: int
    resident_kib: int
    result: dict[str, Any]


def _stream(bench: Bench, running: Running, workload: Workload, count: int, seconds: float) -> _Streamed:
    with _loader(bench, running, workload, ["--streams", "--connections", str(count)]) as loader:
        loader.expect("open")
        time.sleep(bench.pace.warm)
        before = _cpu(running)
        loader.tell("go")
        time.sleep(seconds)
        used, resident = cpu_between(before, _cpu(running)), resident_kib(running.pid)
        loader.tell("stop")
        return _Streamed(used, resident, loader.result())


def _cpu(running: Running) -> dict[int, int]:
    return cpu_by_thread(running.pid) if running.pid else {}


class _Loader:
    """A conversation with the load generator, by lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._input = cast(IO[str], process.stdin)
        self._output = cast(IO[str], process.stdout)

    def tell(self, line: str) -> None:
        self._input.write(line + "\n")
        self._input.flush()

    def expect(self, line: str) -> None:
        if self._output.readline().strip() != line:
            raise self._ended()

    def result(self) -> dict[str, Any]:
        line = self._output.readline()
        if not line:
            raise self._ended()
        result = cast(dict[str, Any], json.loads(line))
        if result["errors"]:
            raise Unusable(f"{result['errors']} errors; the first: {result['first_error']}")
        return result

    def _ended(self) -> Unusable:
        why = cast(IO[str], self._process.stderr).read().strip() or "the loader ended"
        return Starved(why) if self._process.wait() == _TOO_SLOW else Unusable(why)


@contextlib.contextmanager
def _loader(bench: Bench, running: Running, workload: Workload, options: list[str]) -> Iterator[_Loader]:
    command = ["taskset", "-c", str(LOAD_CORE), str(bench.load), "--port", str(running.port)]
    command += ["--request", str(bench.request_file(workload.request_bytes)), *running.loader, *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield _Loader(process)
        finally:
            process.kill()


def median(samples: list[Sample], figure: str) -> float:
    """The median of one field over the rounds; NaN when there is none."""
    return statistics.median([getattr(sample, figure) for sample in samples]) if samples else float("nan")
