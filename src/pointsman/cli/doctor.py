"""`pointsman doctor`: what was found, for people and for programs."""

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pointsman.proxy.memory import keep_memory_private

if TYPE_CHECKING:
    from pointsman.config.routes_file import RouteFileCheck

_NEEDS_MENDING = 1
_QUIET_SECONDS = 2.0
"""Whoever waits longer than this on a terminal is told how far it is."""
_ROUTES_HELP = "Also see whether the hosts that FILE names can be reached. No key and no request is sent to them."


@click.command()
@click.option("--inference-routes", "routes", metavar="FILE", help=_ROUTES_HELP)
@click.option(
    "--inside/--outside",
    default=None,
    help="Whether this is a sandbox. Default: by its proxy variables, certificates and network.",
)
@click.option(
    "--timeout", type=click.FloatRange(1, 600), default=20, show_default=True, help="Seconds that a request may take."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@click.argument("clients", nargs=-1, metavar="[CLIENT]...")
def doctor(routes: str | None, inside: bool | None, timeout: float, output: str, clients: tuple[str, ...]) -> None:
    """Say which clients use the door and trust it, and what to mend.

    \b
    Each client on PATH makes one real request; a mend is tried before it is advised.
      pointsman doctor                                    what a sandbox on this host would meet
      pointsman sandbox run … -- pointsman doctor         what is so inside one
      pointsman doctor curl openai                        only these clients or libraries
      pointsman doctor --inference-routes routes.yaml     and the hosts behind the routes

    Outside a sandbox the requests go to a throwaway door on loopback and to nothing else. Exits with 1 when
    something needs mending.
    """
    from pointsman.cli.doctor_report import as_json, as_text
    from pointsman.proxy.process import run
    from pointsman.sandbox.doctor.diagnose import Task, diagnose

    if routes and inside:
        raise click.UsageError("--inference-routes belongs outside: from inside a sandbox no host can be reached")
    keep_memory_private()  # the programs that it asks run as the same user, and its environment may hold keys
    task = Task(dict(os.environ), os.getcwd(), inside, clients, seconds=timeout)
    if routes:
        check = _check(routes)
        task = replace(task, candidates=check.candidates, key_variables=check.key_variables)

    async def main() -> int:
        progress = _Progress()
        try:
            diagnosis = await diagnose(task, progress.tell)
        finally:
            progress.clear()
        click.echo(as_json(diagnosis) if output == "json" else "\n".join(as_text(diagnosis)))
        return 0 if diagnosis.is_good else _NEEDS_MENDING

    sys.exit(run(main()))


def _check(path: str) -> "RouteFileCheck":
    from pointsman.config.routes_file import check_route_file

    check = check_route_file(path, os.environ)
    if check.problems:
        raise click.ClickException("\n".join(problem.describe(path) for problem in check.problems))
    return check


class _Progress:
    """One line on a terminal that is overwritten."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = False

    def tell(self, done: int, count: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._started > _QUIET_SECONDS:
            self._shown = True
            click.echo(f"\rpointsman: {done} of {count} clients asked", err=True, nl=False)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
