"""The parts, as they would stand on four machines: which processes there are, how each is started, and where it writes.

On the gateway's machine, which is the network namespace of this process: PostgreSQL, nats-server, one API process, two
data workers. On each runner's: llama.cpp, the recording before it, and the runner. What is done with them is not known
here.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from tests.acceptance.runner.asking import Client
from tests.acceptance.runner.elsewhere import Elsewhere, elsewhere
from tests.acceptance.runner.hosts import GATEWAY, Host, hosts
from tests.acceptance.runner.program import Program
from tests.acceptance.runner.transcript import Tell
from tests.support.canary import KEY
from tests.support.databases import PostgresServer, postgres_server
from tests.support.nats_server import NatsServer, nats_server
from tests.support.processes import POINTSMAN, run_to_end

API_PORT, DATA_PORTS = 54000, (54001, 54002)
_GRPC_PORT = 54003
MODELS_PORT = 8080
"""Where discovery looks for llama.cpp; on the gateway's own machine something else listens there."""
MODEL = "smollm2-135m-instruct"
URL = f"http://localhost:{MODELS_PORT}/v1"
READY = "pointsman: ready "
_CONFIGURATION = """\
default_route: elsewhere
secrets_dir: {secrets}
providers:
  - {{name: elsewhere, type: openai_compatible, base_url: "http://127.0.0.1:{port}/v1", model: any}}
routes:
  - {{name: elsewhere, candidates: [elsewhere]}}
"""
_TEMPLATE = Path(__file__).with_name("chat.jinja")


Step = Callable[["World", Tell], None]
"""It tells what it saw, and raises AssertionError for what should not be so."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A request that came to a model's server."""

    head: str
    body: str
    at: float
    """Seconds since the epoch."""
    connection: int


class RunnerHost:
    """A machine with a model."""

    def __init__(self, host: Host, directory: Path, gateway_ca: Path) -> None:
        self.host = host
        self.directory = directory / host.name
        self.config = self.directory / "pointsman"
        self.recorded = self.directory / "recorded.jsonl"
        self.alias = ""
        self._gateway_ca = gateway_ca
        python = [sys.executable, "-m"]
        self.model = Program(
            f"llama.cpp of {host.name}",
            host.command(*python, "tests.support.llama_server", MODEL, str(_TEMPLATE)),
        )
        self.runner = Program(
            f"runner of {host.name}",
            host.command(POINTSMAN, "runner", "start", "--config-dir", str(self.config)),
        )
        self.recording: Program | None = None

    def start_model(self) -> None:
        """The model's server and the recording before it."""
        self.directory.mkdir()
        port = self.model.start("\n").strip()
        command = [sys.executable, "-m", "tests.acceptance.runner.recording"]
        self.recording = Program(
            f"recording of {self.host.name}",
            self.host.command(*command, str(MODELS_PORT), port, str(self.recorded)),
        )
        self.recording.start("ready")

    def command(self, *arguments: str, key_file: Path | None = None, succeeds: bool = True) -> str:
        """`pointsman runner …` on this machine; what it printed. Raises AssertionError."""
        words = [POINTSMAN, "runner", *arguments, "--config-dir", str(self.config)]
        words += [] if key_file is None else ["--key-file", str(key_file)]
        done = run_to_end(self.host.command(*words), seconds=60)
        assert (done.returncode == 0) is succeeds, f"runner {arguments[0]}: {done.returncode} {done.stderr}"
        return done.stdout + done.stderr

    def register(self, name: str, key_file: Path, *options: str) -> str:
        """`pointsman runner register`."""
        gateway = [f"--gateway=https://{GATEWAY}:{API_PORT}", f"--gateway-ca={self._gateway_ca}"]
        return self.command("register", name, *gateway, *options, key_file=key_file)

    def records(self) -> list[dict[str, Any]]:
        """All that was recorded, in order."""
        if not self.recorded.exists():
            return []
        return [json.loads(line) for line in self.recorded.read_text().splitlines() if line.endswith("}")]

    def reached(self, nonce: str) -> list[Reached]:
        """The requests with that nonce."""
        found = [each for each in self.records() if nonce in each.get("body", "")]
        return [Reached(each["head"], each["body"], each["at"], each["connection"]) for each in found]

    def left_by_client(self, nonce: str) -> float | None:
        """When the connection of the request with that nonce was ended by who asked, seconds since the epoch."""
        connections = {each.connection for each in self.reached(nonce)}
        return next(
            (
                float(each["at"])
                for each in self.records()
                if each["connection"] in connections and each.get("ended_by") == "client"
            ),
            None,
        )

    def programs(self) -> list[Program]:
        return [each for each in (self.runner, self.recording, self.model) if each is not None]


@dataclass(slots=True)
class World:
    """Everything, running or not."""

    directory: Path
    server: PostgresServer
    database: str
    broker: NatsServer
    api: Program
    workers: tuple[Program, ...]
    hosts: tuple[RunnerHost, ...]
    loopback: Elsewhere
    """At the address on the gateway's machine that the models have on theirs."""
    provider: Elsewhere
    """Another provider of the same gateway, and where names lead that it does not know."""
    clients: tuple[Client, ...] = ()
    user_key: Path = Path()
    secrets: tuple[str, ...] = ()
    """Keys that were given out."""
    pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    """For what takes its time."""
    refused: list[str] = field(default_factory=list)
    """Nonces of requests that must not have reached any model's server."""
    broken: list[str] = field(default_factory=list)
    """Of those that reached one, and were cut short."""

    def programs(self) -> list[Program]:
        return [self.api, *self.workers, *(program for host in self.hosts for program in host.programs())]

    def pointsman(self, *arguments: str) -> str:
        """A command of the gateway's operator; what it printed. Raises AssertionError."""
        environ = {
            "POINTSMAN_GATEWAY": f"https://127.0.0.1:{_GRPC_PORT}",
            "POINTSMAN_GATEWAY_CA": str(self.directory / "ca.pem"),
            "POINTSMAN_DATA_DIR": str(self.directory / "api"),
        }
        done = run_to_end([POINTSMAN, *arguments], environ=environ, seconds=60)
        assert done.returncode == 0, f"{arguments[0]}: {done.stderr}"
        return done.stdout

    def given(self) -> set[Path]:
        """The files that hold keys because somebody was given them."""
        return {*(self.directory / "keys").iterdir(), *(self.directory / "secrets").iterdir()}

    def make_keys(self) -> None:
        """One for the clients of models, one for whoever owns the runners."""
        made = self.pointsman("key", "create", "client").strip()
        self.clients = tuple(Client(port, made) for port in DATA_PORTS)
        (self.directory / "keys").mkdir()
        self.user_key = self.directory / "keys" / "user"
        permissions = [f"--permission={each}" for each in ("runners:manage", "models:create", "models:view")]
        self.pointsman("key", "create", "user", *permissions, "--out", str(self.user_key))
        self.secrets = (made, self.user_key.read_text().strip(), KEY)


def _certificate(directory: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.pem")
    leaf = authority.issue_cert(GATEWAY, "127.0.0.1", "localhost")
    leaf.cert_chain_pems[0].write_to_path(directory / "tls.pem")
    leaf.private_key_pem.write_to_path(directory / "tls.key")
    (directory / "tls.key").chmod(0o600)


def _gateway(name: str, directory: Path, environ: dict[str, str], *options: str) -> Program:
    shared = [f"--config={directory / 'pointsman.yaml'}", f"--key-file={directory / 'credentials.key'}"]
    own = [f"--data-dir={directory / name}", *options]
    return Program(name, [POINTSMAN, "gateway", *shared, *own], environ)


@contextlib.contextmanager
def world(directory: Path) -> Iterator[World]:
    """All of it, of which only PostgreSQL, the broker and the hosts' networks run."""
    with contextlib.ExitStack() as stack:
        _certificate(directory)
        (directory / "secrets").mkdir()
        (directory / "secrets" / "elsewhere_api_key").write_text(f"{KEY}\n")
        made_hosts = stack.enter_context(hosts(2))
        loopback = stack.enter_context(elsewhere(MODELS_PORT))
        provider = stack.enter_context(elsewhere())
        configuration = _CONFIGURATION.format(secrets=directory / "secrets", port=provider.port)
        (directory / "pointsman.yaml").write_text(configuration)
        server = stack.enter_context(postgres_server())
        broker = stack.enter_context(nats_server(directory))
        database = server.new_database()
        environ = {
            "POINTSMAN_DATABASE_URL": server.url(database),
            "POINTSMAN_NATS_URL": broker.url,
            "POINTSMAN_PUBLIC_DATA_URL": f"http://127.0.0.1:{DATA_PORTS[0]}/v1",
        }
        tls = [f"--tls-cert={directory / 'tls.pem'}", f"--tls-key={directory / 'tls.key'}"]
        listen = [f"--listen-control={GATEWAY}:{API_PORT}", f"--listen-grpc=127.0.0.1:{_GRPC_PORT}"]
        api = _gateway("api", directory, environ, "--role=api", *listen, *tls)
        workers = tuple(
            _gateway(
                f"worker-{number}",
                directory,
                environ,
                "--role=data",
                "--data-auth=keys",
                f"--listen-data=127.0.0.1:{port}",
                "--listen-control=127.0.0.1:0",
            )
            for number, port in enumerate(DATA_PORTS, 1)
        )
        runner_hosts = tuple(RunnerHost(each, directory, directory / "ca.pem") for each in made_hosts)
        made = World(directory, server, database, broker, api, workers, runner_hosts, loopback, provider)
        stack.callback(_close, made)
        os.environ.pop("POINTSMAN_GATEWAY", None)
        yield made


def _close(made: World) -> None:
    for program in reversed(made.programs()):
        program.close()
    made.pool.shutdown()
