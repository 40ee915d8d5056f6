"""`pointsman sandbox routes`: looking at route files before anything uses them."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from pointsman.cli.table import table
from pointsman.config.problems import Problem
from pointsman.config.routes_file import CheckedRoute, RouteFileCheck, check_route_data, check_route_file
from pointsman.config.yaml_positions import LARGEST_TEXT

_PROBLEMS = 1
_STANDARD_INPUT = "-"
_HEAD = ("LINE", "ROUTE", "ENDPOINT", "MODEL", "DIALECTS", "KEY", "TIMEOUT")


@click.group(name="routes")
def route_files() -> None:
    """Look at route files."""


@route_files.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def check(output: str, files: tuple[str, ...]) -> None:
    """Say everything that is wrong with route files, or show the routes of good ones.

    Variables that api_key_env names must be set here as they will be where the file is used. '-' is standard input.
    Nothing is contacted; 'pointsman doctor --inference-routes FILE' does that. Exits with 1 when there are problems.
    """
    checks = [_check(file) for file in files]
    if output == "json":
        document = {"ok": not any(each.problems for each in checks), "files": [_as_json(each) for each in checks]}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
    else:
        for number, each in enumerate(checks):
            click.echo(("\n" if number else "") + "\n".join(_as_text(each)))
    sys.exit(_PROBLEMS if any(each.problems for each in checks) else 0)


def _check(file: str) -> RouteFileCheck:
    if file != _STANDARD_INPUT:
        return check_route_file(file, os.environ)
    return check_route_data("<stdin>", sys.stdin.buffer.read(LARGEST_TEXT + 1), os.environ, Path.cwd())


def _as_text(check: RouteFileCheck) -> list[str]:
    lines = [problem.describe(check.name) for problem in check.problems]
    lines += [f"warning: {warning.describe(check.name)}" for warning in check.warnings]
    if check.problems:
        count = len(check.problems)
        return [*lines, f"{check.name}: {count} problem{'s' if count > 1 else ''}"]
    if not check.routes:
        return [*lines, f"{check.name}: ok, without a route: every request is answered 503 until one is added"]
    return [*lines, f"{check.name}: ok", *table(_HEAD, [_row(each) for each in check.routes])]


def _row(route: CheckedRoute) -> Sequence[str]:
    candidate = route.candidate
    return (
        str(route.line),
        candidate.route,
        candidate.endpoint.told,
        candidate.model,
        ",".join(candidate.protocols),
        route.key_source or "-",
        f"{candidate.timeout_seconds:g} s" if candidate.timeout_seconds else "default",
    )


def _as_json(check: RouteFileCheck) -> dict[str, Any]:
    return {
        "file": check.name,
        "ok": not check.problems,
        "problems": [_problem(each) for each in check.problems],
        "warnings": [_problem(each) for each in check.warnings],
        "routes": [
            {
                "line": each.line,
                "route": each.candidate.route,
                "endpoint": each.candidate.endpoint.told,
                "model": each.candidate.model,
                "dialects": each.candidate.protocols,
                "key": each.key_source,
                "timeout_seconds": each.candidate.timeout_seconds,
            }
            for each in check.routes
        ],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "line": problem.line,
        "field": problem.field,
        "reason": problem.reason,
        "next_step": problem.next_step,
    }
