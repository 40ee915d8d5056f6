"""`pointsman budget`: how much may be used, by whom, in which span of time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pointsman.cli.call import Access, Gateway, client_options
from pointsman.cli.show import block, moment, output_option, show, show_json, show_lines, told
from pointsman.cli.table import table
from pointsman.core.budget import BudgetScope, BudgetUnit, BudgetWindow

if TYPE_CHECKING:
    from pointsman.rpc.gen.budgets_pb2 import Budget, BudgetStatus

_HEAD = ("NAME", "FOR", "LIMIT", "KIND")
_STATUS_HEAD = ("NAME", "FOR", "USED", "LEFT", "OF", "RESETS")


@click.group()
def budget() -> None:
    """Budgets: how much an account, a key, a route or a sandbox may use.

    A hard budget refuses what it has no room for: 429, insufficient_quota. A soft one is told of in the gateway's log
    when it is used up, once in each window.
    """


_amounts = {
    BudgetUnit.REQUESTS: click.option("--requests", metavar="N", help="So many requests."),
    BudgetUnit.TOKENS: click.option("--tokens", metavar="N", help="So many tokens, of prompts and answers together."),
    BudgetUnit.MONEY: click.option("--money", metavar="AMOUNT", help="So much money, at the account's prices."),
}


def _amount_options(command: Any) -> Any:
    for option in reversed(_amounts.values()):
        command = option(command)
    return command


def _amount(wanted: dict[str, Any]) -> tuple[str, str]:
    """Unit and amount; empty for none. Raises UsageError for more than one."""
    given = [(unit.value, wanted[unit.value]) for unit in BudgetUnit if wanted[unit.value] is not None]
    if len(given) > 1:
        both = " and ".join(f"--{unit}" for unit, _ in given)
        raise click.UsageError(f"{both} are both given; a budget has one of them, make another for the other")
    return given[0] if given else ("", "")


@budget.command()
@click.argument("name", metavar="NAME")
@_amount_options
@click.option(
    "--window", type=click.Choice([each.value for each in BudgetWindow]), required=True, help="In which span."
)
@click.option("--account-wide", is_flag=True, help="For all of the account together.")
@click.option("--key", metavar="KEY", help="For a key of the data listener, or '*' for each by itself.")
@click.option("--route", metavar="ROUTE", help="For a route, or '*' for each by itself.")
@click.option("--sandbox", metavar="TOKEN", help="For a sandbox's token by name, or '*' for each by itself.")
@click.option("--soft", is_flag=True, help="Tell of it when it is used up, and refuse nothing.")
@click.option("--time-zone", metavar="ZONE", default="", help="Where its days and months begin. Default: UTC.")
@output_option
@client_options
def create(access: Access, name: str, output: str, **wanted: Any) -> None:
    """Make a budget.

    \b
    Examples:
      pointsman budget create team-month --account-wide --money 50 --window month
      pointsman budget create each-key --key '*' --requests 1000 --window day --time-zone Europe/Budapest
      pointsman budget create box-tokens --sandbox box --tokens 200000 --window total
      pointsman budget create watch-fast --route fast --requests 100 --window hour --soft
    """
    from pointsman.rpc.gen import budgets_pb2

    unit, amount = _amount(wanted)
    if not unit:
        raise click.UsageError("say how much: --requests, --tokens or --money")
    scope, subject = _scope(wanted)
    request = budgets_pb2.CreateBudgetRequest(
        name=name,
        scope=scope,
        subject=subject,
        unit=unit,
        amount=amount,
        window=wanted["window"],
        time_zone=wanted["time_zone"],
        soft=wanted["soft"],
    )
    with access.open() as gateway:
        made = gateway.call(gateway.budgets.CreateBudget, request)
        if unit == BudgetUnit.MONEY:
            _warn_of_no_prices(access, gateway)
    show(output, [f"Created budget {told(made.name)}: {told(_limit(made))} for {told(_whom(made))}"], _json(made))


def _warn_of_no_prices(access: Access, gateway: Gateway) -> None:
    """Such a budget never ends, and nobody would find out before the bill."""
    from pointsman.rpc.gen import usage_pb2

    if not gateway.call(gateway.prices.ListPrices, usage_pb2.ListPricesRequest()).prices:
        step = access.command("price set PROVIDER --input-price N --output-price N")
        click.echo(f"pointsman: warning: this account has no prices, so nothing costs anything; {step}", err=True)


def _scope(wanted: dict[str, Any]) -> tuple[str, str]:
    named = [each for each in BudgetScope if each is not BudgetScope.ACCOUNT and wanted[each.value] is not None]
    given = [*named, *([BudgetScope.ACCOUNT] if wanted["account_wide"] else [])]
    if len(given) != 1:
        raise click.UsageError("say for whom, once: --account-wide, --key, --route or --sandbox")
    return given[0].value, wanted[named[0].value] if named else ""


@budget.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List budgets. 'pointsman budget status' tells what was used of them."""
    from pointsman.rpc.gen import budgets_pb2

    with access.open() as gateway:
        budgets = gateway.call(gateway.budgets.ListBudgets, budgets_pb2.ListBudgetsRequest()).budgets
    if output == "json":
        show_json([_json(each) for each in budgets])
    else:
        rows = [(told(each.name), told(_whom(each)), told(_limit(each)), _kind(each)) for each in budgets]
        show_lines(
            table(_HEAD, rows)
            if rows
            else [f"No budgets of account {access.account}; 'pointsman budget create --help' shows how"]
        )


@budget.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def get(access: Access, name: str, output: str) -> None:
    """Show a budget."""
    from pointsman.rpc.gen import budgets_pb2

    with access.open() as gateway:
        found = gateway.call(gateway.budgets.GetBudget, budgets_pb2.GetBudgetRequest(name=name))
    show(output, block("Budget:", _pairs(found)), _json(found))


@budget.command()
@click.argument("name", metavar="NAME")
@_amount_options
@click.option("--soft/--hard", default=None, help="Tell of it, or refuse, when it is used up.")
@click.option("--time-zone", metavar="ZONE", help="Where its days and months begin; the current ones are counted anew.")
@output_option
@client_options
def update(access: Access, name: str, output: str, **wanted: Any) -> None:
    """Change a budget. What was used of it stays counted.

    For another unit, window, or for somebody else, make another budget.

    \b
    Examples:
      pointsman budget update team-month --money 80
      pointsman budget update watch-fast --hard
    """
    from pointsman.rpc.gen import budgets_pb2

    unit, amount = _amount(wanted)
    changes = {"amount": amount or None, "soft": wanted["soft"], "time_zone": wanted["time_zone"]}
    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        raise click.UsageError("say what is to change: see pointsman budget update --help")
    with access.open() as gateway:
        if unit:
            found = gateway.call(gateway.budgets.GetBudget, budgets_pb2.GetBudgetRequest(name=name))
            if found.unit != unit:
                raise click.UsageError(f"budget {told(name)} counts {found.unit}; give --{found.unit}")
        changed = gateway.call(gateway.budgets.UpdateBudget, budgets_pb2.UpdateBudgetRequest(name=name, **given))
    show(output, [f"Changed budget {told(name)}: {told(_limit(changed))}, {_kind(changed)}"], _json(changed))


@budget.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def delete(access: Access, name: str, output: str) -> None:
    """Delete a budget. What was used of it is forgotten.

    \b
    Example:
      pointsman budget delete box-tokens
    """
    from pointsman.rpc.gen import budgets_pb2

    with access.open() as gateway:
        deleted = gateway.call(gateway.budgets.DeleteBudget, budgets_pb2.DeleteBudgetRequest(name=name)).deleted
    if not deleted:
        raise click.ClickException(f"no budget {told(name)}; 'pointsman budget list' shows them")
    show(output, [f"Deleted budget {told(name)}"], {"name": name, "deleted": True})


@budget.command()
@click.argument("name", metavar="[NAME]", default="")
@output_option
@client_options
def status(access: Access, name: str, output: str) -> None:
    """What was used of each budget in its current window, what is left, and when it begins anew.

    What requests that are under way may come to counts as used.

    \b
    Examples:
      pointsman budget status
      pointsman budget status team-month -o json
    """
    from pointsman.rpc.gen import budgets_pb2

    with access.open() as gateway:
        request = budgets_pb2.GetBudgetStatusRequest(name=name)
        states = gateway.call(gateway.budgets.GetBudgetStatus, request).budgets
    if output == "json":
        show_json([_state_json(each) for each in states])
    else:
        rows = [_state_row(each) for each in states]
        show_lines(
            table(_STATUS_HEAD, rows)
            if rows
            else [f"No budgets of account {access.account}; 'pointsman budget create --help' shows how"]
        )


def _whom(made: "Budget", subject: str = "") -> str:
    return made.scope if made.scope == BudgetScope.ACCOUNT else f"{made.scope} {subject or made.subject}"


def _limit(made: "Budget") -> str:
    amount = f"{made.amount} {'of ' if made.unit == BudgetUnit.MONEY else ''}{made.unit}"
    if made.window == BudgetWindow.TOTAL:
        return f"{amount} in total"
    return f"{amount} {'an' if made.window == BudgetWindow.HOUR else 'a'} {made.window} ({made.time_zone})"


def _kind(made: "Budget") -> str:
    return "soft" if made.soft else "hard"


def _pairs(made: "Budget") -> Sequence[tuple[str, str]]:
    return [
        ("Name", made.name),
        ("For", _whom(made)),
        ("Limit", _limit(made)),
        ("Kind", _kind(made)),
        ("Version", str(made.version)),
    ]


def _json(made: "Budget") -> dict[str, Any]:
    names = ("name", "account", "scope", "subject", "unit", "amount", "window", "time_zone", "soft", "version")
    return {name: getattr(made, name) for name in names}


def _state_row(state: "BudgetStatus") -> tuple[str, ...]:
    made = state.budget
    of_whom, reset = _whom(made, state.subject), moment(state.resets_at_ms) or "never"
    return (told(made.name), told(of_whom), state.used, state.left, told(_limit(made)), reset)


def _state_json(state: "BudgetStatus") -> dict[str, Any]:
    return {
        **_json(state.budget),
        "subject": state.subject,
        "window_name": state.window,
        "used": state.used,
        "left": state.left,
        "resets_at": moment(state.resets_at_ms),
    }
