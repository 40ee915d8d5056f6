"""`--gateway` and what belongs to it, for every command that talks to one."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import click

from pointsman.config.setting_keys import CLIENT_VARIABLES, KEYS, PREFIX
from pointsman.config.wording import nearest, shown_variable
from pointsman.core.gateway_address import GatewayAddress, read_gateway_address

_OPTIONS = (
    click.option(
        "--gateway",
        "gateway_url",
        envvar="POINTSMAN_GATEWAY",
        show_envvar=True,
        metavar="URL",
        help="The gateway's gRPC listener: https://HOST:PORT, or http://HOST:PORT on this machine.",
    ),
    click.option(
        "--token-file",
        envvar="POINTSMAN_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help="File with the token for it; only its owner may read it.",
    ),
    click.option(
        "--gateway-ca",
        envvar="POINTSMAN_GATEWAY_CA",
        show_envvar=True,
        metavar="FILE",
        help="The only certificates it is verified against (PEM). Default: the public authorities.",
    ),
    click.option(
        "--gateway-cert",
        envvar="POINTSMAN_GATEWAY_CERT",
        show_envvar=True,
        metavar="FILE",
        help="Certificate to show to it (PEM), where it asks for one.",
    ),
    click.option(
        "--gateway-key",
        envvar="POINTSMAN_GATEWAY_KEY",
        show_envvar=True,
        metavar="FILE",
        help="Private key of that certificate (PEM).",
    ),
)


_VARIABLES = (
    "POINTSMAN_GATEWAY",
    "POINTSMAN_TOKEN_FILE",
    "POINTSMAN_GATEWAY_CA",
    "POINTSMAN_GATEWAY_CERT",
    "POINTSMAN_GATEWAY_KEY",
)


class GatewayOptions:
    """What was given on the command line or in the environment, not yet looked at."""

    __slots__ = ("ca_file", "certificate_file", "from_environment", "key_file", "token_file", "url")

    def __init__(self, values: dict[str, Any], *, from_environment: bool) -> None:
        self.url: str = values["gateway_url"] or ""
        self.token_file: str = values["token_file"] or ""
        self.ca_file: str = values["gateway_ca"] or ""
        self.certificate_file: str = values["gateway_cert"] or ""
        self.key_file: str = values["gateway_key"] or ""
        self.from_environment = from_environment
        """`url` is POINTSMAN_GATEWAY's, not an option's."""

    def address(self, default: str = "") -> GatewayAddress:
        """The gateway, `default` where none was given. Raises UsageError."""
        url = self.url or default
        source = "POINTSMAN_GATEWAY" if self.from_environment else "--gateway"
        try:
            return read_gateway_address(url, self.ca_file, self.certificate_file, self.key_file)
        except ValueError as error:
            raise click.UsageError(f"{source} {error}") from None


_READ = {name.removeprefix(PREFIX).lower(): name for name in (*_VARIABLES, PREFIX + "DATA_DIR")}
_HABITS = {"token": "token_file", "url": "gateway", "gateway_url": "gateway", "ca": "gateway_ca"}
_KNOWN = frozenset({*_READ.values(), *CLIENT_VARIABLES, *(key.variable for key in KEYS)})


def misspelt_variables(names: Iterable[str]) -> list[tuple[str, str]]:
    """Variables that a command which talks to a gateway does not read, each with the one that was probably meant."""
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in _KNOWN and shown_variable(name))
    near = [(name, nearest(name.removeprefix(PREFIX), _READ, _HABITS)) for name in unknown]
    return [(name, _READ[meant]) for name, meant in near if meant]


_NAMES = ("gateway_url", "token_file", "gateway_ca", "gateway_cert", "gateway_key")


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--gateway` and what belongs to it, as one argument `gateway` of type GatewayOptions."""

    @functools.wraps(command)
    def with_gateway(**others: Any) -> None:
        source = click.get_current_context().get_parameter_source("gateway_url")
        values = {name: others.pop(name) for name in _NAMES}
        from_environment = source is click.core.ParameterSource.ENVIRONMENT
        for given, meant in misspelt_variables(os.environ):
            click.echo(f"pointsman: warning: nothing reads {given}; did you mean {meant}?", err=True)
        command(gateway=GatewayOptions(values, from_environment=from_environment), **others)

    decorated: Callable[..., None] = with_gateway
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
