"""Stages told as facts: what is told agrees with what is decided, and is bounded."""

import asyncio
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.budget import Budget, BudgetRefusal, BudgetScope, BudgetUnit, BudgetWindow, Charge
from pointsman.core.context_options import ContextOptions
from pointsman.core.data_key import DataKey
from pointsman.core.explanation import ExplainedCandidate, Rewrite, StageDecision
from pointsman.core.money import NANO
from pointsman.core.policy import Effect
from pointsman.core.price import Price, PriceTable
from pointsman.core.source_network import read_network
from pointsman.proxy.memory_budgets import MemoryBudgetLedger
from pointsman.routing.budgets import Applying
from pointsman.routing.context_trim import Dropped, Optimised
from pointsman.routing.explain_outcomes import attempts_stage, audit_stage, response_stage, settle_stage, usage_stage
from pointsman.routing.explain_stages import (
    authorize_stage,
    budget_stage,
    context_stage,
    decided_by_closing,
    policy_facts,
    rule_facts,
)
from pointsman.routing.policy import MOST_HITS, evaluate
from tests.support.policies import compiled, rule

SECRET_PATTERN = "a-pattern-that-nobody-is-told"


def budget(
    name: str = "b", *, amount: int = 10, unit: BudgetUnit = BudgetUnit.REQUESTS, is_hard: bool = True
) -> Budget:
    window = BudgetWindow.MONTH
    return Budget("default", name, BudgetScope.ACCOUNT, "", unit, amount, window, is_hard=is_hard, id=name)


def charge(of: Budget, amount: int = 1, ends_at: float = 1_800_000_000.0) -> Charge:
    return Charge(of.id, "", "2027-01", ends_at, amount, of.amount if of.is_hard else None)


counters = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 4), st.booleans())


@given(st.lists(counters, max_size=5))
def test_a_budget_stage_refuses_when_a_ledger_does(drawn: list[tuple[int, int, int, bool]]) -> None:
    budgets = [budget(f"b{n}", amount=amount, is_hard=hard) for n, (amount, _, _, hard) in enumerate(drawn)]
    charges = [charge(each, asked) for each, (_, _, asked, _) in zip(budgets, drawn, strict=True)]
    used = [count for _, count, _, _ in drawn]
    ledger = MemoryBudgetLedger()
    ledger.used = {(each.budget, "", each.window): count for each, count in zip(charges, used, strict=True)}
    refusal = asyncio.run(ledger.reserve("default", charges, 0.0))
    told = budget_stage([Applying(each, "") for each in budgets], charges, used, 1)
    assert (told.decision is StageDecision.REFUSES) is isinstance(refusal, BudgetRefusal)
    if isinstance(refusal, BudgetRefusal):
        full = [fact.about for fact in told.facts if dict(fact.values)["has_room"] == "false"]
        assert f"budget {refusal.budget}" in full


@pytest.mark.parametrize(("used", "room"), [(8, "true"), (9, "true"), (10, "false")])
def test_a_budget_has_room_up_to_its_amount_and_is_free_at_the_windows_end(used: int, room: str) -> None:
    one = budget()
    [fact] = budget_stage([Applying(one, "")], [charge(one)], [used], 0).facts
    values = dict(fact.values)
    assert values["has_room"] == room
    assert values["free_at"] == ("" if room == "true" else "2027-01-15T08:00:00Z")
    assert values["price_version"] == ""


def test_what_no_window_has_room_for_is_never_free() -> None:
    one = budget(amount=5)
    [too_much] = budget_stage([Applying(one, "")], [charge(one, 6)], [0], 0).facts
    assert too_much.text.endswith("no room for it, ever")
    [total] = budget_stage([Applying(one, "")], [charge(one, 1, math.inf)], [5], 0).facts
    assert dict(total.values)["free_at"] == ""


def test_what_cannot_be_counted_is_refused_by_hard_budgets_alone() -> None:
    hard, soft = budget(), budget(is_hard=False)
    assert budget_stage([Applying(hard, "")], [charge(hard)], None, 0).decision is StageDecision.REFUSES
    assert budget_stage([Applying(soft, "")], [charge(soft)], None, 0).decision is StageDecision.PASSES


def test_money_is_told_with_the_version_of_its_prices() -> None:
    one = budget(unit=BudgetUnit.MONEY, amount=50 * NANO)
    [fact] = budget_stage([Applying(one, "")], [charge(one, NANO // 4)], [12 * NANO], 7).facts
    assert fact.text == (
        "12.00 of 50.00 of money used in 2027-01 (UTC), this reserves 0.25 by prices of version 7: it has room"
    )
    [unpriced] = budget_stage([Applying(one, "")], [charge(one, 0)], [0], 0).facts
    assert "since there are no prices" in unpriced.text


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_so_many_rules_are_listed_and_of_more_the_number(over: int) -> None:
    made = compiled(*(rule(f"r{n}", pattern=f"{SECRET_PATTERN}{n}") for n in range(MOST_HITS + over)))
    assert made is not None
    told = list(rule_facts(made))
    assert len(told) == MOST_HITS + over
    assert ("and 1 other rules" in told[-1].text) is (over == 1)
    assert SECRET_PATTERN not in repr(told)


def test_rules_are_told_as_they_act_enforced_and_in_a_dry_run() -> None:
    rules = (
        rule("no", pattern="word"),
        rule("hide", Effect.REDACT, pattern="mail"),
        rule("see", Effect.FLAG, pattern="a"),
    )
    body = json.dumps({"messages": [{"role": "user", "content": "word mail"}]}).encode()
    for is_enforced, words in (
        (True, ["blocks", "redacts", "flags"]),
        (False, ["would block", "would redact", "would flag"]),
    ):
        made = compiled(*rules, is_enforced=is_enforced)
        assert made is not None
        told = {fact.text for fact in policy_facts(made, evaluate(made, body))}
        state = "enforced" if is_enforced else "dry run"
        for name, does in zip(("no", "hide", "see"), words, strict=True):
            assert f"{state}, rule {name} {does} at /messages/0/content" in told
    made = compiled(*rules)
    assert made is not None
    [nothing] = policy_facts(made, evaluate(made, b'{"messages":[]}'))
    assert nothing.text == "enforced, none of 3 rules matches"


def test_only_rules_that_match_whatever_is_sent_decide_without_a_body() -> None:
    made = compiled(rule("no", pattern="word"), rule("shut", denies_route=True))
    assert made is not None
    closing = decided_by_closing(made)
    assert closing is not None
    assert evaluate(closing, b"").blocked_by == "shut"
    without = compiled(rule("no", pattern="word"))
    assert without is not None
    assert decided_by_closing(without) is None


@pytest.mark.parametrize(
    ("effect", "is_enforced", "holds"),
    [
        (Effect.BLOCK, True, "true"),
        (Effect.REDACT, True, "true"),
        (Effect.FLAG, True, "false"),
        (Effect.BLOCK, False, "false"),
    ],
)
def test_answers_are_held_back_by_what_is_enforced_and_changes_them(
    effect: Effect, is_enforced: bool, holds: str
) -> None:
    made = compiled(rule("a", effect, pattern="b"), is_enforced=is_enforced)
    assert made is not None
    assert response_stage([made]).facts[-1].values == (("held_back", holds),)
    assert response_stage(()).decision is StageDecision.NOTHING


def test_what_context_takes_out_is_counted() -> None:
    options = ContextOptions(drop_duplicates=True)
    assert context_stage("fast", None, None).decision is StageDecision.NOTHING
    assert context_stage("fast", options, None).decision is StageDecision.DEPENDS
    found = Optimised(b"", 9, dropped=Dropped(2, 0, 1))
    told = context_stage("fast", options, found)
    assert told.decision is StageDecision.CHANGES
    assert told.facts[0].text == "drop-duplicates: about 9 tokens saved, without 2 messages, 1 result"
    left = context_stage("fast", options, Optimised(b"", unchanged="not_json"))
    assert (left.decision, left.facts[0].text) == (StageDecision.PASSES, "drop-duplicates: left as it is: not_json")
    assert context_stage("fast", options, Optimised(b"")).facts[0].text == "drop-duplicates: nothing is taken out"


def test_a_key_is_told_by_what_it_entitles_to() -> None:
    key = DataKey("default", "ci", b"\1" * 32, 0.0, routes=("a", "b"), networks=(read_network("10.0.0.0/8"),))
    told = authorize_stage("default", key, "", StageDecision.PASSES, is_halted=False)
    assert told.facts[1].about == "key ci"
    assert told.facts[1].text == ("may use a, b, never expires, from 10.0.0.0/8 alone; --from ADDRESS asks for one")
    gone = authorize_stage("default", replace(key, revoked_at=0.0), "", StageDecision.REFUSES, is_halted=True)
    assert gone.facts[0].values == (("halted", "true"),)
    assert dict(gone.facts[1].values)["revoked_at"] == "1970-01-01T00:00:00Z"
    assert "\\x01" not in repr(gone)


def candidate(name: str, place: int) -> ExplainedCandidate:
    rewrite = Rewrite("m", "big", "replaced", "/v1", (), (), (), ())
    return ExplainedCandidate(name, "openai", "https://a", place, rewrite=rewrite)


def test_the_price_of_whoever_is_asked_is_told_and_nobody_elses() -> None:
    prices = PriceTable(3, {("a", "big"): Price("a", "big", 2_000_000, 4_000_000, 1_000_000, request=NANO)})
    told = usage_stage("default", [candidate("a", 1), candidate("b", 2), candidate("c", 0)], prices)
    assert [each.about for each in told.facts] == ["account default", "price a/big", "price b/big"]
    assert told.facts[1].text == "2.00 in, 4.00 out for a million tokens, 1.00 a request, by prices of version 3"
    assert dict(told.facts[1].values)["cached_input"] == "1.00"
    assert told.facts[2].text == "unpriced, it costs nothing"


def test_attempts_settling_and_audit_are_told_in_short() -> None:
    told = attempts_stage([candidate("a", 1), candidate("b", 2), candidate("c", 0)], is_refused=False)
    assert (told.decision, told.facts[0].text) == (StageDecision.PASSES, "a is asked, then b; 1 passed over")
    assert attempts_stage([candidate("c", 0)], is_refused=True).facts[0].text == "nobody is asked; 1 passed over"
    assert settle_stage(["b"], is_refused=True).facts[0].text == "all is given back"
    assert settle_stage([], is_refused=False).decision is StageDecision.NOTHING
    assert [dict(each.values)["action"] for each in audit_stage(["policy.block"], "default").facts] == ["policy.block"]
