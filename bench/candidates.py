"""The proxies that are compared, and how each is started as a reverse proxy of one upstream port."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench import configurations
from bench.processes import PROXY_CORE, Unusable, free_ports, started, wait_for_line, wait_for_port
from bench.workloads import Kind, Surface

VLLM_ROUTER = "vllm-router==0.1.17"


@dataclass(frozen=True, slots=True)
class Job:
    """What a candidate has to do for one measurement."""

    surface: Surface
    kind: Kind
    upstream_port: int
    work: Path
    """A directory for this start alone."""
    certificates: configurations.Certificates


@dataclass(frozen=True, slots=True)
class Running:
    """A started candidate."""

    pid: int
    """0 when there is no proxy: the direct connection."""
    port: int
    loader: tuple[str, ...] = ()
    """What the loader has to be told to reach it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proxy under measurement."""

    name: str
    surfaces: tuple[Surface, ...]
    start: Callable[[Job], AbstractContextManager[Running]]
    version: Callable[[], str]
    missing: Callable[[], str]
    """Why it cannot run on this machine; empty when it can."""
    workloads: tuple[str, ...] = ()
    """The only ones that it takes part in; empty: all of its surfaces."""
    peer: bool = False
    """Measured only when PEERS=1."""


def _loader_tls(job: Job, authority: Path) -> tuple[str, ...]:
    return ("--tls", "--ca", str(authority)) if job.surface is Surface.TLS else ()


@contextlib.contextmanager
def _direct(job: Job) -> Iterator[Running]:
    yield Running(0, job.upstream_port)


@contextlib.contextmanager
def _nginx(job: Job) -> Iterator[Running]:
    (port,) = free_ports(1)
    path, log = job.work / "nginx.conf", job.work / "log"
    path.write_text(configurations.nginx(job.surface, job.kind, port, job.upstream_port, job.work, job.certificates))
    with started(["nginx", "-p", str(job.work), "-c", str(path), "-e", "stderr"], PROXY_CORE, log) as process:
        wait_for_port(process, port, log)
        yield Running(process.pid, port, _loader_tls(job, job.certificates.leaf))


@contextlib.contextmanager
def _haproxy(job: Job) -> Iterator[Running]:
    (port,) = free_ports(1)
    path, log = job.work / "haproxy.cfg", job.work / "log"
    path.write_text(configurations.haproxy(job.surface, port, job.upstream_port, job.certificates))
    with started(["haproxy", "-db", "-f", str(path)], PROXY_CORE, log) as process:
        wait_for_port(process, port, log)
        yield Running(process.pid, port, _loader_tls(job, job.certificates.leaf))


def _peers_venv() -> Path:
    return Path(__file__).resolve().parent / "work" / "venv-peers"


@contextlib.contextmanager
def _vllm_router(job: Job) -> Iterator[Running]:
    port, metrics = free_ports(2)
    log = job.work / "log"
    command = [str(_peers_venv() / "bin" / "vllm-router"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--worker-urls", f"http://127.0.0.1:{job.upstream_port}", "--policy", "round_robin"]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics), "--log-level", "error"]
    # The default admits 256 requests at a time.
    command += ["--max-concurrent-requests", "4096"]
    with started(command, PROXY_CORE, log) as process:
        wait_for_port(process, port, log)
        yield Running(process.pid, port)


@contextlib.contextmanager
def _pointsman(job: Job) -> Iterator[Running]:
    (port,) = free_ports(1)
    routes, log, authority = job.work / "routes.yaml", job.work / "log", job.work / "ca"
    routes.write_text(configurations.pointsman_routes(job.upstream_port))
    arguments = ["--inference-routes", str(routes), "--listen", f"127.0.0.1:{port}"]
    if job.surface is Surface.PLAIN:
        command = [sys.executable, str(Path(__file__).with_name("plain_listener.py")), *arguments]
    else:
        command = [str(_pointsman_script()), "sandbox", "proxy", *arguments, "--ca-dir", str(authority)]
    with started(command, PROXY_CORE, log) as process:
        wait_for_line(process, b"pointsman: ready ", log)
        if job.surface is Surface.PLAIN:
            yield Running(process.pid, port)
        else:
            yield Running(process.pid, port, ("--connect", *_loader_tls(job, _authority_file(authority))))


def _authority_file(directory: Path) -> Path:
    for name in ("pointsman-ca.pem", "openshell-ca.pem"):
        if (directory / name).exists():
            return directory / name
    raise Unusable(f"no certificate authority among {sorted(path.name for path in directory.glob('*.pem'))}")


def _pointsman_script() -> Path:
    return Path(sys.executable).with_name("pointsman")


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode(errors="replace").strip().split("\n")[0].strip()


def _program_missing(name: str, package: str) -> Callable[[], str]:
    return lambda: "" if shutil.which(name) else f"not installed; next: apt-get install {package}"


def _pointsman_missing() -> str:
    return "" if _pointsman_script().exists() else "not installed; next: make setup"


def _vllm_router_missing() -> str:
    venv = _peers_venv()
    if (venv / "bin" / "vllm-router").exists():
        return ""
    print(f"bench: installing {VLLM_ROUTER} from PyPI", flush=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [*pip, "--only-binary", ":all:", VLLM_ROUTER],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{VLLM_ROUTER} could not be installed: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}"
    return ""


_BOTH = (Surface.PLAIN, Surface.TLS)
CANDIDATES = (
    Candidate("direct", (Surface.PLAIN,), _direct, lambda: "no proxy", lambda: "", ("small", "one")),
    Candidate("nginx", _BOTH, _nginx, lambda: _first_line(["nginx", "-v"]), _program_missing("nginx", "nginx-light")),
    Candidate(
        "pointsman",
        _BOTH,
        _pointsman,
        lambda: _first_line([str(_pointsman_script()), "--version"]),
        _pointsman_missing,
    ),
    Candidate(
        "haproxy",
        _BOTH,
        _haproxy,
        lambda: _first_line(["haproxy", "-v"]),
        _program_missing("haproxy", "haproxy"),
        peer=True,
    ),
    Candidate(
        "vllm-router",
        (Surface.PLAIN,),
        _vllm_router,
        lambda: VLLM_ROUTER.replace("==", " "),
        _vllm_router_missing,
        peer=True,
    ),
)
