"""The attempts and the stages behind them, told as facts: what an answer meets, what is written. Pure.

Owns the words, as `explain_stages` does for what stands before the attempts.
"""

from collections.abc import Iterator, Sequence

from pointsman.core.explanation import ExplainedCandidate, ExplainedStage, StageDecision, StageFact
from pointsman.core.money import shown_amount, shown_price
from pointsman.core.price import PriceTable
from pointsman.routing.explain_stages import ATTEMPTS, nothing, rule_facts, told_prices
from pointsman.routing.policy import CompiledPolicy

RESPONSE_POLICY, BUDGET_SETTLE, AUDIT, RECEIPT = "response_policy", "budget_settle", "audit", "receipt"
USAGE_RECORD = "usage_record"
BEHIND = (BUDGET_SETTLE, AUDIT, RECEIPT, USAGE_RECORD)
"""The stages that are told how a request went, in the order of `proxy.stages`."""


def attempts_stage(candidates: Sequence[ExplainedCandidate], *, is_refused: bool) -> ExplainedStage:
    """Whom a request leads to, in short. `is_refused`: nobody is asked."""
    tried = [each.provider or each.endpoint for each in candidates if each.place]
    others = len(candidates) - len(tried)
    if is_refused or not tried:
        told = "nobody is asked"
    else:
        told = f"{tried[0]} is asked" + (f", then {', '.join(tried[1:])}" if tried[1:] else "")
    told += f"; {others} passed over" if others else ""
    values = (("tried", ", ".join(tried)), ("passed_over", str(others)))
    decision = StageDecision.REFUSES if is_refused or not tried else StageDecision.PASSES
    return ExplainedStage(ATTEMPTS, decision, (StageFact("candidates", told, values),))


def response_stage(in_force: Sequence[CompiledPolicy]) -> ExplainedStage:
    """The rules of each policy that are about its answers."""
    if not in_force:
        return nothing(RESPONSE_POLICY)
    facts = [fact for compiled in in_force for fact in rule_facts(compiled)]
    holds = any(each.refuses_unread for each in in_force)
    told = "held back until they were looked at" if holds else "looked at as they pass"
    facts.append(StageFact("answers", told, (("held_back", "true" if holds else "false"),)))
    return ExplainedStage(RESPONSE_POLICY, StageDecision.DEPENDS, tuple(facts))


def settle_stage(budgets: Sequence[str], *, is_refused: bool) -> ExplainedStage:
    """`budgets`: the names of those that something was reserved of."""
    if not budgets:
        return nothing(BUDGET_SETTLE)
    told = "all is given back" if is_refused else "what is reserved becomes what it came to"
    return ExplainedStage(BUDGET_SETTLE, StageDecision.RECORDS, tuple(StageFact(f"budget {e}", told) for e in budgets))


def audit_stage(actions: Sequence[str], account: str) -> ExplainedStage:
    """`actions`: of the entries that the audit record gets."""
    if not actions:
        return nothing(AUDIT)
    facts = tuple(StageFact(f"account {account}", f"an entry {each}", (("action", each),)) for each in actions)
    return ExplainedStage(AUDIT, StageDecision.RECORDS, facts)


def receipt_stage(account: str) -> ExplainedStage:
    """Of a request that gets one."""
    told = "hashes of what passes, in the account's chain"
    return ExplainedStage(RECEIPT, StageDecision.RECORDS, (StageFact(f"account {account}", told),))


def usage_stage(account: str, candidates: Sequence[ExplainedCandidate], prices: PriceTable) -> ExplainedStage:
    """The row, and the price of whoever answers."""
    facts = [StageFact(f"account {account}", "a row, however it ends"), *_prices(candidates, prices)]
    return ExplainedStage(USAGE_RECORD, StageDecision.RECORDS, tuple(facts))


def _prices(candidates: Sequence[ExplainedCandidate], prices: PriceTable) -> Iterator[StageFact]:
    for each in candidates:
        if not each.place or each.rewrite is None:
            continue
        model = each.rewrite.model_after
        price = prices.find(each.provider, model)
        about = f"price {each.provider}/{model}"
        if price is None:
            yield StageFact(about, "unpriced, it costs nothing", (("version", str(prices.version)),))
            continue
        cached = price.input if price.cached_input is None else price.cached_input
        values = [
            ("version", str(prices.version)),
            ("input", shown_price(price.input)),
            ("cached_input", shown_price(cached)),
            ("output", shown_price(price.output)),
            ("request", shown_amount(price.request)),
        ]
        told = f"{values[1][1]} in, {values[3][1]} out for a million tokens"
        told += f", {values[4][1]} a request" if price.request else ""
        yield StageFact(about, f"{told}, {told_prices(prices.version)}", tuple(values))
