"""`pointsman sandbox token`: what a sandbox shows to its gateway. A token is printed once, or written to a new file."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.lifetime import read_lifetime
from pointsman.cli.records import token_json, token_rows
from pointsman.cli.show import NotShown, moment, output_option, show, show_json, show_lines, told
from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.route import RESERVED_NAMES


@click.group()
def token() -> None:
    """Tokens of sandboxes: each may fetch its own routes, and nothing else."""


def _lifetime(_: click.Context, __: click.Parameter, value: str | None) -> int:
    try:
        return read_lifetime(value, time.time()) if value is not None else 0
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _own_route(_: click.Context, __: click.Parameter, value: str) -> str:
    if value == INFERENCE_LOCAL:
        return ""  # which is what a token without a route gets
    if value in RESERVED_NAMES:
        raise click.BadParameter(f"{value} is not for the command inside; name a route of 'pointsman route create'")
    return value


@token.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--route",
    "own_route",
    default="",
    callback=_own_route,
    metavar="ROUTE",
    help="Where inference.local leads for this sandbox. Default: where it leads for all.",
)
@click.option(
    "--expires",
    "lifetime",
    callback=_lifetime,
    metavar="WHEN",
    help="30d, 12h, 90m, or a date: 2031-12-31 (UTC). Default: never.",
)
@click.option("--out", metavar="FILE", help="Write it to FILE, which must not exist yet, for its owner's eyes only.")
@output_option
@client_options
def create(access: Access, name: str, output: str, out: str | None, **wanted: str | int) -> None:
    """Make a token and show it, this once.

    The token alone goes to standard output. What is kept of it is a digest.

    \b
    Examples:
      pointsman sandbox token create ci --out ci.token
      pointsman sandbox token create trial --route cheap --expires 12h --out trial.token
    """
    from pointsman.rpc.gen import control_pb2

    request = control_pb2.CreateSandboxTokenRequest(
        name=name, route=str(wanted["own_route"]), lifetime_secs=int(wanted["lifetime"])
    )
    with access.open() as gateway, _new_file(out) as file:
        answer = gateway.call(gateway.control.CreateSandboxToken, request)
        if file is not None:
            _write(file, answer.token, f"--out {told(str(out))}", name)
    document = token_json(answer.sandbox_token, time.time())
    if out is not None:
        show(output, [f"Wrote the token of {told(name)} to {told(out)}"], {**document, "file": out})
        return
    try:
        show(output, [answer.token], {**document, "token": answer.token})
    except NotShown as error:
        raise click.ClickException(_lost(str(error), name)) from None
    if output == "text":
        end = moment(answer.sandbox_token.expires_at_ms)
        how_long = f"expires {end}" if end else "never expires"
        click.echo(
            f"pointsman: the token of {told(name)}, shown only now; it {how_long}, and "
            f"'pointsman sandbox token revoke {told(name)}' ends it",
            err=True,
        )


@contextlib.contextmanager
def _new_file(path: str | None) -> Iterator[IO[str] | None]:
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


def _write(file: IO[str], value: str, option: str, name: str) -> None:
    try:
        file.write(f"{value}\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise click.ClickException(_lost(f"{option}: {(error.strerror or 'failed').lower()}", name)) from None


def _lost(problem: str, name: str) -> str:
    return f"{problem}; nobody has the token: 'pointsman sandbox token revoke {told(name)}', then make another"


@token.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List tokens, those that are revoked or expired among them."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        request = control_pb2.ListSandboxTokensRequest()
        tokens = gateway.call(gateway.control.ListSandboxTokens, request).sandbox_tokens
    now = time.time()
    if output == "json":
        show_json([token_json(each, now) for each in tokens])
    else:
        empty = ["No sandbox tokens; 'pointsman sandbox token create NAME' makes one"]
        show_lines(token_rows(tokens, now) if tokens else empty)


@token.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def revoke(access: Access, name: str, output: str) -> None:
    """End a token.

    A sandbox that runs keeps the routes and keys it has; it gets no changes any more, and nothing when it is started
    again. To stop it at once, end it, or change the provider's key at the provider.
    """
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        request = control_pb2.RevokeSandboxTokenRequest(name=name)
        revoked = gateway.call(gateway.control.RevokeSandboxToken, request).revoked
    if not revoked:
        raise click.ClickException(
            f"no token {told(name)} that could be revoked; 'pointsman sandbox token list' shows them and their state"
        )
    show(output, [f"Revoked the token of {told(name)}"], {"name": name, "revoked": True})
