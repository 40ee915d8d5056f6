"""`pointsman sandbox`: run a command behind the door, or the proxy alone."""

import os
import sys
from pathlib import Path

import click

from pointsman.config.problems import RouteFileError
from pointsman.config.routes_file import load_route_file
from pointsman.core.candidate import Bundle

_ROUTES_HELP = "Route file (YAML): where inference goes. See docs/reference/route-file.md."
_LOG_HELP = "Append one OCSF event per line to FILE; '-' is standard output."


@click.group()
def sandbox() -> None:
    """Run a command whose only way out is https://inference.local."""


@sandbox.command()
@click.option("--inference-routes", "routes", required=True, metavar="FILE", help=_ROUTES_HELP)
@click.option(
    "--listen", default="127.0.0.1:3128", show_default=True, metavar="HOST:PORT", help="Port 0 picks a free one."
)
@click.option("--ca-dir", required=True, type=click.Path(path_type=Path), help="Where the certificates for clients go.")
@click.option("--ocsf-log", default="", metavar="FILE", help=_LOG_HELP)
def proxy(routes: str, listen: str, ca_dir: Path, ocsf_log: str) -> None:
    """Run the proxy alone, without isolating anything.

    \b
    Clients reach it with
      HTTPS_PROXY=http://HOST:PORT  SSL_CERT_FILE=<ca-dir>/ca-bundle.pem
    and call https://inference.local. It says 'pointsman: ready proxy=HOST:PORT' on standard error when it listens.
    """
    from pointsman.sandbox.app import ProxyOptions, run, run_proxy

    bundle = _load(routes)
    address = _address(listen)
    try:
        sys.exit(run(run_proxy(ProxyOptions(bundle, address, ca_dir, ocsf_log))))
    except OSError as error:
        place = f" {error.filename}" if error.filename else ""
        raise click.ClickException(
            f"cannot start{place}: {error.strerror or error}; choose another --listen or --ca-dir"
        ) from None


def _load(path: str) -> Bundle:
    try:
        loaded = load_route_file(path, os.environ)
    except RouteFileError as error:
        raise click.ClickException(str(error)) from None
    for warning in loaded.warnings:
        click.echo(f"pointsman: warning: {warning}", err=True)
    return loaded.bundle


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise click.UsageError(f"--listen {text!r} is not HOST:PORT; for example 127.0.0.1:3128")
    return host, int(port)
