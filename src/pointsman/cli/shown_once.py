"""A secret that a gateway shows once: on standard output, or in a new file for its owner's eyes only."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from pointsman.cli.lifetime import read_lifetime
from pointsman.cli.show import NotShown, moment, show, told


def _lifetime(_: click.Context, __: click.Parameter, value: str | None) -> int:
    try:
        return read_lifetime(value, time.time()) if value is not None else 0
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


expires_option = click.option(
    "--expires",
    "lifetime",
    callback=_lifetime,
    metavar="WHEN",
    help="30d, 12h, 90m, or a date: 2031-12-31 (UTC). Default: never.",
)
out_option = click.option(
    "--out", metavar="FILE", help="Write it to FILE, which must not exist yet, for its owner's eyes only."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """What sort of secret."""

    noun: str
    """`token` or `key`."""
    command: str
    """Where its commands are."""

    def revoke(self, name: str) -> str:
        """The command that ends one."""
        return f"'pointsman {self.command} revoke {told(name)}'"

    def lost(self, problem: str, name: str) -> str:
        """What to do about one that nobody has."""
        return f"{problem}; nobody has the {self.noun}: {self.revoke(name)}, then make another"


@contextlib.contextmanager
def new_file(path: str | None) -> Iterator[IO[str] | None]:
    """A file to write to, made before there is anything to write, and gone again if nothing comes of it."""
    if path is None:
        yield None
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "is not a path").lower()
        raise click.ClickException(f"--out {told(path)}: {reason}; choose a new file") from None
    with os.fdopen(descriptor, "w") as file:
        try:
            yield file
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise


def write_secret(file: IO[str], value: str, path: str, kind: Kind, name: str) -> None:
    """One line, on disk when this returns."""
    try:
        file.write(f"{value}\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        problem = f"--out {told(path)}: {(error.strerror or 'failed').lower()}"
        raise click.ClickException(kind.lost(problem, name)) from None


def show_secret(kind: Kind, output: str, value: str, document: dict[str, Any], expires_at_ms: int) -> None:
    """The secret alone on standard output, or within JSON; what it is, on standard error."""
    name = document["name"]
    try:
        show(output, [value], {**document, kind.noun: value})
    except NotShown as error:
        raise click.ClickException(kind.lost(str(error), name)) from None
    if output == "text":
        end = moment(expires_at_ms)
        how_long = f"it expires {end}" if end else "it never expires"
        click.echo(
            f"pointsman: the {kind.noun} of {told(name)}, shown only now; {how_long}, and {kind.revoke(name)} ends it",
            err=True,
        )
