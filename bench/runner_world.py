"""What the runners' fault campaign breaks: a gateway of several processes with NATS between, runners, their models.

    callers → data workers ─┐                       ┌─ way ─ runner m0 ─ model m0
                            ├─ nats-server ─ API ───┤
                            ┘   (one database)      └─ way ─ runner m1 ─ model m1

Owns starting them, and telling whether everything is as it must be; what is broken is the cells'.
"""

import contextlib
import http.client
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.processes import free_ports
from bench.runner_callers import LONGEST_SECONDS, PROMPT_CANARY, WELL, Call, Callers, ask
from bench.runner_machine import ERROR_CANARY, Loop, RecordingModel, Way
from bench.runner_process import RunnerProcess
from tests.support.databases import PostgresServer
from tests.support.gateway_process import GatewayProcess
from tests.support.nats_server import NatsServer

ACTIVE = 4
"""Requests of a runner at once."""
_RECOVERY_SECONDS = 60.0
_QUIET_SECONDS = 20.0
"""For descriptors and connections to be let go."""
_DESCRIPTORS = 3
"""More than before that are no leak: what a database's pool or a log holds open."""


@dataclass(slots=True)
class Seen:
    """What a cell has to tell beyond what everybody saw anyway."""

    mended: float
    """Monotonic; from then on nothing is broken."""
    told: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ends: tuple[str, ...] = ()
    """How ends begin that belong to what was broken."""
    bound: float = LONGEST_SECONDS
    """Seconds in which every call must have had its end."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A model's server, the runner beside it, and the way from there to the gateway."""

    model: RecordingModel
    way: Way
    runner: RunnerProcess


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the records were when a cell began."""

    calls: int
    lines: Mapping[str, int]
    descriptors: Mapping[str, int]


class RunnerWorld:
    """`data` workers and `runners`. Without a PostgreSQL server the processes share a SQLite file.

    Without data workers the API process is the whole gateway, with its bus in memory.
    """

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        *,
        data: int = 2,
        runners: int = 2,
        events: int = 20,
        server: PostgresServer | None = None,
        clock: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`environ`: of the data workers, whose clock follows the file `clock`."""
        self.directory = directory
        self.server = server
        self.clock = clock
        self.loop = Loop()
        stack.callback(self.loop.close)
        self.nats = NatsServer(directory)
        more = ["--role=api", f"--nats={self.nats.url}"] if data else []
        if data:
            self.nats.start()
            stack.callback(self.nats.kill)
        if server is not None:
            more += [f"--database-url={server.url(server.new_database())}"]
        home = directory / "data"
        self.api = GatewayProcess(home, free_ports(3), *more)
        more[:1] = ["--role=data"]
        self.workers = [GatewayProcess(home, free_ports(3), *more) for _ in range(data)]
        for each in self.gateways:
            stack.callback(each.close)
        self.api.start()
        self.callers = Callers(events)
        self.machines: list[Machine] = []
        """Those that callers ask all the time, and guests of a cell."""
        self.models = [f"m{number}" for number in range(runners)]
        with ThreadPoolExecutor() as pool:  # they take their time, and so do runners
            starting = [pool.submit(worker.start, environ) for worker in self.workers]
            for model in self.models:
                self._add(model, stack, directory / f"runner-{model}")
            for started in starting:
                started.result()
        for model in self.models:
            self._wait_for(model)
        self.loop.run(self.callers.start(*((model, self.ports) for model in self.models)))

    def add_machine(self, name: str, stack: ExitStack, directory: Path | None = None) -> "Machine":
        """With a model of that name, which is served when this returns."""
        machine = self._add(name, stack, directory or self.directory / f"runner-{name}")
        self._wait_for(name)
        return machine

    def _add(self, name: str, stack: ExitStack, directory: Path) -> "Machine":
        model, way = RecordingModel(name, self.loop), Way(self.loop)
        stack.callback(model.stop)
        model.start()
        way.target = self.api.ports["control"]
        stack.callback(way.close)
        way.start()
        runner = RunnerProcess(f"laptop-{name}", directory, f"http://127.0.0.1:{way.port}", self.api.token_file)
        stack.callback(runner.close)
        done = runner.register(f"{name}@{model.url}")
        if done.returncode:
            raise RuntimeError(f"runner register: {done.stdout} {done.stderr}")
        runner.start()
        runner.said("ready")
        self.machines.append(Machine(model, way, runner))
        return self.machines[-1]

    def _wait_for(self, model: str) -> None:
        for port in self.ports:
            self.until(partial(self._knows, model, port), f"model {model} is not served")

    def _knows(self, name: str, port: int) -> bool:
        """A data worker looks for new models now and then."""
        return self.loop.run(ask(port, name, self.callers.nonce(name), streams=False, events=0)).end == WELL

    @property
    def gateways(self) -> list[GatewayProcess]:
        """All of the gateway's processes."""
        return [self.api, *self.workers]

    @property
    def ports(self) -> list[int]:
        """Where callers ask."""
        return [worker.ports["data"] for worker in self.workers or (self.api,)]

    @property
    def calls(self) -> list[Call]:
        """All that have ended."""
        return self.callers.calls

    def mark(self) -> Mark:
        """Where the records are now, with nothing under way."""
        with self.quiet():
            return Mark(len(self.calls), {name: len(lines) for name, lines in self._logs()}, self.descriptors())

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Nobody asks, and every answer has ended."""
        self.loop.run(self.callers.hush(), 2 * LONGEST_SECONDS)
        try:
            yield
        finally:
            self.loop.run(self.callers.go_on())

    def _logs(self) -> Iterable[tuple[str, list[str]]]:
        return ((name, each.lines) for name, each in self._processes())

    def news(self, mark: Mark) -> Iterator[tuple[str, str]]:
        """What processes have said since then, and which."""
        for name, lines in self._logs():
            for line in lines[mark.lines.get(name, 0) :]:
                yield name, line.strip()

    def descriptors(self) -> dict[str, int]:
        """How many each of the processes has open, but for those of SQLite's pool, which has a bound of its own."""
        pids = {name: each.pid for name, each in self._processes() if each.process is not None}
        found = {}
        for name, pid in pids.items():
            with contextlib.suppress(OSError):  # ended by itself
                links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
                found[name] = sum(".db" not in link for link in links)
        return found

    def _processes(self) -> Iterable[tuple[str, GatewayProcess | RunnerProcess]]:
        yield "api", self.api
        yield from ((f"data-{number}", worker) for number, worker in enumerate(self.workers))
        yield from ((each.runner.name, each.runner) for each in self.machines)

    def until(self, condition: Callable[[], bool], problem: str, seconds: float = _RECOVERY_SECONDS) -> float:
        """Seconds that it took. Raises TimeoutError."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + seconds:
                raise TimeoutError(f"{problem} after {seconds:g} s")
            time.sleep(0.02)
        return time.monotonic() - began

    def recovered(self, since: float) -> float:
        """Seconds until every caller is answered again. Raises TimeoutError."""
        callers = 3 * len(self.models)

        def well() -> bool:
            recent = [call for call in self.calls[-2 * callers :] if call.began > since]
            return len(recent) == 2 * callers and all(call.end == WELL for call in recent)

        try:
            self.until(well, "not every caller is answered")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {Counter(call.end for call in self.calls[-2 * callers :])}") from None
        broken = [call.ended for call in self.calls if call.end != WELL]
        return max(0.0, max(broken, default=0.0) - since)

    def complaints(self, mark: Mark, seen: Seen) -> list[str]:
        """What must not be, once nothing is broken."""
        wrong = []
        calls = self.calls[mark.calls :]
        for call in calls:
            if call.end != WELL and not call.end.startswith(seen.ends or ("nothing",)):
                wrong.append(f"{call.model}: {call.end}")
            if call.ended - call.began > seen.bound:
                wrong.append(f"{call.model}: {call.end} took {call.ended - call.began:.0f} s")
        with self.quiet():
            wrong += [f"a burst of {ACTIVE}: {call.end}" for call in self.bursts() if call.end != WELL]
            wrong += self._left_over(mark)
        wrong += self._replayed()
        wrong += self._given_away()
        for name, line in self.news(mark):
            if "internal error" in line or "Traceback" in line or "never" in line:
                wrong.append(f"{name} said: {line}")
        return [f"{text} (×{count})" for text, count in Counter(wrong).items()]

    def bursts(self) -> list[Call]:
        """As many calls at once as may be, of each model at each data worker."""
        calls = []
        for model in self.models:
            for port in self.ports:
                calls += self.loop.run(self.callers.burst(model, port, ACTIVE))
        return calls

    def _left_over(self, mark: Mark) -> list[str]:
        def over() -> dict[str, int]:
            before = mark.descriptors
            return {
                name: count
                for name, count in self.descriptors().items()
                if count > before.get(name, count) + _DESCRIPTORS
            }

        with contextlib.suppress(TimeoutError):
            self.until(lambda: not over() and not self.at_work(), "", _QUIET_SECONDS)
        wrong = [
            f"{name} has {count} descriptors open, and had {mark.descriptors[name]}" for name, count in over().items()
        ]
        return [*wrong, *(f"a model is still at work for {nonce}" for nonce in self.at_work())]

    def at_work(self) -> set[str]:
        """Requests that a model's server has a connection for."""
        return {nonce for machine in self.machines for nonce in tuple(machine.model.at_work)}

    def _replayed(self) -> list[str]:
        wrong: list[str] = []
        asked: set[str] = set()
        for model in (machine.model for machine in self.machines):
            wrong += [f"asked {count} times: {nonce}" for nonce, count in model.asked.items() if count > 1]
            wrong += [f"{each} reached {model.name}" for each in model.asked if not each.startswith(f"{model.name}-")]
            asked |= model.asked.keys()
        invented = [call.nonce for call in self.calls if call.end == WELL and call.nonce not in asked]
        return wrong + [f"{nonce} was answered by nobody" for nonce in invented]

    def _given_away(self) -> list[str]:
        texts = [(name, "\n".join(lines).encode()) for name, lines in self._logs()]
        for path in self.directory.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    texts.append((path.name, path.read_bytes()))
        canaries = (PROMPT_CANARY.encode(), ERROR_CANARY.encode())
        return [f"a canary is in {name}" for name, data in texts if any(each in data for each in canaries)]

    def ends(self, mark: Mark) -> list[str]:
        """How calls ended since then that did not end well, and how long that took at most."""
        slowest: dict[str, float] = {}
        count: Counter[str] = Counter()
        for call in self.calls[mark.calls :]:
            count[call.end] += 1
            slowest[call.end] = max(slowest.get(call.end, 0), call.ended - call.began)
        return [f"{end} ×{count[end]} (≤ {slowest[end]:.1f} s)" for end in sorted(count)]

    def rest(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        """Ask the control listener as an administrator."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api.ports["control"], timeout=20)
        fields = {
            "authorization": f"Bearer {self.api.token_file.read_text().strip()}",
            "content-type": "application/json",
        }
        connection.request(method, f"/api/v1{path}", None if document is None else json.dumps(document), fields)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, json.loads(body) if body else None

    def stop_for(self, pid: int, seconds: float) -> None:
        """SIGSTOP, and SIGCONT."""
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)


OFFLINE, TIMEOUT, BUSY = "503 runner_offline", "504 runner_proxy_timeout", "429 runner_busy"
CUT_OFFLINE, CUT_TIMEOUT = "cut: runner_offline", "cut: runner_proxy_timeout"
