"""What a cell of the gateway's fault campaign is, and what cells share."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.chain_world import ChainWorld
from bench.gateway_world import Seen, World
from tests.support.databases import PostgresServer
from tests.support.gateway_process import GatewayProcess, NotStarted


class NotHere(Exception):
    """A cell that cannot be run on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of one run."""

    rng: random.Random
    kills: int = 50


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is broken."""

    name: str
    world: str
    """`sqlite` or `postgresql`."""
    act: Callable[[World, Options], Seen]
    """Breaks it and mends it."""
    seconds: float
    """In all, on a busy machine."""


@dataclass(frozen=True, slots=True)
class ChainCell:
    """One thing that is broken under a chain, in a world of its own."""

    name: str
    world: str
    """`sqlite` or `postgresql`."""
    act: Callable[[ChainWorld, Options], Seen]
    """Breaks it, mends it, and looks whether all is well again."""
    limit: int = 10**6
    """Requests a day of the chain's provider."""
    alone: bool = False
    """Whether the chain has no fallback."""
    gateways: int = 1
    seconds: float = 90.0
    """In all, on a busy machine."""
    make: type[ChainWorld] = ChainWorld
    """The world."""


def fake_clock(directory: Path) -> tuple[Path, dict[str, str]]:
    """A file that a process's wall clock follows, and the environment that makes it; the steady clock goes on."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        raise NotHere("libfaketime is not installed; apt-get install faketime")
    clock = directory / "clock"
    clock.write_text("+0\n")
    environ = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    return clock, {**environ, "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def start_again(server: PostgresServer) -> None:
    """After a SIGKILL its orphans may hold on for a moment."""
    for _ in range(20):
        try:
            return server.start()
        except AssertionError:
            server.log.clear()
            time.sleep(0.3)
    raise TimeoutError("PostgreSQL does not start again")


def refusal(gateway: GatewayProcess, seen: Seen) -> str:
    """What a gateway says that must not start."""
    try:
        gateway.start()
    except NotStarted as error:
        text = str(error)
        if "\n" in text or "Traceback" in text:
            seen.wrong.append(f"more than one line: {text}")
        return text.replace(str(gateway.directory), "DIR")
    gateway.end()
    seen.wrong.append("the gateway started")
    return "started"
