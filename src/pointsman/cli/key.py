"""`pointsman key`: what clients of the data listener show. A key is printed once, or written to a new file."""

import time
from typing import Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import key_json, key_rows
from pointsman.cli.show import output_option, show, show_json, show_lines, told
from pointsman.cli.shown_once import Kind, expires_option, new_file, out_option, show_secret, write_secret
from pointsman.core.data_key import INFERENCE, PERMISSIONS

_KIND = Kind("key", "key")


@click.group()
def key() -> None:
    """Keys for clients outside sandboxes: each opens the routes of its account on the data listener."""


@key.command()
@click.argument("name", metavar="[NAME]", default="")
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    type=click.Choice(PERMISSIONS),
    help=f"What it may do; again for more. Default: {INFERENCE}.",
)
@click.option("--route", "routes", multiple=True, metavar="ROUTE", help="The only route it may use; again for more.")
@click.option(
    "--from",
    "networks",
    multiple=True,
    metavar="NETWORK",
    help="The only network that its requests may come from, as 10.0.0.0/8; again for more.",
)
@click.option("--user", default="", metavar="NAME", help="Who has it: a label, shown with the key.")
@expires_option
@out_option
@output_option
@client_options
def create(access: Access, name: str, output: str, out: str | None, **wanted: Any) -> None:
    """Make a key and show it, this once.

    The key alone goes to standard output. What is kept of it is a digest. Without NAME it gets one.

    \b
    Examples:
      pointsman key create laptop --out laptop.key
      pointsman key create trial --route fast --expires 30d
      pointsman key create ci --from 10.0.0.0/8 --from 2001:db8::/32 --user ada
      pointsman key create ada --permission runners:manage --permission models:create --out ada.key
    """
    from pointsman.rpc.gen import control_pb2

    request = control_pb2.CreateKeyRequest(
        name=name,
        permissions=wanted["permissions"],
        routes=wanted["routes"],
        lifetime_secs=wanted["lifetime"],
        networks=wanted["networks"],
        user=wanted["user"],
    )
    with access.open() as gateway, new_file(out) as file:
        answer = gateway.call(gateway.control.CreateKey, request)
        if file is not None:
            write_secret(file, answer.secret, str(out), _KIND, answer.key.name)
    document = key_json(answer.key, time.time())
    if out is not None:
        show(output, [f"Wrote the key {told(answer.key.name)} to {told(out)}"], {**document, "file": out})
        return
    show_secret(_KIND, output, answer.secret, document, answer.key.expires_at_ms)


@key.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List keys, those that are revoked or expired among them."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        keys = gateway.call(gateway.control.ListKeys, control_pb2.ListKeysRequest()).keys
    now = time.time()
    if output == "json":
        show_json([key_json(each, now) for each in keys])
    else:
        show_lines(key_rows(keys, now) if keys else [f"No keys; {access.command('key create NAME')!r} makes one"])


@key.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def revoke(access: Access, name: str, output: str) -> None:
    """End a key. Requests that are being answered go on to their end; 'account halt' ends those, too.

    \b
    Example:
      pointsman key revoke laptop
    """
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        revoked = gateway.call(gateway.control.RevokeKey, control_pb2.RevokeKeyRequest(name=name)).revoked
    if not revoked:
        raise click.ClickException(
            f"no key {told(name)} that could be revoked; 'pointsman key list' shows them and their state"
        )
    show(output, [f"Revoked the key {told(name)}"], {"name": name, "revoked": True})
