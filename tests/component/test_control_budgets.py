"""Budgets over gRPC, by command and over HTTP, on a real store and a real ledger."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pointsman.core.account import Account
from pointsman.core.budget import MOST_BUDGETS, Budget, Charge, Hold
from pointsman.core.budget_window import window_at
from pointsman.core.control_errors import AlreadyExists, InvalidRequest, NotFound, NotPossibleNow
from pointsman.core.time_zones import zone_named
from pointsman.gateway.budgets import BudgetDraft, BudgetEdit
from pointsman.gateway.keys import KeyDraft
from pointsman.gateway.prices import PriceDraft
from tests.support.client_commands import run_client
from tests.support.control_plane import ADMIN_TOKEN, RunningControlPlane, control_plane
from tests.support.rest import RunningApi, rest_api

DRAFT = BudgetDraft("team-month", "account", "", "money", "50", "month", "Europe/Budapest")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningControlPlane]:
    with control_plane(tmp_path) as running:
        running.provide()
        running.point("fast")
        yield running


@pytest.fixture
def api(tmp_path: Path) -> Iterator[RunningApi]:
    with rest_api(tmp_path) as api:
        yield api


def created(running: RunningControlPlane, **changes: Any) -> Budget:
    return running.call(running.control.budgets.create("default", replace(DRAFT, **changes)))


def use(running: RunningControlPlane, budget: Budget, amount: int, subject: str = "") -> None:
    """As a request does that is under way now."""
    now = running.control.clock()
    window = window_at(budget.window, zone_named(budget.time_zone), now)
    charge = Charge(budget.id, subject, window.name, window.end, amount, budget.amount)
    hold = running.call(running.budgets.reserve(budget.account, [charge], now))
    assert isinstance(hold, Hold)


def command(running: RunningControlPlane, tmp_path: Path, *arguments: str) -> Result:
    token_file = tmp_path / "admin.token"
    if not token_file.exists():
        token_file.touch(0o600)
        token_file.write_text(ADMIN_TOKEN)
    return run_client(f"http://127.0.0.1:{running.port}", "budget", *arguments, "--token-file", str(token_file))


def done(running: RunningControlPlane, tmp_path: Path, *arguments: str) -> str:
    result = command(running, tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "a b"}, "cannot be the budget's name"),
        ({"scope": "team"}, "there is no scope 'team'; there are account, key, route, sandbox"),
        ({"subject": "x"}, "leave the name out"),
        ({"scope": "key"}, "name the key that it is for, or \\* for each"),
        ({"unit": "cents"}, "there is no unit"),
        ({"window": "year"}, "there is no window 'year'; there are minute, hour, day, month, total"),
        ({"amount": "-1"}, "is not between 0 and"),
        ({"amount": "1000000000.1"}, "is not between 0 and 1000000000.00"),
        ({"amount": "0.0000000001"}, "finer than a billionth"),
        ({"amount": "1.5", "unit": "tokens"}, "'1.5' is no whole number"),
        ({"amount": "", "unit": "requests"}, "is no whole number"),
        ({"time_zone": "Europe/Budapestt"}, "did you mean Europe/Budapest?"),
    ],
)
def test_what_cannot_be_a_budget_is_refused_with_the_next_step(
    running: RunningControlPlane, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        created(running, **changes)
    assert running.call(running.control.budgets.list("default")) == []


def test_whom_a_budget_is_for_must_exist_unless_it_is_for_each(running: RunningControlPlane) -> None:
    for scope, what in (("key", "key"), ("route", "route"), ("sandbox", "sandbox token")):
        with pytest.raises(NotFound, match=f"there is no {what} 'nobody'; see: pointsman"):
            created(running, scope=scope, subject="nobody")
        created(running, name=f"each-{scope}", scope=scope, subject="*")
    running.call(running.control.keys.create("default", KeyDraft("ada")))
    running.token("box")
    for scope, name in (("key", "ada"), ("route", "fast"), ("route", "inference.local"), ("sandbox", "box")):
        assert created(running, name=f"{scope}-{name}", scope=scope, subject=name).subject == name


def test_a_name_is_taken_once_and_an_account_has_a_bound(running: RunningControlPlane) -> None:
    created(running)
    with pytest.raises(AlreadyExists):
        created(running)
    for number in range(MOST_BUDGETS - 1):
        created(running, name=f"b{number}")
    with pytest.raises(NotPossibleNow, match=f"the account has {MOST_BUDGETS} budgets"):
        created(running, name="one-more")


def test_a_change_keeps_what_was_used_and_a_new_budget_of_the_name_begins_at_nothing(
    running: RunningControlPlane,
) -> None:
    budgets = running.control.budgets
    first = created(running, unit="requests", amount="10", window="total")
    use(running, first, 4)
    changed = running.call(budgets.update("default", "team-month", BudgetEdit("3", is_soft=True)))
    assert changed == replace(first, amount=3, is_hard=False, version=2)
    [state] = running.call(budgets.status("default"))
    assert (state.used, state.left) == (4, 0)
    assert running.call(budgets.delete("default", "team-month"))
    assert not running.call(budgets.delete("default", "team-month"))
    for operation in (budgets.get, budgets.status):
        with pytest.raises(NotFound, match="see: pointsman budget list"):
            running.call(operation("default", "team-month"))
    created(running, unit="requests", amount="10", window="total")
    [state] = running.call(budgets.status("default", "team-month"))
    assert (state.used, state.left) == (0, 10)


def test_of_a_budget_for_each_everybody_who_used_it_is_told(running: RunningControlPlane) -> None:
    budget = created(running, scope="key", subject="*", unit="tokens", amount="100", window="day")
    states = running.call(running.control.budgets.status("default"))
    assert [(state.subject, state.used) for state in states] == [("*", 0)]
    for subject, amount in (("bob", 30), ("ada", 10), ("bob", 30)):
        use(running, budget, amount, subject)
    states = running.call(running.control.budgets.status("default", "team-month"))
    assert [(state.subject, state.used, state.left) for state in states] == [("ada", 10, 90), ("bob", 60, 40)]


def test_accounts_do_not_see_each_others_budgets(running: RunningControlPlane) -> None:
    assert isinstance(running.call(running.control.accounts.create("team")), Account)
    budgets = running.control.budgets
    running.call(budgets.create("team", DRAFT))
    assert running.call(budgets.list("default")) == []
    assert not running.call(budgets.delete("default", "team-month"))
    with pytest.raises(NotFound):
        running.call(budgets.update("default", "team-month", BudgetEdit("1")))


def test_commands_make_show_change_and_delete_budgets(running: RunningControlPlane, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        return done(running, tmp_path, *arguments)

    assert "budget create --help" in run("list")
    made = run("create", "team-month", "--account-wide", "--money", "50", "--window", "month")
    assert made == "Created budget team-month: 50.00 of money a month (UTC) for account\n"
    run("create", "each", "--key", "*", "--requests", "1000", "--window", "day", "--time-zone", "Europe/Budapest")
    run("create", "ever", "--route", "fast", "--tokens", "9", "--window", "total", "--soft")
    lines = run("list").splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["NAME", "FOR", "LIMIT", "KIND"],
        ["each", "key", "*", "1000", "requests", "a", "day", "(Europe/Budapest)", "hard"],
    ]
    assert "9 tokens in total" in lines[2]
    assert [each["name"] for each in json.loads(run("list", "-o", "json"))] == ["each", "ever", "team-month"]
    assert json.loads(run("get", "ever", "-o", "json")) == {
        "name": "ever", "account": "default", "scope": "route", "subject": "fast", "unit": "tokens", "amount": "9",
        "window": "total", "time_zone": "UTC", "soft": True, "version": 1,
    }  # fmt: skip
    assert "For: route fast" in run("get", "ever")
    assert "80.00 of money a month (UTC), soft" in run("update", "team-month", "--money", "80", "--soft")
    budget = running.call(running.control.budgets.get("default", "each"))
    use(running, budget, 7, "ada")
    status = json.loads(run("status", "each", "-o", "json"))
    assert [(each["subject"], each["used"], each["left"]) for each in status] == [("ada", "7", "993")]
    assert status[0]["resets_at"].endswith("00:00Z")
    rows = run("status").splitlines()
    assert rows[1].split()[:5] == ["each", "key", "ada", "7", "993"]
    assert rows[2].split()[-1] == "never"
    assert run("delete", "each") == "Deleted budget each\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("create", "b", "--account-wide", "--window", "day"), "--requests, --tokens or --money"),
        (("create", "b", "--requests", "1", "--tokens", "1", "--window", "day"), "--requests and --tokens are both"),
        (("create", "b", "--requests", "1", "--window", "day"), "say for whom, once"),
        (("create", "b", "--key", "a", "--route", "b", "--requests", "1", "--window", "day"), "say for whom, once"),
        (("create", "b", "--account-wide", "--requests", "x", "--window", "day"), "'x' is no whole number"),
        (("create", "b", "--key", "nobody", "--requests", "1", "--window", "day"), "there is no key 'nobody'"),
        (("update", "all"), "say what is to change"),
        (("update", "all", "--tokens", "5"), "counts requests; give --requests"),
        (("update", "none", "--soft"), "budget 'none' does not exist"),
        (("delete", "none"), "no budget none"),
        (("get", "none"), "pointsman budget list"),
        (("status", "none"), "pointsman budget list"),
    ],
)
def test_a_command_that_cannot_be_right_says_what_to_give(
    running: RunningControlPlane, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    done(running, tmp_path, "create", "all", "--account-wide", "--requests", "5", "--window", "day")
    result = command(running, tmp_path, *arguments)
    assert result.exit_code in (1, 2)
    assert problem in result.output


def test_over_http_a_budget_is_made_read_changed_and_deleted(api: RunningApi) -> None:
    body = {"name": "all", "scope": "account", "unit": "requests", "amount": "3", "window": "total"}
    made = api.post("/budgets", body)
    assert (made.status, made.headers["location"]) == (201, "/api/v1/budgets/all")
    assert made.json == {**body, "subject": "", "time_zone": "UTC", "soft": False, "version": 1}
    assert api.get("/budgets").json == {"budgets": [made.json]}
    assert api.get("/budgets/all").json == made.json
    changed = api.patch("/budgets/all", {"amount": "4"}).json
    assert changed == {**made.json, "amount": "4", "version": 2}
    state = {"budget": changed, "subject": "", "window": "", "used": "0", "left": "4", "resets_at": None}
    assert api.get("/budget-status").json == {"budgets": [state]}
    assert api.get("/budget-status/all").json == {"budgets": [state]}
    assert api.post("/budgets", body).status == 409
    assert api.patch("/budgets/all", {"amount": "many"}).status == 400
    assert api.post("/budgets", {**body, "amount": 3}).status == 400
    assert api.delete("/budgets/all").json == {"deleted": True}
    assert [api.get(path).status for path in ("/budgets/all", "/budget-status/all")] == [404, 404]
    assert api.delete("/budgets/all").status == 404


def test_a_budget_of_money_without_prices_is_made_and_the_next_step_is_told(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    limit = ("--account-wide", "--money", "5", "--window", "day")
    made = command(running, tmp_path, "create", "priceless", *limit)
    assert (made.exit_code, "no prices, so nothing costs anything; pointsman price set" in made.stderr) == (0, True)
    running.call(running.control.prices.set("default", PriceDraft("mocked", "*", "1", "2")))
    assert command(running, tmp_path, "create", "priced", *limit).stderr == ""
