"""What a cell of the gateway's fault campaign is, and what cells share."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from bench.gateway_world import Seen, World
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
