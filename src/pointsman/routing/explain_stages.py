"""What the stages before the attempts make of a request, told as facts. Pure.

Owns the words. What is decided, and by what, is told by whoever has asked the same functions as the stages do.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pointsman.core.budget import Budget, BudgetUnit, BudgetWindow, Charge
from pointsman.core.context_options import ContextOptions
from pointsman.core.data_key import DataKey
from pointsman.core.explanation import ExplainedStage, StageDecision, StageFact
from pointsman.core.money import shown_amount
from pointsman.core.policy import Effect, PolicyHit, Rule
from pointsman.core.sandbox_token import SandboxToken
from pointsman.routing.budgets import Applying, has_room, shown
from pointsman.routing.context_trim import Optimised
from pointsman.routing.policy import MOST_HITS, CompiledPolicy, Decision
from pointsman.routing.policy_rules import CONDITIONS

AUTHORIZE, BUDGET_RESERVE, REQUEST_POLICY, CONTEXT = "authorize", "budget_reserve", "request_policy", "context"
ATTEMPTS = "attempts"
BEFORE = (AUTHORIZE, BUDGET_RESERVE, REQUEST_POLICY, CONTEXT)
"""The stages before the attempts, in the order of `proxy.stages`."""
_EFFECTS = {Effect.BLOCK: "blocks", Effect.REDACT: "redacts", Effect.FLAG: "flags"}


def not_reached(name: str) -> ExplainedStage:
    """A stage that is not asked."""
    return ExplainedStage(name, StageDecision.NOT_REACHED)


def nothing(name: str) -> ExplainedStage:
    """A stage that has nothing to say of such requests."""
    return ExplainedStage(name, StageDecision.NOTHING)


def written(moment: float) -> str:
    """To the second, in UTC; empty for never."""
    return "" if math.isinf(moment) else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def authorize_stage(
    account: str, identity: DataKey | SandboxToken | None, address: str, decision: StageDecision, *, is_halted: bool
) -> ExplainedStage:
    """Whose request it is. `address`: where it comes from; empty when that was not asked."""
    halted = (("halted", _word(is_halted)),)
    facts = [StageFact(f"account {account}", "halted: it gets nothing" if is_halted else "served", halted)]
    if isinstance(identity, DataKey):
        facts.append(_key_fact(identity, address))
    elif identity is not None:
        facts.append(_token_fact(identity))
    else:
        facts.append(StageFact("anyone", "named by no key and no sandbox; --key-name or --sandbox asks for one"))
    return ExplainedStage(AUTHORIZE, decision, tuple(facts))


def _key_fact(key: DataKey, address: str) -> StageFact:
    routes, networks = ", ".join(key.routes), ", ".join(map(str, key.networks))
    told = [f"may use {routes}" if routes else "may use every route", _lasts(key.expires_at, key.revoked_at)]
    if networks:
        told.append(f"from {networks} alone" + ("" if address else "; --from ADDRESS asks for one"))
    else:
        told.append("from anywhere")
    values = (
        ("routes", routes),
        ("permissions", ", ".join(key.permissions)),
        ("networks", networks),
        ("address", address),
        *_ends(key.expires_at, key.revoked_at),
    )
    return StageFact(f"key {key.name}", ", ".join(told), values)


def _token_fact(token: SandboxToken) -> StageFact:
    route = f"leads to route {token.route}" if token.route else "leads where inference.local does"
    values = (("route", token.route), *_ends(token.expires_at, token.revoked_at))
    return StageFact(f"sandbox {token.name}", f"{route}, {_lasts(token.expires_at, token.revoked_at)}", values)


def _lasts(expires_at: float | None, revoked_at: float | None) -> str:
    if revoked_at is not None:
        return f"revoked at {written(revoked_at)}"
    return "never expires" if expires_at is None else f"valid until {written(expires_at)}"


def _ends(expires_at: float | None, revoked_at: float | None) -> tuple[tuple[str, str], ...]:
    ends = (("expires_at", expires_at), ("revoked_at", revoked_at))
    return tuple((name, "" if moment is None else written(moment)) for name, moment in ends)


def budget_stage(
    applied: Sequence[Applying], charges: Sequence[Charge], used: Sequence[int] | None, price_version: int
) -> ExplainedStage:
    """`used`: as of now, by charge; None when nobody can tell. `price_version`: of the table that money is told by."""
    if not applied:
        return nothing(BUDGET_RESERVE)
    counted: Sequence[int | None] = [None] * len(charges) if used is None else used
    known = list(zip(applied, charges, counted, strict=True))
    facts = tuple(_budget_fact(each, charge, count, price_version) for each, charge, count in known)
    refuses = any(each.budget.is_hard and (n is None or not has_room(charge, n)) for each, charge, n in known)
    return ExplainedStage(BUDGET_RESERVE, StageDecision.REFUSES if refuses else StageDecision.PASSES, facts)


def _budget_fact(applied: Applying, charge: Charge, used: int | None, price_version: int) -> StageFact:
    budget = applied.budget
    prices = f" {told_prices(price_version)}" if budget.unit is BudgetUnit.MONEY else ""
    asked = f"{_number(budget, charge.amount)}{prices}"
    does = "reserves" if budget.is_hard else "may come to"
    whom = f"{budget.scope.value} {applied.subject}: " if applied.subject else ""
    counted = "nobody can tell what is used" if used is None else f"{_number(budget, used)} of {_all_of(budget)} used"
    told = f"{whom}{counted} {_window_text(budget, charge)}, this {does} {asked}: "
    room = used is not None and used + charge.amount <= budget.amount
    free_at = "" if room or charge.amount > budget.amount else written(charge.ends_at)
    told += _room(budget, free_at, is_known=used is not None, room=room)
    values = (
        ("scope", budget.scope.value),
        ("subject", applied.subject),
        ("unit", budget.unit.value),
        ("window", budget.window.value),
        ("span", charge.window),
        ("time_zone", budget.time_zone),
        ("amount", _number(budget, budget.amount)),
        ("used", "" if used is None else _number(budget, used)),
        ("this_request", _number(budget, charge.amount)),
        ("price_version", str(price_version) if budget.unit is BudgetUnit.MONEY else ""),
        ("hard", _word(budget.is_hard)),
        ("has_room", _word(room)),
        ("free_at", free_at),
    )
    return StageFact(f"budget {budget.name}", told, values)


def told_prices(version: int) -> str:
    """Which table money is told by."""
    return f"by prices of version {version}" if version else "since there are no prices"


def _room(budget: Budget, free_at: str, *, is_known: bool, room: bool) -> str:
    if not budget.is_hard:
        return "soft, nothing is refused"
    if not is_known:
        return "what cannot be counted is refused"
    if room:
        return "it has room"
    return f"no room {f'until {free_at}' if free_at else 'for it, ever'}"


def _window_text(budget: Budget, charge: Charge) -> str:
    return "in all" if budget.window is BudgetWindow.TOTAL else f"in {charge.window} ({budget.time_zone})"


def _number(budget: Budget, amount: int) -> str:
    return shown_amount(amount) if budget.unit is BudgetUnit.MONEY else str(amount)


def _all_of(budget: Budget) -> str:
    return shown(budget.unit, budget.amount)


def decided_by_closing(compiled: CompiledPolicy) -> CompiledPolicy | None:
    """The rules that match whatever is sent, alone; None when there are none."""
    return replace(compiled, rules=compiled.closing) if compiled.closing else None


def policy_facts(compiled: CompiledPolicy, decision: Decision) -> Iterator[StageFact]:
    """What one policy says of a body."""
    if not decision.hits:
        yield StageFact(
            _policy(compiled), f"{_state(compiled)}, none of {_counted(compiled.rules)} matches", _of(compiled)
        )
    for hit in decision.hits:
        place = f" at {hit.place}" if hit.place else ""
        told = f"{_state(compiled)}, rule {hit.rule} {_does(compiled, hit.would)}{place}"
        yield StageFact(_policy(compiled), told, _hit(compiled, hit))


def unsearched_fact(compiled: CompiledPolicy, reason: str) -> StageFact:
    """Of a body that is refused since nobody can search it."""
    return StageFact(_policy(compiled), f"{_state(compiled)}, {reason}", _of(compiled))


def rule_facts(compiled: CompiledPolicy) -> Iterator[StageFact]:
    """Which rules are about such requests, or answers: of a body that is not known."""
    for rule in compiled.rules[:MOST_HITS]:
        condition = next((each for each in CONDITIONS if getattr(rule, each)), "")
        values = (*_of(compiled), ("rule", rule.id), ("effect", rule.effect.value), ("condition", condition))
        told = f"{_state(compiled)}, rule {rule.id} {_does(compiled, rule.effect)} by {condition}"
        yield StageFact(_policy(compiled), told, values)
    if len(compiled.rules) > MOST_HITS:
        more = len(compiled.rules) - MOST_HITS
        yield StageFact(_policy(compiled), f"{_state(compiled)}, and {more} other rules")


def _does(compiled: CompiledPolicy, effect: Effect) -> str:
    return _EFFECTS[effect] if compiled.is_enforced else f"would {effect.value}"


def _policy(compiled: CompiledPolicy) -> str:
    return f"policy {compiled.version}"


def _state(compiled: CompiledPolicy) -> str:
    return "enforced" if compiled.is_enforced else "dry run"


def _counted(rules: Sequence[Rule]) -> str:
    return "1 rule" if len(rules) == 1 else f"{len(rules)} rules"


def _of(compiled: CompiledPolicy) -> tuple[tuple[str, str], ...]:
    return ("version", str(compiled.version)), ("enforced", _word(compiled.is_enforced))


def _hit(compiled: CompiledPolicy, hit: PolicyHit) -> tuple[tuple[str, str], ...]:
    return (
        *_of(compiled),
        ("rule", hit.rule),
        ("effect", hit.effect.value),
        ("would", hit.would.value),
        ("place", hit.place),
    )


def context_stage(route: str, options: ContextOptions | None, found: Optimised | None) -> ExplainedStage:
    """`found`: what is sent on of the body; None when that is not known."""
    if options is None:
        return nothing(CONTEXT)
    about, values = f"route {route}", [("options", options.written)]
    if found is None:
        return ExplainedStage(CONTEXT, StageDecision.DEPENDS, (StageFact(about, options.written, tuple(values)),))
    dropped = found.dropped
    values += [
        ("saved_tokens", str(found.saved_tokens)),
        ("messages", str(dropped.messages)),
        ("tools", str(dropped.tools)),
        ("results", str(dropped.results)),
        ("unchanged", found.unchanged),
    ]
    went = [_times(dropped.messages, "message"), _times(dropped.tools, "tool"), _times(dropped.results, "result")]
    if found.unchanged:
        told = f"left as it is: {found.unchanged}"
    elif any(went):
        told = f"about {found.saved_tokens} tokens saved, without {', '.join(filter(None, went))}"
    else:
        told = "nothing is taken out"
    decision = StageDecision.CHANGES if any(dropped) else StageDecision.PASSES
    return ExplainedStage(CONTEXT, decision, (StageFact(about, f"{options.written}: {told}", tuple(values)),))


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}" if count else ""


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"
