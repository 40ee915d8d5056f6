"""`pointsman sandbox`: run a command behind the door, or the proxy alone."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pointsman.cli.event_log import event_log_options
from pointsman.cli.gateway_options import GatewayOptions, gateway_options
from pointsman.cli.routes import route_files
from pointsman.cli.token import token
from pointsman.config.problems import RouteFileError
from pointsman.config.routes_file import LoadedRoutes, load_route_file
from pointsman.core.gateway_address import GatewayFileError
from pointsman.proxy.memory import keep_memory_private

if TYPE_CHECKING:
    from pointsman.events.log_files import EventLog
    from pointsman.sandbox.route_source import RouteSource

_ROUTES_HELP = "Route file (YAML): where inference goes. See docs/reference/route-file.md."
_COULD_NOT_START = 125
T = TypeVar("T")


@click.group()
def sandbox() -> None:
    """Run a command whose only way out is https://inference.local."""


sandbox.add_command(route_files)
sandbox.add_command(token)


@sandbox.command()
@click.option("--inference-routes", "routes", metavar="FILE", help=_ROUTES_HELP)
@gateway_options
@click.option(
    "--listen", default="127.0.0.1:3128", show_default=True, metavar="HOST:PORT", help="Port 0 picks a free one."
)
@click.option("--ca-dir", required=True, type=click.Path(path_type=Path), help="Where the certificates for clients go.")
@event_log_options
def proxy(routes: str | None, gateway: GatewayOptions, listen: str, ca_dir: Path, event_log: "EventLog") -> None:
    """Run the proxy alone, without isolating anything.

    Routes come from --inference-routes, or from --gateway, which it then follows.

    \b
    Clients reach it with
      HTTPS_PROXY=http://HOST:PORT  SSL_CERT_FILE=<ca-dir>/ca-bundle.pem
    and call https://inference.local. It says 'pointsman: ready proxy=HOST:PORT' on standard error when it listens.
    """
    from pointsman.proxy.process import run
    from pointsman.sandbox.app import ProxyOptions, run_proxy

    source = _route_source(routes, gateway)
    address = _address(listen)
    try:
        sys.exit(run(run_proxy(ProxyOptions(source, address, ca_dir, event_log))))
    except GatewayFileError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        option = _option_of(error, event_log, ca_dir) or f"--listen {listen}"
        raise click.ClickException(f"{option}: {_lower(error)}; choose another") from None


def _memory(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from pointsman.sandbox.resources import read_memory

    return _read(read_memory, value)


def _cpus(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    from pointsman.sandbox.resources import read_cpus

    return _read(read_cpus, value)


def _read(read: Callable[[str], T], value: str | None) -> T | None:
    try:
        return None if value is None else read(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@sandbox.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option("--inference-routes", "routes", metavar="FILE", help=_ROUTES_HELP)
@gateway_options
@click.option(
    "--isolation",
    type=click.Choice(["auto", "netns", "bwrap", "none"]),
    default="auto",
    show_default=True,
    help="auto: netns as root, else bwrap. netns: namespaces made by root. bwrap: the same without root. "
    "none: no protection at all.",
)
@click.option("--user", metavar="NAME", help="Whom root runs the command as. Default: who called sudo, else nobody.")
@click.option(
    "--expose",
    multiple=True,
    metavar="PATH",
    help="Let the command use PATH too, though it is in a home or below what its user may not enter.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_memory,
    help="What the command may use in all: 512M, 2G. More ends a process of it.",
)
@click.option(
    "--cpus",
    metavar="N",
    callback=_cpus,
    help="How many processors it may keep busy: 1.5, 0.5. More only slows it down.",
)
@event_log_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run_command(
    routes: str | None, gateway: GatewayOptions, isolation: str, command: tuple[str, ...], **others: Any
) -> None:
    """Run COMMAND so that https://inference.local is its only way out.

    \b
    Examples:
      pointsman sandbox run --inference-routes routes.yaml -- python agent.py
      sudo pointsman sandbox run --inference-routes routes.yaml -- python agent.py
      pointsman sandbox run --inference-routes routes.yaml --expose ~/.cache/pip -- bash
      sudo pointsman sandbox run --inference-routes routes.yaml --memory 2G --cpus 1.5 -- python agent.py
      pointsman sandbox run --gateway http://127.0.0.1:8782 --token-file ~/sandbox.token -- python agent.py

    Without root it takes bubblewrap. COMMAND may change the working directory and exposed paths; your home, /tmp and
    /run are other ones inside. Proxy, certificates, base URLs and placeholder keys are in its environment; your own
    keys are not. Exits with COMMAND's status, or 125 when it could not be started.
    """
    from pointsman.proxy.process import run
    from pointsman.sandbox.app import RunOptions, run_sandboxed
    from pointsman.sandbox.child import CannotStart
    from pointsman.sandbox.choice import Isolation
    from pointsman.sandbox.resources import Resources

    log: EventLog = others["event_log"]
    _warn_of_reach(log.path, isolation, others["expose"])
    try:
        source = _route_source(routes, gateway)
        if routes is None:
            _warn_of_secret("--token-file", gateway.token_file, isolation, others["expose"])
            _warn_of_secret("--gateway-key", gateway.key_file, isolation, others["expose"])
        resources = Resources(others.pop("memory"), others.pop("cpus"))
        asked = RunOptions(
            source,
            command,
            dict(os.environ),
            Isolation(isolation),
            resources=resources,
            **others,
        )
        status = run(run_sandboxed(asked))
    except click.UsageError:
        raise
    except (CannotStart, GatewayFileError, OSError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        if isinstance(error, OSError) and (option := _option_of(error, log)):
            text = f"{option}: {_lower(error)}; choose another"
        click.echo(f"pointsman: {text}", err=True)
        sys.exit(_COULD_NOT_START)
    sys.exit(status)


def _option_of(error: OSError, event_log: "EventLog", ca_dir: Path | None = None) -> str:
    """The option whose file an error is about, or nothing."""
    name = os.fspath(error.filename or "")
    if event_log.path and name and Path(name) == Path(event_log.path):
        return f"--ocsf-log {event_log.path}"
    if ca_dir is not None and name and Path(name).is_relative_to(ca_dir):
        return f"--ca-dir {ca_dir}"
    return ""


def _lower(error: OSError) -> str:
    text = (error.strerror or str(error)).partition(" (while")[0]  # what asyncio adds says nothing new
    return text[:1].lower() + text[1:]


def _warn_of_reach(log: str, isolation: str, exposed: tuple[str, ...]) -> None:
    """Say it when the command will be able to change the log of what it does."""
    if not log or log == "-" or isolation == "none":
        return
    if _is_shown(log, exposed):
        click.echo(
            f"pointsman: warning: COMMAND may be able to cut or move --ocsf-log {log}; keep it out of what COMMAND "
            "may change",
            err=True,
        )


def _warn_of_secret(option: str, path: str, isolation: str, exposed: tuple[str, ...]) -> None:
    """Say it when a token or key that is exchanged while the command runs would lie before it."""
    if path and isolation != "none" and _is_shown(path, exposed):
        click.echo(
            f"pointsman: warning: {option} {path} lies in what COMMAND sees: this file is hidden from it, a new one of "
            "that name would not be; keep it outside the working directory",
            err=True,
        )


def _is_shown(path: str, exposed: tuple[str, ...]) -> bool:
    place = Path(os.path.realpath(path))
    return any(place.is_relative_to(os.path.realpath(tree)) for tree in (".", *exposed))


def _route_source(routes: str | None, gateway: GatewayOptions) -> "RouteSource":
    """Where routes come from. Raises UsageError, and ClickException for files that cannot be used."""
    from pointsman.sandbox.route_refresh import read_interval
    from pointsman.sandbox.route_source import FileRoutes, gateway_routes

    if routes is not None and gateway.url and not gateway.from_environment:
        raise click.UsageError("--inference-routes and --gateway are both given; routes come from one of them")
    if routes is not None:
        return FileRoutes(_load(routes), routes)
    if not gateway.url:
        raise click.UsageError("where routes come from is missing; give --inference-routes FILE or --gateway URL")
    address = gateway.address()
    if not gateway.token_file:
        raise click.UsageError(
            "--gateway needs --token-file; 'pointsman sandbox token create NAME' at the gateway makes a token"
        )
    try:
        keep_memory_private()  # before the token is in it
        return gateway_routes(address, gateway.token_file, read_interval(os.environ))
    except GatewayFileError as error:
        raise click.ClickException(str(error)) from None


def _load(path: str) -> LoadedRoutes:
    try:
        keep_memory_private()  # before the first key is in it
        loaded = load_route_file(path, os.environ)
    except (RouteFileError, OSError) as error:
        raise click.ClickException(str(error)) from None
    for warning in loaded.warnings:
        click.echo(f"pointsman: warning: {warning}", err=True)
    return loaded


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise click.UsageError(f"--listen {text!r} is not HOST:PORT; for example 127.0.0.1:3128")
    return host, int(port)
