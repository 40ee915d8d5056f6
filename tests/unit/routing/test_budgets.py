"""Which budgets apply, what is reserved with them, and what a client hears of a refusal."""

import math
from dataclasses import replace

import pytest

from pointsman.core.attempts import Chain, Member
from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow, Charge
from pointsman.core.budget_window import Window
from pointsman.core.caller import KEY, Caller
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.money import NANO
from pointsman.core.price import NO_PRICES, Price, PriceTable, Tokens
from pointsman.core.runner_model import RunnerModel
from pointsman.routing.budgets import (
    Applying,
    Standing,
    Use,
    applying,
    dearest,
    told_refusal,
)

ALL = Budget("default", "all", BudgetScope.ACCOUNT, "", BudgetUnit.REQUESTS, 5, BudgetWindow.DAY, id="1")
EACH_KEY = replace(ALL, name="each", scope=BudgetScope.KEY, subject="*", unit=BudgetUnit.TOKENS, is_hard=False, id="2")
MONEY = replace(ALL, name="money", unit=BudgetUnit.MONEY, amount=NANO, id="3")
ADA = Caller("default", "ada", KEY)
USE = Use(1, Tokens(10, 20), 7)


def member(name: str, model: str) -> Member:
    return Member(name, Candidate("fast", parse_endpoint("http://a/v1"), model, (), provider=name))


PRICES = PriceTable(
    1,
    {
        ("a", "small"): Price("a", "small", 1000, 2000),
        ("a", "large"): Price("a", "large", 9000, 9000),
        ("b", "*"): Price("b", "*", 2000, 2000),
        ("runner:laptop", "qwen"): Price("runner:laptop", "qwen", 0, 0, request=4),
    },
)


def test_only_what_is_about_a_request_applies_under_its_callers_name() -> None:
    assert applying([ALL, EACH_KEY], ADA, "fast") == (Applying(ALL, ""), Applying(EACH_KEY, "ada"))
    assert applying([ALL, EACH_KEY], Caller("default"), "fast") == (Applying(ALL, ""),)
    assert applying([ALL], Caller("team"), "fast") == ()


def test_a_body_is_looked_at_only_where_more_than_requests_is_counted() -> None:
    assert not Standing((Applying(ALL, ""),)).counts_tokens
    assert Standing((Applying(ALL, ""), Applying(MONEY, ""))).counts_tokens


def test_each_budget_is_charged_in_its_unit_and_a_soft_one_has_no_limit() -> None:
    standing = Standing(applying([ALL, EACH_KEY, MONEY], ADA, "fast"))
    made = standing.charges(USE, 0, lambda kind, zone: Window(f"{kind} {zone}", 0, 9))
    assert made == [
        Charge("1", "", "day UTC", 9, 1, 5),
        Charge("2", "ada", "day UTC", 9, 30, None),
        Charge("3", "", "day UTC", 9, 7, NANO),
    ]
    assert standing.amounts(Use(1, Tokens(1, 1), 2)) == [1, 2, 2]


def test_windows_are_computed_anew_at_the_moment_when_the_first_is_over_and_when_the_clock_goes_back() -> None:
    standing = Standing(applying([ALL, replace(ALL, window=BudgetWindow.HOUR, id="4")], ADA, "fast"))
    asked: list[float] = []

    def charged(now: float) -> list[tuple[str, float]]:
        def window_of(kind: BudgetWindow, _: str) -> Window:
            asked.append(now)
            span = 100 if kind is BudgetWindow.DAY else 10
            since = now // span * span
            return Window(f"{since:g}", since, since + span)

        return [(each.window, each.ends_at) for each in standing.charges(USE, now, window_of)]

    assert charged(25) == charged(20) == charged(29.9) == [("0", 100), ("20", 30)]
    assert charged(30) == [("0", 100), ("30", 40)]
    assert charged(29.9) == [("0", 100), ("20", 30)]
    assert asked == [25, 25, 30, 30, 29.9, 29.9]


@pytest.mark.parametrize(
    ("members", "forwards", "cost"),
    [
        ([member("a", "small")], False, 50),
        ([member("a", "small"), member("b", "any")], False, 60),
        ([member("a", "small")], True, 270),
        ([member("c", "unpriced")], False, 0),
    ],
)
def test_of_a_chain_the_dearest_member_is_reserved(members: list[Member], forwards: bool, cost: int) -> None:
    chain = Chain("default", "fast", tuple(members), "in_order", forwards_model=forwards)
    assert dearest(chain, Tokens(10, 20), PRICES) == cost
    assert dearest(replace(chain, members=(), fallback=members[0]), Tokens(10, 20), NO_PRICES) == 0


def test_what_is_called_directly_and_runners_models_have_prices_too() -> None:
    direct = member("a", "large")
    assert dearest(direct, Tokens(1, 1), PRICES) == dearest(direct.candidate, Tokens(1, 1), PRICES) == 18
    candidate = Candidate("q", parse_endpoint("http://a/v1"), "qwen", (), provider="runner:laptop")
    assert dearest(RunnerModel("default", "r", "m", "http://a", candidate), Tokens(1, 1), PRICES) == 4


@pytest.mark.parametrize(
    ("budget", "asked", "retry_at", "told"),
    [
        (ALL, 1, 5.0, "the budget 'all' has no room for this request until THEN"),
        (ALL, 1, math.inf, "the budget 'all' has no room for this request; ask whoever runs this gateway for more"),
        (MONEY, NANO, 5.0, "no room for this request until THEN; a lower max_tokens may fit"),
        (
            MONEY,
            NANO + 1,
            5.0,
            "may come to 1.000000001 of money, and all of the budget 'money' is 1.00 of money",
        ),
        (replace(ALL, amount=0), 1, 5.0, "the budget 'all' has no room for any request; ask"),
    ],
)
def test_a_refusal_says_what_to_do(budget: Budget, asked: int, retry_at: float, told: str) -> None:
    assert told in told_refusal(budget, asked, retry_at, "THEN")
