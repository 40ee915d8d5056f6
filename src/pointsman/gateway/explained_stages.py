"""What the stages around a request would make of it: asks what they ask, and neither counts, writes nor sends.

Owns whom to ask, in the stages' order. How it is told is `routing.explain_stages`' and `explain_outcomes`'; what is
decided comes of the functions that the stages themselves call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pointsman.core.budget import Budget
from pointsman.core.budget_window import window_at
from pointsman.core.caller import Caller
from pointsman.core.errors import RouterError
from pointsman.core.explanation import ExplainedCandidate, ExplainedStage, StageDecision, StageFact
from pointsman.core.model_errors import BudgetUncounted, PolicyUnsearchable
from pointsman.core.model_table import Target
from pointsman.core.policy import PolicyHit
from pointsman.core.price import NO_PRICES, PriceTable
from pointsman.core.protocols import InferenceProtocol
from pointsman.core.quota import LedgerUnavailable
from pointsman.core.receipt import ReceiptScope
from pointsman.core.time_zones import zone_named
from pointsman.events.reasons import reason_of
from pointsman.gateway.stages.audit import actions_of
from pointsman.gateway.stages.budgets import exhausted
from pointsman.gateway.stages.context import ContextStage
from pointsman.gateway.stages.policies_in_force import PoliciesInForce
from pointsman.gateway.stages.request_policy import RequestPolicy, blocked
from pointsman.proxy.budgets import BudgetLedger
from pointsman.routing.budgets import Standing, Use, applying, may_come_to, refusal_of
from pointsman.routing.explain_outcomes import (
    BEHIND,
    RECEIPT,
    RESPONSE_POLICY,
    attempts_stage,
    audit_stage,
    receipt_stage,
    response_stage,
    settle_stage,
    usage_stage,
)
from pointsman.routing.explain_stages import (
    ATTEMPTS,
    BEFORE,
    REQUEST_POLICY,
    budget_stage,
    context_stage,
    decided_by_closing,
    not_reached,
    nothing,
    policy_facts,
    rule_facts,
    unsearched_fact,
)
from pointsman.routing.policy import CompiledPolicy, evaluate
from pointsman.routing.tokens_used import is_counting
from pointsman.store.budget_turns import key_of
from pointsman.wire.output_bound import read_output_bound


@dataclass(frozen=True, slots=True)
class Arriving:
    """A request whose sender may have what it names."""

    caller: Caller
    route: str
    protocol: str
    path: str
    """Without its query."""
    target: Target
    body: bytes
    is_given: bool
    """Whether the body is what a client would send; otherwise it names the model, and what else is unknown."""


@dataclass(frozen=True, slots=True)
class Met:
    """What became of it before the attempts."""

    body: bytes
    """As the stages leave it."""
    stages: tuple[ExplainedStage, ...] = ()
    error: RouterError | None = None
    """What a stage refuses it with: the last of `stages`."""
    hits: tuple[PolicyHit, ...] = ()
    budgets: tuple[str, ...] = ()
    """Names of those that something is reserved of."""


@dataclass(frozen=True, slots=True)
class ExplainedStages:
    """What is behind the stages of one data listener."""

    budgets: Callable[[], Mapping[str, Sequence[Budget]]]
    ledger: BudgetLedger
    prices: Callable[[str], PriceTable]
    policies: PoliciesInForce
    request_policy: RequestPolicy
    context: ContextStage
    receipts: ReceiptScope

    async def before(self, arriving: Arriving, now: float) -> Met:
        """Budgets, request policy and context, up to the one that refuses."""
        met = Met(arriving.body)
        for stage in (self._reserve, self._request_policy):
            met = await stage(arriving, met, now)
            if met.error is not None:
                return met
        return await self._trim(arriving, met)

    async def _reserve(self, arriving: Arriving, met: Met, now: float) -> Met:
        account = arriving.caller.account
        applied = applying(self.budgets().get(account, ()), arriving.caller, arriving.route)
        prices, use = self.prices(account), Use(1)
        standing = Standing(applied)
        if standing.counts_tokens:
            asked = arriving.protocol, arriving.path
            use = may_come_to(arriving.target, len(met.body), read_output_bound(met.body), asked, prices)
        charges = standing.charges(use, now, lambda kind, zone: window_at(kind, zone_named(zone), now))
        hard = sorted((each for each in charges if each.limit is not None), key=key_of)
        error: RouterError | None = None
        used: Sequence[int] | None = None
        try:
            used = await self.ledger.look(account, charges)
        except LedgerUnavailable as problem:
            error = BudgetUncounted(str(problem)) if hard else None
        else:
            counted = {key_of(charge): count for charge, count in zip(charges, used, strict=True)}
            refusal = refusal_of(hard, lambda charge: counted[key_of(charge)])
            error = exhausted(refusal, applied, use, now) if refusal is not None else None
        names = () if error is not None else tuple(each.budget.name for each in applied)
        return _with(replace(met, error=error, budgets=names), budget_stage(applied, charges, used, prices.version))

    async def _request_policy(self, arriving: Arriving, met: Met, _: float) -> Met:
        in_force = self.policies.about(arriving.caller, arriving.route, arriving.protocol).requests
        if not in_force:
            return _with(met, nothing(REQUEST_POLICY))
        decide = self._on_body if arriving.is_given else _on_any_body
        facts: list[StageFact] = []
        before = met.body
        for compiled in in_force:
            met, told = await decide(compiled, arriving, met)
            facts += told
            if met.error is not None:
                break
        if met.error is not None:
            decision = StageDecision.REFUSES
        elif not arriving.is_given:
            decision = StageDecision.DEPENDS
        else:
            decision = StageDecision.PASSES if met.body is before else StageDecision.CHANGES
        return _with(met, ExplainedStage(REQUEST_POLICY, decision, tuple(facts)))

    async def _on_body(self, compiled: CompiledPolicy, arriving: Arriving, met: Met) -> tuple[Met, Sequence[StageFact]]:
        try:
            generates = not is_counting(arriving.path)
            decision = await self.request_policy.decide(compiled, arriving.body, generates=generates)
        except PolicyUnsearchable as refusal:
            return replace(met, error=refusal), (unsearched_fact(compiled, refusal.told),)
        error = blocked(decision) if decision.blocked_by else None
        body = met.body if decision.body is None else decision.body
        hits = (*met.hits, *decision.hits)
        return replace(met, body=body, error=error, hits=hits), tuple(policy_facts(compiled, decision))

    async def _trim(self, arriving: Arriving, met: Met) -> Met:
        options = self.context.options(arriving.caller.account, arriving.route, arriving.protocol)
        found = None
        if options is not None and arriving.is_given:
            found = await self.context.optimised(met.body, arriving.route, arriving.protocol, options)
            met = replace(met, body=found.body)
        return _with(met, context_stage(arriving.route, options, found))

    def all(
        self,
        authorized: ExplainedStage,
        arriving: Arriving,
        met: Met,
        candidates: Sequence[ExplainedCandidate],
        error: RouterError | None,
    ) -> tuple[ExplainedStage, ...]:
        """Every stage of a request that arrived. `error`: what it is refused with at the attempts."""
        account, reached = arriving.caller.account, len(met.stages) + 1
        stages = [authorized, *met.stages, *(not_reached(name) for name in BEFORE[reached:])]
        if met.error is not None:
            stages.append(not_reached(ATTEMPTS))
        else:
            stages.append(attempts_stage(candidates, is_refused=error is not None))
        ends = met.error or error
        stages.append(not_reached(RESPONSE_POLICY) if ends is not None else self._response_policy(arriving))
        actions = actions_of("" if ends is None else reason_of(ends), met.hits)
        stages += [settle_stage(met.budgets, is_refused=ends is not None), audit_stage(actions, account)]
        stages.append(receipt_stage(account) if self.receipts.covers(arriving.route) else nothing(RECEIPT))
        return (*stages, usage_stage(account, candidates if ends is None else (), self.prices(account)))

    def _response_policy(self, arriving: Arriving) -> ExplainedStage:
        if arriving.protocol == InferenceProtocol.EMBEDDINGS or is_counting(arriving.path):
            return response_stage(())
        return response_stage(self.policies.about(arriving.caller, arriving.route, arriving.protocol).answers)


def refused_at_the_door(account: str, authorized: ExplainedStage, *, is_recorded: bool) -> tuple[ExplainedStage, ...]:
    """Every stage of a request that none but the first has seen. `is_recorded`: its head was taken, so it has a row."""
    names = (*BEFORE[1:], ATTEMPTS, RESPONSE_POLICY)
    behind = [nothing(name) for name in BEHIND[:-1]]
    usage = usage_stage(account, (), NO_PRICES) if is_recorded else nothing(BEHIND[-1])
    return (authorized, *map(not_reached, names), *behind, usage)


async def _on_any_body(compiled: CompiledPolicy, _: Arriving, met: Met) -> tuple[Met, Sequence[StageFact]]:
    """Of rules that match whatever is sent it is known all the same what they do."""
    closing = decided_by_closing(compiled)
    if closing is not None:
        decision = evaluate(closing, b"")
        if decision.blocked_by:
            return replace(met, error=blocked(decision), hits=decision.hits), tuple(policy_facts(compiled, decision))
    return met, tuple(rule_facts(compiled))


def _with(met: Met, stage: ExplainedStage) -> Met:
    return replace(met, stages=(*met.stages, stage))
