"""Operators who never stop changing things, by the command line's own calls, and the ledger of what they were told."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
from bench.numbered_upstream import NumberedUpstream

from pointsman.cli.call import Access, CallFailed, Gateway
from pointsman.cli.gateway_options import GatewayOptions
from pointsman.rpc.gen import control_pb2, datamodel_pb2, openshell_pb2

ROUTE = "inference.local"
_PAUSE_SECONDS = (0.01, 0.06)
_FAILED_PAUSE_SECONDS = 0.1
_MAY_HAVE_BEEN_MADE = ("broke before it answered", "look whether it was made", "did not answer within")
"""How the texts of failures begin or end that leave it open. After all others nothing may have changed."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One change that was asked for."""

    operator: int
    kind: str
    """`record` or `route`."""
    number: int
    """The operator's own count."""
    began: float
    ended: float
    code: str = "OK"
    text: str = ""
    version: int = 0
    """Of the route, when it was set."""

    @property
    def is_open(self) -> bool:
        """Whether it may have been made though it failed."""
        return self.code != "OK" and any(words in self.text for words in _MAY_HAVE_BEEN_MADE)


def access_to(url: str, token_file: Path) -> Access:
    """As `--gateway` and `--token-file` give it."""
    values = {"gateway_url": url, "token_file": str(token_file)}
    values |= {"gateway_ca": "", "gateway_cert": "", "gateway_key": ""}
    return Access(GatewayOptions(values, from_environment=False), "default")


def record_message(name: str, base_url: str, key: str) -> datamodel_pb2.Provider:
    """A provider's record."""
    return datamodel_pb2.Provider(
        name=name, type="openai", credentials={"OPENAI_API_KEY": key}, config={"OPENAI_BASE_URL": base_url}
    )


class Operator:
    """Has one provider's record of their own, and shares `inference.local` with the others."""

    def __init__(self, number: int, access: Access, upstream: NumberedUpstream, ledger: "list[Attempt]") -> None:
        self.number = number
        self.access = access
        self.turn = threading.Lock()
        """Whoever holds it keeps the operator from beginning anything."""
        self.records = self.routes = 0
        """How many were asked for."""
        self.begun = threading.Event()
        """A change has just begun."""
        self._upstream = upstream
        self._ledger = ledger
        self._rng = random.Random(number)
        self._exists = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"operator {number}", daemon=True)

    def start(self) -> None:
        """Work from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Work no more."""
        self._stop.set()
        self._thread.join(40)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self.turn:
                self.begun.set()
                done = self.rotate() if not self._exists or self._rng.random() < 0.4 else self.point()
            pause = self._rng.uniform(*_PAUSE_SECONDS) if done.code == "OK" else _FAILED_PAUSE_SECONDS
            self._stop.wait(pause)

    def rotate(self) -> Attempt:
        """A new key and a new URL for the record, in one call."""
        self.records += 1
        base_url = self._upstream.base_url(self.number, self.records)
        record = record_message(f"op{self.number}", base_url, f"key-{self.number}-{self.records}")

        def write(gateway: Gateway) -> int:
            if self._exists:
                gateway.call(gateway.openshell.UpdateProvider, openshell_pb2.UpdateProviderRequest(provider=record))
            else:
                gateway.call(gateway.openshell.CreateProvider, openshell_pb2.CreateProviderRequest(provider=record))
            return 0

        done = self._attempt("record", self.records, write)
        if done.code in ("OK", "ALREADY_EXISTS"):
            self._exists = True
        elif done.code == "NOT_FOUND":
            self._exists = False
        return done

    def point(self, *, verify: bool | None = None) -> Attempt:
        """`inference.local` at the own record, with a new model."""
        self.routes += 1
        request = control_pb2.SetRouteRequest(
            name=ROUTE,
            provider_name=f"op{self.number}",
            model=f"model-{self.number}-{self.routes}",
            no_verify=self._rng.random() < 0.9 if verify is None else not verify,
        )
        done = self._attempt(
            "route", self.routes, lambda gateway: gateway.call(gateway.control.SetRoute, request).route.version
        )
        if done.code == "FAILED_PRECONDITION":
            self._exists = False
        return done

    def ask(self, question: Callable[[Gateway], T]) -> T:
        """Something that changes nothing. Raises CallFailed or ClickException."""
        with self.access.open() as gateway:
            return question(gateway)

    def _attempt(self, kind: str, number: int, call: Callable[[Gateway], int]) -> Attempt:
        began, code, text, version = time.monotonic(), "OK", "", 0
        try:
            with self.access.open() as gateway:
                version = call(gateway)
        except CallFailed as failure:
            code, text = failure.code, failure.message
        except click.ClickException as failure:
            code, text = "(client)", failure.message
        done = Attempt(self.number, kind, number, began, time.monotonic(), code, text, version)
        self._ledger.append(done)
        return done


@contextmanager
def held(operators: Sequence[Operator]) -> Iterator[None]:
    """Nobody begins anything meanwhile, and what had begun has ended."""
    with ExitStack() as stack:
        for operator in operators:
            stack.enter_context(operator.turn)
        yield


def route_complaints(ledger: Sequence[Attempt], final: control_pb2.Route) -> list[str]:
    """What is wrong with the versions that were given out, and with the route that is there in the end."""
    found = []
    done = [each for each in ledger if each.kind == "route" and each.code == "OK"]
    by_version = {each.version: each for each in done}
    if len(by_version) != len(done):
        found.append(f"{len(done) - len(by_version)} versions were given out twice")
    ends, highest = sorted(done, key=lambda each: each.ended), 0
    for each in sorted(done, key=lambda each: each.began):
        while ends and ends[0].ended < each.began:
            highest = max(highest, ends.pop(0).version)
        if each.version <= highest:
            found.append(f"version {each.version} was given out after {highest}")
    last = max(by_version, default=0)
    open_ones = [each for each in ledger if each.kind == "route" and each.is_open]
    there = f"version {final.version}, {final.provider_name} → {final.model}"
    if final.version < last:
        found.append(f"lost: {there}, but version {last} was acknowledged")
    elif final.version == last:
        if not _is(by_version[last], final):
            found.append(f"wrong: {there}, acknowledged was {by_version[last]}")
    elif not any(_is(each, final) for each in open_ones):
        found.append(f"wrong: {there}, which nobody was in doubt about; acknowledged was version {last}")
    if final.version > len(done) + len(open_ones):
        found.append(f"wrong: {there}, after {len(done)} acknowledged changes and {len(open_ones)} open ones")
    return found


def _is(attempt: Attempt, route: control_pb2.Route) -> bool:
    return (f"op{attempt.operator}", f"model-{attempt.operator}-{attempt.number}") == (route.provider_name, route.model)


def record_complaints(ledger: Sequence[Attempt], operator: int, url: str) -> list[str]:
    """What is wrong with the record that an operator has in the end; `url` is the one in it."""
    mine = [each for each in ledger if each.kind == "record" and each.operator == operator]
    last = max((each.number for each in mine if each.code == "OK"), default=0)
    possible = {last, *(each.number for each in mine if each.is_open and each.number > last)}
    number = int(url.split("/")[-2])
    if number in possible:
        return []
    return [f"record op{operator} is number {number}; acknowledged was {last}, possible {sorted(possible)}"]
