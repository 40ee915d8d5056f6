"""The top of the command line."""

import pkgutil
import subprocess
import sys

import click

import pointsman.cli
from pointsman.cli.main import cli


def test_every_command_is_the_one_of_its_module() -> None:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    assert found.keys() <= {each.name for each in pkgutil.iter_modules(pointsman.cli.__path__)}
    assert {name: command.name for name, command in found.items() if command is not None} == {
        name: name for name in found
    }
    assert cli.get_command(context, "main") is None


def test_a_command_loads_what_it_needs_and_no_other_command() -> None:
    code = (
        "import sys; from pointsman.cli.main import cli; cli(['usage', '--help'], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('pointsman.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.removeprefix("pointsman.cli.") for name in done.stderr.split()}
    assert loaded & {"usage", *cli.list_commands(click.Context(cli))} == {"usage"}
