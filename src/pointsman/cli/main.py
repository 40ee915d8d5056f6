"""The `pointsman` command."""

import sys

import click

from pointsman.cli.account import account
from pointsman.cli.audit import audit
from pointsman.cli.budget import budget
from pointsman.cli.commands import Commands
from pointsman.cli.doctor import doctor
from pointsman.cli.explain import explain
from pointsman.cli.gateway import gateway
from pointsman.cli.inference import inference
from pointsman.cli.key import key
from pointsman.cli.policy import policy
from pointsman.cli.price import price
from pointsman.cli.provider import provider
from pointsman.cli.receipt import receipt
from pointsman.cli.route import route
from pointsman.cli.runner import runner
from pointsman.cli.sandbox import sandbox
from pointsman.cli.status import status
from pointsman.cli.token import token
from pointsman.cli.usage import usage
from pointsman.core.version import VERSION

_FAILED = 1


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="pointsman")
def cli() -> None:
    """Pointsman routes the inference of sandboxed agents through one door, https://inference.local.

    \b
    Try it, with a model from a file and no key at all:
      pointsman sandbox run --inference-routes routes.yaml -- python agent.py

    \b
    where routes.yaml is:
      routes:
        - route: inference.local
          endpoint: gguf:///path/to/model.gguf

    \b
    For many sandboxes, a gateway, and the same agent behind it:
      pointsman gateway
      pointsman provider create --name work --type openai --from-existing
      pointsman inference set --provider work --model gpt-4o-mini
      pointsman sandbox token create agents --out ~/agents.token
      pointsman sandbox run --gateway http://127.0.0.1:8782 --token-file ~/agents.token -- python agent.py
    """


cli.add_command(doctor)
cli.add_command(explain)
cli.add_command(gateway)
cli.add_command(sandbox)
cli.add_command(account)
cli.add_command(audit)
cli.add_command(budget)
cli.add_command(inference)
cli.add_command(key)
cli.add_command(policy)
cli.add_command(price)
cli.add_command(provider)
cli.add_command(receipt)
cli.add_command(route)
cli.add_command(runner)
cli.add_command(status)
cli.add_command(usage)
sandbox.add_command(token)


def main() -> None:
    """Entry point of the console script."""
    try:
        cli.main(prog_name="pointsman", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"pointsman: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
