"""Verifies what a route leads to by calling it, over the data plane's own path to upstreams.

What passes here passes later: the same addresses are refused at connect, TLS is verified the same way, no redirect is
followed and no proxy variable obeyed. What to send and what an answer means is `routing.probe`'s.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pointsman.core.candidate import Candidate
from pointsman.core.control_errors import NotPossibleNow
from pointsman.core.errors import RouterError, UpstreamUnavailable
from pointsman.core.limits import DEFAULT_LIMITS, KIB
from pointsman.core.reach import ONLY_PUBLIC, DirectReach
from pointsman.core.route import ValidatedEndpoint
from pointsman.gateway.own_upstreams import own_upstreams
from pointsman.proxy.backends.http import HttpBackend
from pointsman.proxy.call import Call, Response
from pointsman.proxy.relay import Collector
from pointsman.routing.probe import (
    Answer,
    Failure,
    FailureKind,
    Probe,
    failure_text,
    judge,
    next_probe,
    probed_url,
    probes_for,
    verdict,
)
from pointsman.wire.request import RequestHead

_FIELDS = [(b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Bounds of one verification. The first number is the inference-routing design's, the others are ours."""

    seconds: float = 30.0  # all probes together, and each of them: connectivity failure
    body_seconds: float = 5.0  # for the body of a refusal: judged by what has come
    body_bytes: int = 64 * KIB  # of the same: judged by its beginning


class Prober:
    """Holds nothing between verifications: each has connections of its own, and leaves none."""

    def __init__(self, limits: ProbeLimits = ProbeLimits(), reach: DirectReach = ONLY_PUBLIC) -> None:
        """`reach`: where confined candidates may lead to."""
        self._limits = limits
        self._reach = reach

    async def verify(self, candidate: Candidate, provider_name: str) -> tuple[ValidatedEndpoint, ...]:
        """Call an upstream until a dialect is accepted: what was reached, and how it is spoken to.

        A mock passes without being called. A probe waits for as long as the candidate's timeout allows, if it has one
        that is shorter. Raises NotPossibleNow with a text for the operator. Cancelling it ends the call under way.
        """
        probes = probes_for(candidate.protocols)
        if not probes:
            raise NotPossibleNow(
                f"provider {provider_name} speaks no dialect that can be verified; store the route with --no-verify"
            )
        if candidate.endpoint.scheme == "mock":
            return (_reached(candidate, probes[0]),)
        failures: list[Failure] = []
        with self._upstreams() as backend:
            try:
                async with asyncio.timeout(self._limits.seconds):
                    while (probe := next_probe(probes, failures)) is not None:
                        failure = await self._send(probe, candidate, backend)
                        if failure is None:
                            return (_reached(candidate, probe),)
                        failures.append(failure)
            except TimeoutError:
                failures.append(_no_answer(self._limits.seconds))
        raise NotPossibleNow(failure_text(provider_name, candidate, verdict(failures)))

    @contextmanager
    def _upstreams(self) -> Iterator[HttpBackend]:
        limits = replace(
            DEFAULT_LIMITS,
            connect_seconds=self._limits.seconds,
            response_header_seconds=self._limits.seconds,
            response_body_bytes=self._limits.body_bytes,
        )
        with own_upstreams(limits, self._reach) as backend:
            yield backend

    async def _send(self, probe: Probe, candidate: Candidate, backend: HttpBackend) -> Failure | None:
        seconds = min(candidate.timeout_seconds or self._limits.seconds, self._limits.seconds)
        call = Call(candidate, probe.protocol, RequestHead("POST", probe.path, 1, _FIELDS), probe.path, probe.body)
        try:
            async with asyncio.timeout(seconds):
                response = await backend.open(call)
        except TimeoutError:
            return _no_answer(seconds)
        except UpstreamUnavailable as error:
            return Failure(FailureKind.CONNECTIVITY, error.detail)
        except RouterError as error:
            return Failure(FailureKind.UNEXPECTED, error.detail, probe.path)
        try:
            return judge(await self._answer(response), probe.path, candidate.api_key)
        finally:
            response.close()

    async def _answer(self, response: Response) -> Answer:
        head = response.head
        if 200 <= head.status <= 299:
            return Answer(head.status)  # its body tells nothing, and may never end
        location = next((value for name, value in head.fields if name.lower() == b"location"), b"")
        collector = Collector()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                await response.relay(collector)
        except TimeoutError:
            pass
        return Answer(head.status, collector.value(), location.decode("latin-1"))


def _reached(candidate: Candidate, probe: Probe) -> ValidatedEndpoint:
    return ValidatedEndpoint(probed_url(candidate, probe.path), str(probe.protocol))


def _no_answer(seconds: float) -> Failure:
    return Failure(FailureKind.CONNECTIVITY, f"no answer within {seconds:g} s")
