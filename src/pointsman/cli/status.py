"""`pointsman status`: whether the gateway is there and well, and where its routes lead."""

import sys
from typing import TYPE_CHECKING, Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import route_json, route_rows
from pointsman.cli.show import block, heading, moment, output_option, show

if TYPE_CHECKING:
    from pointsman.rpc.gen.control_pb2 import GetStatusResponse

_UNWELL = 1
_HEALTH = {1: "healthy", 2: "degraded", 3: "unhealthy"}
_SERVING = ("healthy", "degraded")


@click.command()
@output_option
@client_options
def status(access: Access, output: str) -> None:
    """Say whether the gateway is well, and where its routes lead.

    A route with a problem cannot be used at present. Exits with 1 when the gateway is unhealthy or cannot be reached.
    """
    from pointsman.rpc.gen import control_pb2, openshell_pb2

    with access.open() as gateway:
        health = _HEALTH.get(gateway.call(gateway.openshell.Health, openshell_pb2.HealthRequest()).status, "unknown")
        answer = gateway.call(gateway.control.GetStatus, control_pb2.GetStatusRequest())
    url = access.address().url
    show(output, status_lines(url, health, access.account, answer), status_json(url, health, access.account, answer))
    if health not in _SERVING:
        click.echo(f"pointsman: the gateway at {url} says that it is {health}; its log says why", err=True)
        sys.exit(_UNWELL)


def status_lines(url: str, health: str, account: str, answer: "GetStatusResponse") -> list[str]:
    """The state in words."""
    lines = block(
        "Gateway:",
        (
            ("Address", url),
            ("Health", health),
            ("Version", answer.version),
            ("Store", answer.store),
            ("Started", moment(answer.started_at_ms) or "unknown"),
            ("Account", account),
            ("Providers", str(answer.providers)),
            ("Sandbox tokens", str(answer.sandbox_tokens)),
        ),
    )
    rows = route_rows(answer.routes) if answer.routes else ["None; 'pointsman inference set' makes the first"]
    return [*lines, "", heading("Routes:"), "", *(f"  {row}" for row in rows)]


def status_json(url: str, health: str, account: str, answer: "GetStatusResponse") -> dict[str, Any]:
    """The same in fields."""
    return {
        "gateway": url,
        "health": health,
        "version": answer.version,
        "store": answer.store,
        "started_at": moment(answer.started_at_ms),
        "account": account,
        "providers": answer.providers,
        "sandbox_tokens": answer.sandbox_tokens,
        "routes": [route_json(each) for each in answer.routes],
    }
