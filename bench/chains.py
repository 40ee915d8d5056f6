"""What a chain costs beside a direct route, in CPU time of the gateway's process: `make bench-chains`.

    .venv/bin/python bench/chains.py                    # about two minutes; PostgreSQL too, where it is installed
    .venv/bin/python bench/chains.py --rounds 3 --only direct --only quota-1
    .venv/bin/python bench/chains.py --strict           # exit status 1 when the target is missed

One `pointsman gateway` serves all routes through its data listener, in rounds: every cell of a round is measured within
the same seconds, in an order that changes. What the process uses while idle is subtracted. A difference is the median,
over the rounds, of a cell's CPU time less the direct route's of the same round. nginx, with one upstream, is the floor.
"""

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import grpc
from bench.candidates import CANDIDATES, Running
from bench.configurations import UPSTREAM_MODEL, make_certificates
from bench.control_plane import admin_of
from bench.measure import Bench, Pace, Sample, closed_loop, upstream
from bench.processes import (
    PROXY_CORE,
    Neighbours,
    Unusable,
    cpu_between,
    cpu_by_thread,
    free_ports,
    started,
    wait_for_line,
)
from bench.suite import compiled, prepare_machine
from bench.workloads import SMALL_BODY, WORKLOADS, Kind, request_on_the_wire
from tests.support.databases import PostgresServer

from pointsman.core.attempts import Member
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.quota import Counters, Quota
from pointsman.routing.strategies import NO_STATE, strategy_named
from pointsman.rpc.gen import control_pb2, control_pb2_grpc, datamodel_pb2, openshell_pb2, openshell_pb2_grpc

CHAIN_OVER_DIRECT_US = 30.0
LEAST_USED_US = 20.0
"""The bounds are the project's own: CPU of a chain's request over a direct one, and of ordering fifty providers."""
MANY = 50
_PACE = Pace(warm=0.25, closed_loop=0.8, streams=0.0)
_WORKLOAD = next(workload for workload in WORKLOADS if workload.name == "small")
_IDLE_SECONDS = 2.0
_LIMITED = "daily_request_limit: 1000000000, requests_per_minute: 1000000000"


@dataclass(frozen=True, slots=True)
class Cell:
    """One route of the gateway."""

    name: str
    title: str
    providers: int = 0
    """Of the chain; 0 is the direct route."""
    strategy: str = "in_order"
    limits: str = ""
    database: str = "sqlite"
    is_bound: bool = False
    """Whether the target is about it."""


NGINX = Cell("nginx", "nginx, one upstream", database="")
CELLS = (
    Cell("direct", "direct route"),
    Cell("open-1", "chain of 1, no limits", 1),
    Cell("open-3", "chain of 3, no limits", 3),
    Cell("quota-1", "chain of 1, day and minute limited", 1, limits=_LIMITED, is_bound=True),
    Cell("quota-3", "chain of 3, day and minute limited", 3, limits=_LIMITED, is_bound=True),
    Cell("weighted-3", "the same, weighted", 3, "weighted", _LIMITED, is_bound=True),
    Cell("least-50", f"least_used over {MANY}, limited", MANY, "least_used", _LIMITED),
    Cell("postgresql", "chain of 1, limited, PostgreSQL", 1, limits=_LIMITED, database="postgresql"),
    NGINX,
)


def configuration(cells: list[Cell], upstream_port: int) -> str:
    """Chains of providers that want no key, as an operator writes them."""
    providers, routes = [], []
    for cell in cells:
        names = [f"{cell.name}-p{number}" for number in range(cell.providers)]
        extra = f", {cell.limits}" if cell.limits else ""
        at = f"base_url: 'http://127.0.0.1:{upstream_port}/v1', model: {UPSTREAM_MODEL}, api_key: none"
        providers += [f"  - {{name: {name}, type: openai_compatible, {at}{extra}}}" for name in names]
        if names:
            routes.append(
                f"  - {{name: {cell.name}, kind: chain, candidates: [{', '.join(names)}], strategy: {cell.strategy}}}"
            )
    return "\n".join(["providers:", *providers, "routes:", *routes, ""])


@contextlib.contextmanager
def gateway(directory: Path, cells: list[Cell], upstream_port: int, url: str) -> Iterator[tuple[int, int]]:
    """A gateway with the chains of these cells, and a direct route; its pid and its data port."""
    directory.mkdir()
    file, log = directory / "pointsman.yaml", directory / "log"
    file.write_text(configuration(cells, upstream_port))
    ports = dict(zip(("data", "control", "grpc"), free_ports(3), strict=True))
    command = [str(Path(sys.executable).with_name("pointsman")), "gateway", "--config", str(file)]
    command += ["--data-dir", str(directory / "data")]
    command += [f"--listen-{name}=127.0.0.1:{port}" for name, port in ports.items()]
    command += ["--database-url", url] if url else []
    with started(command, PROXY_CORE, log) as process:
        wait_for_line(process, b"pointsman: ready ", log)
        direct_route(f"127.0.0.1:{ports['grpc']}", directory / "data", upstream_port)
        yield process.pid, ports["data"]


def direct_route(address: str, data: Path, upstream_port: int) -> None:
    """A direct route by a record of its own, in use when it returns."""
    record = datamodel_pb2.Provider(
        name="direct",
        type="openai",
        credentials={"OPENAI_API_KEY": "sk-bench"},
        config={"OPENAI_BASE_URL": f"http://127.0.0.1:{upstream_port}/v1"},
    )
    route = control_pb2.SetRouteRequest(name="direct", provider_name="direct", model=UPSTREAM_MODEL, no_verify=True)
    with grpc.insecure_channel(address) as channel:
        openshell, control = openshell_pb2_grpc.OpenShellStub(channel), control_pb2_grpc.ControlStub(channel)
        openshell.CreateProvider(openshell_pb2.CreateProviderRequest(provider=record), metadata=admin_of(str(data)))
        control.SetRoute(route, metadata=admin_of(str(data)))
    time.sleep(1.0)  # the data listener looks for new routes four times a second


@contextlib.contextmanager
def running(bench: Bench, cells: list[Cell]) -> Iterator[dict[str, Running]]:
    """All that is measured, by the cell's name; what cannot run here is told and left out."""
    found: dict[str, Running] = {}
    port = bench.upstream_ports[Kind.SMALL]
    with contextlib.ExitStack() as stack:
        for database in ("sqlite", "postgresql"):
            chosen = [cell for cell in cells if cell.database == database]
            if not chosen:
                continue
            try:
                url = stack.enter_context(_postgresql()) if database == "postgresql" else ""
                pid, at = stack.enter_context(gateway(bench.work / f"gateway-{database}", chosen, port, url))
            except (Unusable, AssertionError, OSError, KeyError) as error:
                print(f"bench: {database}: {error}")
                continue
            for cell in chosen:
                request = bench.work / f"request-{cell.name}"
                request.write_bytes(request_on_the_wire(SMALL_BODY, cell.name))
                found[cell.name] = Running(pid, at, ("--request", str(request)))
        if NGINX in cells:
            nginx = next(candidate for candidate in CANDIDATES if candidate.name == "nginx")
            if why := nginx.missing():
                print(f"bench: nginx: {why}")
            else:
                found[NGINX.name] = stack.enter_context(nginx.start(bench.job(nginx, _WORKLOAD)))
        yield found


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    server = PostgresServer()
    try:
        server.start()
        yield server.url("postgres")
    finally:
        server.close()


def idle_us(pid: int) -> float:
    """CPU time that a process uses by itself, µs in a second."""
    before, began = cpu_by_thread(pid), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    return cpu_between(before, cpu_by_thread(pid)) / 1000 / (time.monotonic() - began)


def measured(bench: Bench, found: dict[str, Running], rounds: int) -> dict[str, list[Sample]]:
    """Samples by cell, one for each round, less what the process does without requests."""
    dice = random.Random(rounds)
    samples: dict[str, list[Sample]] = {name: [] for name in found}
    for name in found:
        closed_loop(bench, found[name], _WORKLOAD)  # the first requests pay for imports and connections
    idle = {pid: idle_us(pid) for pid in {running.pid for running in found.values()}}
    for _ in range(rounds):
        for name in dice.sample(list(found), len(found)):
            sample = closed_loop(bench, found[name], _WORKLOAD)
            # On a busy machine there are few requests in a second, and each would be billed more of it.
            own = sample.cpu_us - idle[found[name].pid] / sample.per_second
            samples[name].append(replace(sample, cpu_us=own))
    print(f"idle: {', '.join(f'{used / 1000:.1f} ms/s' for used in idle.values())}, subtracted")
    return samples


def order_microseconds() -> float:
    """CPU time of `least_used` over so many providers, the best of some runs."""
    candidate = Candidate("fast", parse_endpoint("http://127.0.0.1:9/v1"), "m", ())
    members = [Member(f"p{number}", candidate, Quota(1000)) for number in range(MANY)]
    counters = {member.provider: Counters(at * 37 % 1000) for at, member in enumerate(members)}
    strategy, _ = strategy_named("least_used")
    rng, times = random.Random(1), 500
    best = float("inf")
    for _ in range(10):
        began = time.thread_time()
        for _ in range(times):
            strategy.order(members, counters, NO_STATE, rng)
        best = min(best, (time.thread_time() - began) / times * 1e6)
    return best


def report(samples: dict[str, list[Sample]], others: float) -> list[str]:
    """Print the table; the targets that were missed."""
    direct = [sample.cpu_us for sample in samples.get("direct", [])]
    missed = []
    print(f"\n{'':38}{'CPU µs':>8}{'- direct':>10}{'/ direct':>10}{'p50 µs':>8}")
    for cell in CELLS:
        own = [sample.cpu_us for sample in samples.get(cell.name, [])]
        if not own:
            continue
        line, over = f"{cell.title:38}{statistics.median(own):8.1f}", 0.0
        if direct:
            pairs = list(zip(own, direct, strict=True))
            over = statistics.median(mine - theirs for mine, theirs in pairs)
            line += f"{over:10.1f}{statistics.median(mine / theirs for mine, theirs in pairs):10.2f}"
        if cell.is_bound and over > CHAIN_OVER_DIRECT_US:
            missed.append(f"{cell.name}: {over:.1f} µs over direct")
        print(f"{line}{statistics.median(sample.p50_us for sample in samples[cell.name]):8.0f}")
    order = order_microseconds()
    print(f"{f'least_used alone, over {MANY}':38}{order:8.1f}")
    missed += [] if order <= LEAST_USED_US else [f"least_used over {MANY}: {order:.1f} µs"]
    print(f"targets: a limited chain {CHAIN_OVER_DIRECT_US:.0f} µs over direct, ordering {LEAST_USED_US:.0f} µs")
    print(f"others had {others:.0%} of both cores" + ("; that is noisy" if others > 0.1 else ""))
    return missed


def main(arguments: list[str]) -> int:
    """0; with --strict 1 when a target is missed; 1 when nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", choices=[cell.name for cell in CELLS], help="may be repeated")
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args(arguments)
    cells = [cell for cell in CELLS if not options.only or cell.name in options.only]
    try:
        prepare_machine()
        with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as directory:
            work = Path(directory)
            work.chmod(0o711)  # nginx's worker is another user
            (work / f"request-{SMALL_BODY}").write_bytes(request_on_the_wire(SMALL_BODY))
            with upstream(compiled("upstream"), work / "upstream.log") as ports:
                load = compiled("load", "-lssl", "-lcrypto")
                bench = Bench(load, work, make_certificates(work), ports, _PACE)
                with running(bench, cells) as found:
                    neighbours = Neighbours()
                    samples = measured(bench, found, options.rounds)
                    missed = report(samples, neighbours.share())
    except Unusable as error:
        print(f"bench: {error}")
        return 1
    for line in missed:
        print(f"bench: missed: {line}")
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
