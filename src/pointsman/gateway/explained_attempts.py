"""Whom a request leads to, and what they would be sent, for the kinds of routes of the data listener.

Owns whom to ask: the listener's ledger and what its strategies remember, the store for what a chain is without, key
files for whether they can be read. What a plan comes to is `routing.explain`'s.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from pointsman.config.secrets import SecretUnreadable, read_secret
from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.errors import RouterError
from pointsman.core.explanation import ExplainedCandidate, Explanation, KeyFact, KeyState, RunnerFact
from pointsman.core.limits import Limits
from pointsman.core.model_errors import NoProviderAvailable
from pointsman.core.model_table import Target
from pointsman.core.quota import Counters, QuotaKey
from pointsman.core.route import CHAIN, DIRECT, RUNNER, Route
from pointsman.core.runner_errors import RunnerError
from pointsman.core.runner_model import RunnerModel
from pointsman.core.secret import Secret
from pointsman.gateway.data_listener import DataListener
from pointsman.gateway.explained_question import check_body
from pointsman.gateway.route_members import providers_of
from pointsman.gateway.runners import Presence
from pointsman.proxy.backends.runner import body_for_runner
from pointsman.proxy.forwarded_models import model_to_forward
from pointsman.routing.chain_plan import earliest_recovery
from pointsman.routing.explain import Asked, Circumstances, explain_candidate, explain_chain, explain_runner
from pointsman.routing.members import chain_of
from pointsman.routing.registered_models import PROVIDER_PREFIX
from pointsman.routing.resolve import Unresolvable
from pointsman.store.interface import Reader

_UNNEEDED = KeyFact(KeyState.NOT_NEEDED)
_PLACEHOLDER = Secret("none")
"""What a record has in place of a key for a server that wants none."""


@dataclass(frozen=True, slots=True)
class Found:
    """Whom a request leads to."""

    told: Explanation
    error: RouterError | None = None
    """Why nobody is asked."""
    detail: str = ""
    """The same for the operator, when it says more."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """As of one moment."""

    listener: DataListener
    reader: Reader
    presence: Presence
    now: float
    rng: Random

    def check(self, target: Target, body: bytes) -> None:
        """Raises what a body is refused with at an attempt: NoModel, MalformedRequest, BodyTooLarge or RunnerError."""
        limits = self.listener.limits
        if isinstance(target, Chain) and target.forwards_model:
            model_to_forward(body, target)
        check_body(body, limits)
        if isinstance(target, RunnerModel):
            most = self.listener.served.runner_limits.request_bytes
            body_for_runner(body, target.candidate.model, limits.json_keys, most)

    async def of(self, target: Target, asked: Asked, begun: Explanation, route: Route | None) -> Found:
        """Whom it leads to, and why nobody is asked if nobody is."""
        if isinstance(target, Chain):
            return await self._along(target, asked, begun, route)
        if isinstance(target, RunnerModel):
            return await self._over_its_line(target, asked, begun)
        told = replace(
            explained(target, asked, self.listener.limits), provider=route.provider_name if route is not None else ""
        )
        return Found(replace(begun, kind=route.kind if route is not None else DIRECT, candidates=(told,)))

    async def _over_its_line(self, model: RunnerModel, asked: Asked, begun: Explanation) -> Found:
        """One attempt at the model's runner, whatever comes of it; none while that is not connected."""
        there = await self.presence.connected(model.account, (model.runner_id,))
        name = model.candidate.provider.removeprefix(PROVIDER_PREFIX)
        runner = RunnerFact(model.runner_id, name, is_connected=model.runner_id in there)
        limits = self.listener.served.runner_limits
        found = replace(
            begun,
            kind=RUNNER,
            chunk_idle_seconds=limits.idle_seconds,
            total_seconds=limits.lifetime_seconds,
            candidates=(explain_runner(model, asked, runner, limits),),
        )
        if runner.is_connected:
            return Found(found)
        return Found(found, RunnerError("runner_offline"), f"no process of the gateway holds the line of {name}")

    async def _along(self, chain: Chain, asked: Asked, begun: Explanation, route: Route | None) -> Found:
        ledger, now = self.listener.served.ledger, self.now

        def counters(member: Member) -> Counters:
            return ledger.counters(QuotaKey(chain.account, member.provider), member.quota, now)

        state = self.listener.state_of(chain)
        around = Circumstances(counters, _key_of_member, now, state, self.rng, self.listener.limits)
        told, skipped = explain_chain(chain, begun.protocol, asked, around)
        found = replace(
            begun,
            kind=CHAIN,
            strategy=chain.strategy,
            request_timeout_seconds=chain.request_timeout_seconds,
            candidates=(*told, *(await self._left_out(chain, route))),
        )
        if found.is_tried:
            return Found(found)
        until = earliest_recovery(skipped, now)
        return Found(found, NoProviderAvailable(until - now if until is not None else None))

    async def _left_out(self, chain: Chain, route: Route | None) -> tuple[ExplainedCandidate, ...]:
        """Whom the route names and the chain in use is without, since the record leads nowhere."""
        if route is None or route.kind != CHAIN:
            return ()
        served = {member.provider for member in chain.all_members}
        found: dict[str, str] = {}
        try:
            chain_of(
                route, await providers_of(self.reader, route), left_out=lambda name, error: _note(found, name, error)
            )
        except Unresolvable as error:
            found.setdefault("", error.text)
        return tuple(
            ExplainedCandidate(
                name, "", "", 0, skip_reason="unresolvable", skip_detail=text, is_fallback=name == route.fallback
            )
            for name, text in found.items()
            if name and name not in served
        )


def explained(target: Candidate | Member, asked: Asked, limits: Limits) -> ExplainedCandidate:
    """A direct route's."""
    if isinstance(target, Member):
        return explain_candidate(target.candidate, asked, _key_of_member(target), limits)
    return explain_candidate(target, asked, _key_of(target), limits)


def _note(found: dict[str, str], name: str, error: Unresolvable) -> None:
    found.setdefault(name, error.text)


def _key_of_member(member: Member) -> KeyFact:
    if not member.key_file:
        return _key_of(member.candidate)
    try:
        read_secret(Path(member.key_file))
    except SecretUnreadable as error:
        return KeyFact(KeyState.MISSING, "file", str(error))
    return KeyFact(KeyState.READABLE, "file")


def _key_of(candidate: Candidate) -> KeyFact:
    if candidate.api_key == _PLACEHOLDER or candidate.is_confined:
        return _UNNEEDED
    if candidate.api_key is not None:
        return KeyFact(KeyState.READABLE, "record")
    if candidate.endpoint.scheme in ("http", "https"):
        return KeyFact(KeyState.MISSING, "record", "the provider's record has no key")
    return _UNNEEDED
