"""The `pointsman` command."""

import sys

import click

from pointsman.cli.commands import Commands
from pointsman.core.version import VERSION

_MODULES = (
    "account",
    "audit",
    "budget",
    "doctor",
    "explain",
    "gateway",
    "inference",
    "key",
    "policy",
    "price",
    "provider",
    "receipt",
    "route",
    "runner",
    "sandbox",
    "status",
    "usage",
)


@click.group(cls=Commands, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]})
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
