"""Verifies routes as a gateway does, and watches that nothing is left of it."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import uvloop

from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.profiles import profile_for
from pointsman.core.route import ValidatedEndpoint
from pointsman.core.secret import Secret
from pointsman.gateway.probe import ProbeLimits, Prober
from pointsman.routing.resolve import ResolvedRoute
from tests.support import evidence
from tests.support.canary import KEY

T = TypeVar("T")
DEFAULT = ProbeLimits()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """On the gateway's kind of loop; no task of the verification's may outlive it."""

    async def watched() -> T:
        result = await coroutine
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.005)  # servers have yet to notice that their clients have left
        return result

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(watched())


def resolved(url: str, kind: str = "openai", **changes: Any) -> Candidate:
    profile = profile_for(kind)
    assert profile is not None
    route = ResolvedRoute("inference.local", url, profile.protocols, Secret(KEY), "gpt-x", kind, 0)
    return replace(route, **changes).candidate()


async def verified(candidate: Candidate, limits: ProbeLimits = DEFAULT) -> tuple[ValidatedEndpoint, ...]:
    return await Prober(limits).verify(candidate, "prod")


async def refused(candidate: Candidate, limits: ProbeLimits = DEFAULT) -> str:
    """What the operator is told."""
    with pytest.raises(NotPossibleNow) as raised:
        await verified(candidate, limits)
    assert raised.value.code == "FAILED_PRECONDITION"
    text = raised.value.text
    evidence.keep("log", text)
    assert text.startswith("cannot verify model gpt-x of provider prod at http")
    assert text.endswith("--no-verify")
    return text
