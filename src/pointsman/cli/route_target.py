"""The options that say where a route leads, and the calls that `inference` and `route` have in common."""

from collections.abc import Callable
from typing import Any

import click

from pointsman.cli.call import ANSWER_SECONDS, VERIFY_SECONDS, Access, Gateway
from pointsman.cli.records import change_json, change_lines
from pointsman.cli.show import show, told
from pointsman.core.route import DEFAULT_TIMEOUT_SECONDS, LONGEST_TIMEOUT_SECONDS


class _WholeSeconds(click.IntRange):
    """Seconds of a timeout: click would say of 1.5 that it is no valid integer range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number of seconds", param, ctx)
        return super().convert(value, param, ctx)


def _timeout_option(default: int | None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--timeout",
        type=_WholeSeconds(0, LONGEST_TIMEOUT_SECONDS),
        default=default,
        metavar="SECONDS",
        help=f"How long one request may wait for its answer; 0: the default, {DEFAULT_TIMEOUT_SECONDS} s.",
    )


no_verify_option = click.option(
    "--no-verify", is_flag=True, help="Store it without asking the provider for one answer first."
)


def target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that sets a route `--provider`, `--model`, `--timeout` and `--no-verify`."""
    for option in (
        no_verify_option,
        _timeout_option(0),
        click.option(
            "--model", required=True, metavar="MODEL", help="The model that requests get, whatever they name."
        ),
        click.option("--provider", "provider_name", required=True, metavar="NAME", help="Where requests go."),
    ):
        command = option(command)
    return command


def edit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that changes a route the same, each for its own."""
    for option in (
        no_verify_option,
        _timeout_option(None),
        click.option("--model", metavar="MODEL", help="Another model."),
        click.option("--provider", "provider_name", metavar="NAME", help="Another provider."),
    ):
        command = option(command)
    return command


def set_route(gateway: Gateway, name: str, target: dict[str, Any], *, create_only: bool = False) -> Any:
    """Create a route or, unless `create_only`, point it elsewhere; `target` is what `target_options` gave."""
    from pointsman.rpc.gen import control_pb2

    request = control_pb2.SetRouteRequest(
        name=name,
        provider_name=target["provider_name"],
        model=target["model"],
        timeout_secs=target["timeout"],
        no_verify=target["no_verify"],
        create_only=create_only,
    )
    return gateway.call(gateway.control.SetRoute, request, **_patience(target))


def update_route(access: Access, name: str, edit: dict[str, Any], output: str) -> None:
    """Change what was given of a route, in one step, and show it; `edit` is what `edit_options` gave."""
    from pointsman.rpc.gen import control_pb2

    if all(edit[key] is None for key in ("provider_name", "model", "timeout")):
        raise click.UsageError("nothing to change; give at least one of --provider, --model and --timeout")
    request = control_pb2.UpdateRouteRequest(
        name=name,
        provider_name=edit["provider_name"],
        model=edit["model"],
        timeout_secs=edit["timeout"],
        no_verify=edit["no_verify"],
    )
    with access.open() as gateway:
        change = gateway.call(gateway.control.UpdateRoute, request, **_patience(edit))
    show(output, change_lines(change, "updated"), change_json(change))


def _patience(given: dict[str, Any]) -> dict[str, Any]:
    """A call that verifies waits for somebody else's machine."""
    if given["no_verify"]:
        return {"seconds": ANSWER_SECONDS}
    what = given["provider_name"] or given["model"] or "the provider"
    return {"seconds": VERIFY_SECONDS, "waiting_for": f"the verification of {told(what)}"}
