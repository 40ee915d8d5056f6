"""`pointsman route`: routes with names of the operator's own, which a sandbox's token may carry."""

from typing import Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import change_json, change_lines, route_json, route_lines, route_rows
from pointsman.cli.route_target import (
    chain_options,
    check_target,
    edit_options,
    set_route,
    target_options,
    update_route,
)
from pointsman.cli.show import output_option, show, show_json, show_lines, told
from pointsman.core.candidate import SANDBOX_SYSTEM
from pointsman.core.route import RESERVED_NAMES


@click.group()
def route() -> None:
    """Named routes. 'pointsman sandbox token create NAME --route ROUTE' gives one to a sandbox of its own."""


def _not_reserved(context: click.Context, _: click.Parameter, name: str) -> str:
    if name in RESERVED_NAMES:
        flag = " --system" if name == SANDBOX_SYSTEM else ""
        raise click.BadParameter(f"{name} is every sandbox's; use 'pointsman inference {_twin(context)}{flag}'")
    return name


def _twin(context: click.Context) -> str:
    return "set" if context.info_name == "create" else str(context.info_name)


_name_argument = click.argument("name", metavar="NAME", callback=_not_reserved)


@route.command()
@_name_argument
@target_options
@chain_options
@output_option
@client_options
def create(access: Access, name: str, output: str, **target: Any) -> None:
    """Make a route to a provider and a model, or a chain of several. All are verified first.

    \b
    Examples:
      pointsman route create cheap --provider work --model gpt-4o-mini
      pointsman route create fast --candidate groq --candidate work=gpt-4o-mini --strategy least_used --fallback local
    """
    check_target(name, target)
    with access.open() as gateway:
        change = set_route(gateway, name, target, create_only=True)
    show(output, change_lines(change, "created"), change_json(change))


@route.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def get(access: Access, name: str, output: str) -> None:
    """Show one route."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        found = gateway.call(gateway.control.GetRoute, control_pb2.GetRouteRequest(name=name))
    show(output, route_lines(found.name, found), route_json(found))


@route.command(name="list")
@output_option
@client_options
def list_(access: Access, output: str) -> None:
    """List all routes, inference.local and sandbox-system among them."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        routes = gateway.call(gateway.control.ListRoutes, control_pb2.ListRoutesRequest()).routes
    if output == "json":
        show_json([route_json(each) for each in routes])
    else:
        show_lines(route_rows(routes) if routes else ["No routes; 'pointsman inference set' makes the first"])


@route.command()
@_name_argument
@edit_options
@chain_options
@output_option
@client_options
def update(access: Access, name: str, output: str, **edit: Any) -> None:
    """Change what is named; the rest stays. It is verified again first.

    The candidates of a chain are replaced together. --fallback '' takes the fallback away; with --context none
    nothing is taken out of conversations any more.

    \b
    Examples:
      pointsman route update cheap --model gpt-4o
      pointsman route update cheap --context drop-duplicates,most-tokens=60000
    """
    update_route(access, name, edit, output)


@route.command()
@_name_argument
@output_option
@client_options
def delete(access: Access, name: str, output: str) -> None:
    """Delete a route."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        deleted = gateway.call(gateway.control.DeleteRoute, control_pb2.DeleteRouteRequest(name=name)).deleted
    if not deleted:
        raise click.ClickException(f"there is no route {told(name)}; 'pointsman route list' names them")
    show(output, [f"Deleted route {told(name)}"], {"name": name, "deleted": True})
