"""`pointsman sandbox token`: what a sandbox shows to its gateway. A token is printed once, or written to a new file."""

import time

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import token_json, token_rows
from pointsman.cli.show import output_option, show, show_json, show_lines, told
from pointsman.cli.shown_once import Kind, expires_option, new_file, out_option, show_secret, write_secret
from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.core.route import RESERVED_NAMES

_KIND = Kind("token", "sandbox token")


@click.group()
def token() -> None:
    """Tokens of sandboxes: each may fetch its own routes, and nothing else."""


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
@expires_option
@out_option
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
    with access.open() as gateway, new_file(out) as file:
        answer = gateway.call(gateway.control.CreateSandboxToken, request)
        if file is not None:
            write_secret(file, answer.token, str(out), _KIND, name)
    document = token_json(answer.sandbox_token, time.time())
    if out is not None:
        show(output, [f"Wrote the token of {told(name)} to {told(out)}"], {**document, "file": out})
        return
    show_secret(_KIND, output, answer.token, document, answer.sandbox_token.expires_at_ms)


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
