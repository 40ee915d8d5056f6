"""Client commands, run in this process against some gateway; what they print is searched for canaries."""

from collections.abc import Mapping

from click.testing import CliRunner, Result

from pointsman.cli.main import cli
from tests.support import evidence


def run_client(
    gateway: str, *arguments: str, environ: Mapping[str, str | None] | None = None, stdin: str | None = None
) -> Result:
    """Run one command; an exception that is no exit is raised."""
    settings = {"POINTSMAN_GATEWAY": gateway, "XDG_DATA_HOME": "/nonexistent", **(environ or {})}
    result = CliRunner().invoke(cli, list(arguments), env=settings, input=stdin)
    evidence.keep("cli", result.output)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
