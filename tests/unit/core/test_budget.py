"""Whose requests a budget is about."""

import pytest

from pointsman.core.budget import Budget, BudgetScope, BudgetUnit, BudgetWindow
from pointsman.core.caller import KEY, SANDBOX_TOKEN, Caller


def budget(scope: BudgetScope, subject: str) -> Budget:
    return Budget("team", "b", scope, subject, BudgetUnit.REQUESTS, 1, BudgetWindow.DAY)


@pytest.mark.parametrize(
    ("scope", "subject", "caller", "counted"),
    [
        (BudgetScope.ACCOUNT, "", Caller("team"), ""),
        (BudgetScope.ACCOUNT, "", Caller("other"), None),
        (BudgetScope.KEY, "ada", Caller("team", "ada", KEY), "ada"),
        (BudgetScope.KEY, "ada", Caller("team", "ada", SANDBOX_TOKEN), None),
        (BudgetScope.KEY, "ada", Caller("team", "bob", KEY), None),
        (BudgetScope.KEY, "*", Caller("team", "bob", KEY), "bob"),
        (BudgetScope.KEY, "*", Caller("team"), None),
        (BudgetScope.SANDBOX, "*", Caller("team", "box", SANDBOX_TOKEN), "box"),
        (BudgetScope.SANDBOX, "box", Caller("team", "box", KEY), None),
        (BudgetScope.ROUTE, "fast", Caller("team"), "fast"),
        (BudgetScope.ROUTE, "*", Caller("team"), "fast"),
        (BudgetScope.ROUTE, "slow", Caller("team"), None),
    ],
)
def test_a_request_counts_for_the_budgets_that_are_about_it(
    scope: BudgetScope, subject: str, caller: Caller, counted: str | None
) -> None:
    assert budget(scope, subject).subject_of(caller, "fast") == counted
