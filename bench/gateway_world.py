"""What the gateway's fault campaign breaks: gateways, operators, sandboxes and an upstream, all at work.

Owns starting them, and telling whether everything is as it must be; what is broken is the cells'.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.numbered_upstream import NumberedUpstream
from bench.operators import (
    ROUTE,
    Attempt,
    Operator,
    access_to,
    held,
    record_complaints,
    route_complaints,
)
from bench.processes import free_ports
from bench.sandbox_load import SandboxUnderLoad
from tests.support.databases import PostgresServer
from tests.support.gateway_process import GatewayProcess
from tests.support.processes import following_process

from pointsman.cli.call import Gateway
from pointsman.rpc.gen import control_pb2, datamodel_pb2, openshell_pb2

POLL_SECONDS = 0.5
OPERATORS = 3
SANDBOXES = 2
T = TypeVar("T")
_FOLLOW_SECONDS = 20.0
"""For sandboxes to serve what is stored, once nothing is broken: many polls."""


@dataclass(slots=True)
class Seen:
    """What a cell has to tell beyond what everybody saw anyway."""

    mended: float
    """Monotonic; from then on nothing is broken."""
    operators: list[str] = field(default_factory=list)
    sandboxes: list[str] = field(default_factory=list)
    allowed: tuple[str, ...] = ()
    """How failures of requests begin that belong to what was broken."""
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the records were when a cell began."""

    attempts: int
    failures: tuple[int, ...]
    served: tuple[int, ...]
    lines: tuple[int, ...]


class World:
    """Without a server there is one gateway, on SQLite. Several gateways have one key file."""

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        *,
        gateways: int = 1,
        sandboxes: int = SANDBOXES,
        server: PostgresServer | None = None,
    ) -> None:
        self.server = server
        self.ledger: list[Attempt] = []
        self._told: set[str] = set()
        self.directory = directory
        self.upstream = stack.enter_context(NumberedUpstream())
        ports = free_ports(3 * gateways)
        options = []
        if server is not None:
            options += [f"--database-url={server.url(server.new_database())}", f"--key-file={directory / 'shared.key'}"]
        self.gateways = [
            GatewayProcess(directory / f"gateway-{n}", ports[3 * n : 3 * n + 3], *options) for n in range(gateways)
        ]
        for gateway in self.gateways:
            stack.callback(gateway.close)
            gateway.start()
        self.operators = [
            Operator(n, access_to(at.url, at.token_file), self.upstream, self.ledger)
            for n, at in ((n, self.gateways[n % gateways]) for n in range(OPERATORS))
        ]
        for operator in self.operators:
            operator.rotate()
        self.operators[0].point()
        self.sandboxes = [self._sandbox(n, self.gateways[n % gateways], stack) for n in range(sandboxes)]
        workers: list[Operator | SandboxUnderLoad] = [*self.operators, *self.sandboxes]
        for each in workers:
            stack.callback(each.stop)
            each.start()

    @property
    def gateway(self) -> GatewayProcess:
        """The first, or only."""
        return self.gateways[0]

    def _sandbox(self, number: int, gateway: GatewayProcess, stack: ExitStack) -> SandboxUnderLoad:
        directory = self.directory / f"sandbox-{number}"
        directory.mkdir()
        environ = {**os.environ, "POINTSMAN_ROUTE_REFRESH_INTERVAL_SECS": f"{POLL_SECONDS:g}"}
        token = self.new_token(f"sandbox-{number}")
        proxy = stack.enter_context(following_process(gateway.url, token, directory, environ=environ))
        return SandboxUnderLoad(proxy)

    def new_token(self, name: str, route: str = "", lifetime_seconds: int = 0) -> str:
        """A sandbox's."""
        request = control_pb2.CreateSandboxTokenRequest(name=name, route=route, lifetime_secs=lifetime_seconds)
        return self.ask(lambda gateway: gateway.call(gateway.control.CreateSandboxToken, request).token)

    def ask(self, question: Callable[[Gateway], T]) -> T:
        """The first gateway, as its operator."""
        return self.operators[0].ask(question)

    def mark(self) -> Mark:
        """Where the records are now."""
        return Mark(
            len(self.ledger),
            tuple(len(each.failures) for each in self.sandboxes),
            tuple(each.served for each in self.sandboxes),
            tuple(len(each.proxy.lines) for each in self.sandboxes),
        )

    def final_route(self) -> control_pb2.Route:
        """As the first gateway tells it."""
        request = control_pb2.GetRouteRequest(name=ROUTE)
        with self.operators[0].access.open() as gateway:
            return gateway.call(gateway.control.GetRoute, request)

    def record_url(self, operator: Operator) -> str:
        """The URL in an operator's record."""
        request = openshell_pb2.GetProviderRequest(name=f"op{operator.number}")
        return operator.ask(
            lambda gateway: gateway.call(gateway.openshell.GetProvider, request).provider.config["OPENAI_BASE_URL"]
        )

    def ledger_complaints(self) -> list[str]:
        """Whether what was acknowledged is there, and nothing else. Call it with the operators `held`."""
        found = route_complaints(self.ledger, self.final_route())
        for operator in self.operators:
            found += record_complaints(self.ledger, operator.number, self.record_url(operator))
        # The ledger is one for all cells: what one of them did wrong is not to be told of those after it.
        new = [each for each in found if each not in self._told]
        self._told.update(new)
        return new

    def recovered(self, mended: float) -> float:
        """Seconds until every operator has changed something and all sandboxes follow. Raises TimeoutError."""
        marks = {operator.number: operator.routes for operator in self.operators}
        self._until(lambda: self._all_changed(mended), "not every operator can make changes")
        self._until(lambda: self._all_follow(marks), "not every sandbox follows")
        return time.monotonic() - mended

    def _all_changed(self, mended: float) -> bool:
        recent = reversed(self.ledger[-2000:])
        done = {each.operator for each in recent if each.code == "OK" and each.began >= mended}
        return len(done) == len(self.operators)

    def _all_follow(self, marks: dict[int, int]) -> bool:
        latest = [each.latest for each in self.sandboxes]
        return all(served is not None and served.route > marks[served.operator] for served in latest)

    def _until(self, condition: Callable[[], bool], problem: str) -> None:
        deadline = time.monotonic() + _FOLLOW_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{problem} after {_FOLLOW_SECONDS:g} s")
            time.sleep(0.01)

    def delete_provider(self, name: str, *, force: bool = False) -> None:
        """Raises CallFailed."""
        request = control_pb2.DeleteProviderRequest(name=name, force=force)
        self.ask(lambda gateway: gateway.call(gateway.control.DeleteProvider, request))

    def create_provider(self, record: datamodel_pb2.Provider) -> None:
        """Raises CallFailed."""
        request = openshell_pb2.CreateProviderRequest(provider=record)
        self.ask(lambda gateway: gateway.call(gateway.openshell.CreateProvider, request))

    def complaints(self) -> list[str]:
        """What is lost or wrong, everything standing still."""
        with held(self.operators):
            found = self.ledger_complaints()
            route, began = self.final_route(), time.monotonic()
            operator = self.operators[int(route.provider_name[2:])]
            wanted = (operator.number, int(self.record_url(operator).split("/")[-2]), int(route.model.split("-")[-1]))

            def all_serve() -> bool:
                latest = [each.latest for each in self.sandboxes]
                return all(
                    one is not None and one.at > began and (one.operator, one.record, one.route) == wanted
                    for one in latest
                )

            try:
                self._until(all_serve, f"not every sandbox serves {wanted}")
            except TimeoutError as error:
                found.append(f"{error}: {[each.latest for each in self.sandboxes]}")
        found += self.upstream.wrong
        self.upstream.wrong.clear()
        for gateway in self.gateways:
            found += [line.strip() for line in gateway.lines if "internal error" in line or "Traceback" in line]
        return found

    def request_failures(self, mark: Mark) -> list[str]:
        """Since then, of all sandboxes."""
        return [text for each, n in zip(self.sandboxes, mark.failures, strict=True) for text in each.failures[n:]]

    def requests_served(self, mark: Mark) -> int:
        """Since then, by all sandboxes."""
        return sum(each.served - n for each, n in zip(self.sandboxes, mark.served, strict=True))

    def news(self, mark: Mark) -> Sequence[str]:
        """What the sandboxes' proxies told of their gateway since then, but for updates."""
        lines = [line for each, n in zip(self.sandboxes, mark.lines, strict=True) for line in each.proxy.lines[n:]]
        return [line for line in lines if " source=gateway " in line and " routes_updated " not in line]

    def heal(self) -> None:
        """After a cell that failed: all processes run."""
        if self.server is not None and not self.server.is_running:
            self.server.start()
        for gateway in self.gateways:
            if gateway.process is None:
                gateway.start()
