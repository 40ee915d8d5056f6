"""`pointsman inference`: where `inference.local` leads for sandboxes, and their own system inference."""

from typing import Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.records import change_json, change_lines, noun, route_json, route_lines
from pointsman.cli.route_target import check_target, edit_options, set_route, target_options, update_route
from pointsman.cli.show import output_option, show
from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM

_system_option = click.option("--system", is_flag=True, help="The route sandbox-system instead of inference.local.")


def _name(system: bool) -> str:
    return SANDBOX_SYSTEM if system else INFERENCE_LOCAL


def _set_it(system: bool) -> str:
    flag = " --system" if system else ""
    return f"'pointsman inference set{flag} --provider NAME --model MODEL' sets it"


@click.group()
def inference() -> None:
    """Where https://inference.local leads. Running sandboxes follow within one poll, five seconds."""


@inference.command(name="set")
@_system_option
@target_options
@click.option("--route", "target", metavar="ROUTE", help="A named route, a chain for example, instead of a provider.")
@output_option
@client_options
def set_(access: Access, system: bool, output: str, **target: Any) -> None:
    """Point inference at a provider and a model, or at a named route.

    The provider is asked for one answer first, and nothing is stored if that fails; --no-verify leaves it out.

    \b
    Examples:
      pointsman inference set --provider work --model gpt-4o-mini
      pointsman inference set --system --provider local --model qwen --timeout 300 --no-verify
      pointsman inference set --route fast
    """
    check_target(_name(system), target)
    with access.open() as gateway:
        change = set_route(gateway, _name(system), target)
    show(output, change_lines(change, "configured"), change_json(change))


@inference.command()
@_system_option
@edit_options
@output_option
@client_options
def update(access: Access, system: bool, output: str, **edit: Any) -> None:
    """Change provider, model or timeout; what is not named stays. It is verified again first."""
    update_route(access, _name(system), edit, output)


@inference.command()
@click.option("--system", is_flag=True, help="Only the route sandbox-system; exits with 1 when it is not set.")
@output_option
@client_options
def get(access: Access, system: bool, output: str) -> None:
    """Show where inference leads."""
    from pointsman.rpc.gen import control_pb2

    with access.open() as gateway:
        routes = gateway.call(gateway.control.ListRoutes, control_pb2.ListRoutesRequest()).routes
    found = {each.name: each for each in routes}
    if system:
        route = found.get(SANDBOX_SYSTEM)
        if route is None:
            raise click.ClickException(f"{noun(SANDBOX_SYSTEM).lower()} is not configured; {_set_it(True)}")
        show(output, route_lines(SANDBOX_SYSTEM, route), route_json(route))
        return
    lines: list[str] = []
    for name in (INFERENCE_LOCAL, SANDBOX_SYSTEM):
        lines += ([""] if lines else []) + route_lines(name, found.get(name))
    names = (INFERENCE_LOCAL, SANDBOX_SYSTEM)
    show(output, lines, {name: route_json(found[name]) if name in found else None for name in names})


@inference.command()
@_system_option
@output_option
@client_options
def delete(access: Access, system: bool, output: str) -> None:
    """Take the route away. Sandboxes are told that inference is not configured."""
    from pointsman.rpc.gen import control_pb2

    name = _name(system)
    with access.open() as gateway:
        deleted = gateway.call(gateway.control.DeleteRoute, control_pb2.DeleteRouteRequest(name=name)).deleted
    if not deleted:
        raise click.ClickException(f"{noun(name).lower()} is not configured, so nothing was deleted; {_set_it(system)}")
    show(output, [f"{noun(name)} deleted"], {"name": name, "deleted": True})
