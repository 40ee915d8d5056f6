"""The options that say where a route leads, and the calls that `inference` and `route` have in common."""

from collections.abc import Callable
from typing import Any

import click

from pointsman.cli.call import ANSWER_SECONDS, VERIFY_SECONDS, Access, Gateway
from pointsman.cli.context_option import context_option
from pointsman.cli.records import change_json, change_lines
from pointsman.cli.show import show, told
from pointsman.core.route import (
    DEFAULT_REQUEST_TIMEOUT_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    LONGEST_TIMEOUT_SECONDS,
    RESERVED_NAMES,
    STRATEGIES,
)


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
        click.option("--model", default="", metavar="MODEL", help="The model that requests get, whatever they name."),
        click.option("--provider", "provider_name", default="", metavar="NAME", help="Where requests go."),
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


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Providers and models, out of PROVIDER and PROVIDER=MODEL."""
    pairs = [value.partition("=") for value in values]
    for provider, _equals, model in pairs:
        if not provider.strip():
            raise click.BadParameter(f"'{_equals}{model}' names no provider; write PROVIDER or PROVIDER=MODEL")
    return tuple((provider.strip(), model.strip()) for provider, _, model in pairs)


def chain_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command what a chain consists of; what is not given is None, or no candidate."""
    for option in (
        context_option,
        click.option(
            "--via-gateway/--not-via-gateway",
            default=None,
            help="Of one provider: whether sandboxes reach it through the gateway.",
        ),
        click.option(
            "--request-timeout",
            type=_WholeSeconds(0, LONGEST_TIMEOUT_SECONDS),
            metavar="SECONDS",
            help=f"Of a chain, for all attempts together; 0: the default, {DEFAULT_REQUEST_TIMEOUT_SECONDS} s.",
        ),
        click.option("--fallback", metavar="PROVIDER", help="Of a chain: who answers when no candidate does."),
        click.option(
            "--strategy",
            type=click.Choice(STRATEGIES),
            help=f"Of a chain: in which order its candidates are asked. Default: {STRATEGIES[0]}.",
        ),
        click.option(
            "--candidate",
            "candidates",
            multiple=True,
            callback=_pairs,
            metavar="PROVIDER[=MODEL]",
            help="One provider of a chain; again for more. Without MODEL the MODEL of the provider's config.",
        ),
    ):
        command = option(command)
    return command


def check_target(name: str, target: dict[str, Any]) -> None:
    """Raises UsageError unless exactly one way to lead somewhere is given."""
    direct = bool(target["provider_name"] or target["model"])
    chain = bool(target.get("candidates") or target.get("fallback") or target.get("strategy"))
    if direct + chain + bool(target.get("target")) > 1:
        other = "--route" if "target" in target else "--candidate"
        raise click.UsageError(
            f"--provider and --model lead to one provider, {other} leads elsewhere; give one of them"
        )
    if target.get("target"):
        return
    if chain and not target["candidates"]:
        raise click.UsageError("a chain needs candidates; add --candidate PROVIDER[=MODEL]")
    if not chain and not (target["provider_name"] and target["model"]):
        other = "--route NAME" if name in RESERVED_NAMES else "--candidate PROVIDER[=MODEL] …"
        raise click.UsageError(f"where does it lead? Give --provider NAME and --model MODEL, or {other}")


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
        candidates=_candidate_messages(target),
        strategy=target.get("strategy") or "",
        fallback=target.get("fallback") or "",
        request_timeout_secs=target.get("request_timeout") or 0,
        target=target.get("target") or "",
        via_gateway=target.get("via_gateway") or False,
        context=target.get("context") or "",
    )
    return gateway.call(gateway.control.SetRoute, request, **_patience(target))


def update_route(access: Access, name: str, edit: dict[str, Any], output: str) -> None:
    """Change what was given of a route, in one step, and show it; `edit` is what `edit_options` gave."""
    from pointsman.rpc.gen import control_pb2

    if not any(value not in (None, ()) for key, value in edit.items() if key != "no_verify"):
        raise click.UsageError("nothing to change; give at least one of --provider, --model and --timeout")
    request = control_pb2.UpdateRouteRequest(
        name=name,
        provider_name=edit["provider_name"],
        model=edit["model"],
        timeout_secs=edit["timeout"],
        no_verify=edit["no_verify"],
        candidates=_candidate_messages(edit),
        strategy=edit.get("strategy"),
        fallback=edit.get("fallback"),
        request_timeout_secs=edit.get("request_timeout"),
        via_gateway=edit.get("via_gateway"),
        context=edit.get("context"),
    )
    with access.open() as gateway:
        change = gateway.call(gateway.control.UpdateRoute, request, **_patience(edit))
    show(output, change_lines(change, "updated"), change_json(change))


def _candidate_messages(given: dict[str, Any]) -> list[Any]:
    from pointsman.rpc.gen import control_pb2

    pairs = given.get("candidates") or ()
    return [control_pb2.RouteCandidate(provider_name=provider, model=model) for provider, model in pairs]


def _patience(given: dict[str, Any]) -> dict[str, Any]:
    """A call that verifies waits for somebody else's machine."""
    if given["no_verify"]:
        return {"seconds": ANSWER_SECONDS}
    what = given["provider_name"] or given["model"] or given.get("target") or "the provider"
    return {"seconds": VERIFY_SECONDS, "waiting_for": f"the verification of {told(what)}"}
