"""Which runner a line is of, and what there is to know of those that are connected."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """Who a token belongs to."""

    account: str
    runner_id: str


@dataclass(frozen=True, slots=True)
class RunnerLoad:
    """What is there of runners at one process."""

    connected: int = 0
    """Lines in force."""
    active_requests: int = 0
    """Places that requests hold at them."""


NO_LOAD = RunnerLoad()
