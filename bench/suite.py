"""The benchmark from start to end: what it needs, rounds in random order, tables, exit status."""

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench import results
from bench.candidates import CANDIDATES, Candidate
from bench.configurations import make_certificates
from bench.measure import Bench, Pace, upstream
from bench.processes import LOAD_CORE, PROXY_CORE, Unusable
from bench.rounds import Rounds, order
from bench.workloads import LARGE_BODY, SMALL_BODY, WORKLOADS, request_on_the_wire

HERE = Path(__file__).resolve().parent
_DESCRIPTORS = 4096  # a proxy of 1,000 streams holds 2,000, the loader and the upstream 1,000 each
_DEFAULT = Pace(warm=0.4, closed_loop=1.6, streams=4.0)
_QUICK = Pace(warm=0.3, closed_loop=0.6, streams=1.5)
_REPEATS, _QUICK_REPEATS = 90.0, 10.0  # seconds that may go into measuring again
_DEBIAN = {"cc": "gcc", "nginx": "nginx-light", "taskset": "util-linux"}


def main(arguments: list[str]) -> int:
    """Run the suite. 0: everything was measured; 1: something could not be, or, with --strict, missed its target."""
    options = _options(arguments)
    try:
        candidates, missing = _present(options.candidate)
        prepare_machine()
        run = _run(options, candidates, missing)
    except Unusable as error:
        print(f"bench: {error}")
        return 1
    print(f"\n{results.figures_table(run)}\n\n{results.targets_table(run)}\n")
    print(f"bench: {run.rounds} rounds in {run.seconds:.0f} s; CPU is the proxy's, per request or per slow event")
    for note in results.notes(run):
        print(f"bench: {note}")
    if options.save:
        print(f"bench: saved {results.save(run, HERE / 'results').relative_to(HERE.parent)} and .json")
    missed = any(verdict.word != "ok" for verdict in results.verdicts(run))
    return 1 if run.missing or run.failures or (options.strict and missed) else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/run.py", description="Ratios against nginx; with PEERS=1 also haproxy and vllm-router."
    )
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--quick", action="store_true", help="two short rounds, under 90 s")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--workload", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--candidate", action="append", choices=[c.name for c in CANDIDATES], help="only these")
    parser.add_argument("--save", action="store_true", help="write bench/results/DATE-COMMIT.json and .md")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args(arguments)


def _present(names: list[str] | None) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates that were asked for and can run, and why the others cannot."""
    _install_debian()
    peers = os.environ.get("PEERS", "") not in ("", "0")
    present: list[Candidate] = []
    missing: dict[str, str] = {}
    for candidate in CANDIDATES:
        if candidate.name not in names if names else candidate.peer and not peers:
            continue
        why = candidate.missing()
        if why:
            missing[candidate.name] = why
            print(f"bench: {candidate.name}: {why}")
        else:
            present.append(candidate)
    return present, missing


def _install_debian() -> None:
    packages = [package for program, package in _DEBIAN.items() if not shutil.which(program)]
    if not Path("/usr/include/openssl/ssl.h").exists():
        packages.append("libssl-dev")
    if os.environ.get("PEERS", "") not in ("", "0") and not shutil.which("haproxy"):
        packages.append("haproxy")
    if not packages or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"bench: installing Debian packages: {' '.join(packages)}", flush=True)
    subprocess.run(["apt-get", "update", "-qq"], check=False)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False, capture_output=True)


def prepare_machine() -> None:
    """This program to one core, room for descriptors. Raises Unusable."""
    if not {LOAD_CORE, PROXY_CORE} <= os.sched_getaffinity(0):
        raise Unusable(f"cores {LOAD_CORE} and {PROXY_CORE} are both needed: one for the proxy, one for the rest")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS:
        raise Unusable(f"{_DESCRIPTORS} descriptors are needed, {hard} are allowed; next: ulimit -Hn {_DESCRIPTORS}")
    if soft < _DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, hard))
    os.sched_setaffinity(0, {LOAD_CORE})


def compiled(name: str, *libraries: str) -> Path:
    """The binary of one of our C programs, made anew when a source is newer."""
    binary = HERE / "build" / name
    binary.parent.mkdir(exist_ok=True)
    sources = [HERE / f"{name}.c", *HERE.glob("*.h")]
    if binary.exists() and all(source.stat().st_mtime <= binary.stat().st_mtime for source in sources):
        return binary
    command = ["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-o", str(binary), str(sources[0]), *libraries]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        raise Unusable("no C compiler; next: apt-get install gcc") from None
    if done.returncode != 0:
        if "openssl/" in done.stderr:
            raise Unusable("OpenSSL's headers are missing; next: apt-get install libssl-dev")
        raise Unusable(f"{name}.c does not compile:\n{done.stderr}")
    return binary


def _run(options: argparse.Namespace, candidates: list[Candidate], missing: dict[str, str]) -> results.Run:
    count = options.rounds or (2 if options.quick else 5)
    begun = time.monotonic()
    binary, load = compiled("upstream"), compiled("load", "-lssl", "-lcrypto")
    # Not in the checkout: nginx's worker is another user, and a path of its own must be open to it.
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as directory:
        work = Path(directory)
        work.chmod(0o711)
        for size in (SMALL_BODY, LARGE_BODY):
            (work / f"request-{size}").write_bytes(request_on_the_wire(size))
        with upstream(binary, work / "upstream.log") as ports:
            bench = Bench(load, work, make_certificates(work), ports, _QUICK if options.quick else _DEFAULT)
            rounds = Rounds(bench, _QUICK_REPEATS if options.quick else _REPEATS)
            rounds.measure(order(options.workload, candidates, count))
    versions = {candidate.name: candidate.version() for candidate in candidates}
    seconds = time.monotonic() - begun
    return results.Run(rounds.samples, rounds.failures, versions, missing, count, rounds.repeated, seconds)
