"""`pointsman account`: who owns providers, routes and tokens."""

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import account_json, account_rows
from pointsman.cli.show import output_option, show, show_json, show_lines, told


@click.group()
def account() -> None:
    """Accounts keep the records of different people apart. 'default' exists from the start."""


@account.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def create(access: Access, name: str, output: str) -> None:
    """Make an account. Give --account NAME to other commands to work on its records.

    \b
    Examples:
      pointsman account create team
      pointsman key create ci --account team
    """
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        made = gateway.call(gateway.control.CreateAccount, control_pb2.CreateAccountRequest(name=name))
    show(
        output,
        [f"Created account {told(made.name)}", f"To work on its records: --account {told(made.name)}"],
        account_json(made),
    )


@account.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List accounts."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        accounts = gateway.call(gateway.control.ListAccounts, control_pb2.ListAccountsRequest()).accounts
    if output == "json":
        show_json([account_json(each) for each in accounts])
    else:
        show_lines(account_rows(accounts))


@account.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def halt(access: Access, name: str, output: str) -> None:
    """Stop serving an account at once: requests in progress end, new ones are refused with 403 account_halted.

    Its records stay as they are. What a running sandbox calls by itself, without the gateway, ends with its next poll,
    after at most 5 seconds.

    \b
    Examples:
      pointsman account halt team
      pointsman account resume team
    """
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        halted = gateway.call(gateway.control.HaltAccount, control_pb2.HaltAccountRequest(name=name))
    lines = [f"Halted account {told(halted.name)}", f"To serve it again: pointsman account resume {told(halted.name)}"]
    show(output, lines, account_json(halted))


@account.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def resume(access: Access, name: str, output: str) -> None:
    """Serve an account again that was halted."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        resumed = gateway.call(gateway.control.ResumeAccount, control_pb2.ResumeAccountRequest(name=name))
    show(output, [f"Resumed account {told(resumed.name)}"], account_json(resumed))
