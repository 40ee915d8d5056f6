"""`pointsman provider`: the records of where inference can go, and of the keys for it."""

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.credential_flags import NotThere, WrongFlag, discover, read_config, read_credentials, unused_base_url
from pointsman.cli.record_warnings import record_warnings
from pointsman.cli.records import provider_json, provider_lines, provider_rows
from pointsman.cli.show import output_option, show, show_json, show_lines, told
from pointsman.core.profiles import LOCAL_GGUF
from pointsman.core.provider import LONGEST_VALUE
from pointsman.core.secret import Secret

_FAILED = 1
_MOST = 2**32 - 1

_CREDENTIAL_HELP = (
    "KEY reads this command's environment, KEY=- standard input. KEY=VALUE is for all on this machine to see in 'ps'. "
    "May be given several times."
)
_CREDENTIAL_OPTIONS = (
    click.option(
        "--from-existing", is_flag=True, help="Take the key from the variable that the type's own clients read."
    ),
    click.option("--credential", "credentials", multiple=True, metavar="KEY[=VALUE]", help=_CREDENTIAL_HELP),
    click.option(
        "--config",
        "config",
        multiple=True,
        metavar="KEY=VALUE",
        help="What is no secret, such as OPENAI_BASE_URL=https://models.example/v1. May be given several times.",
    ),
    # What stands alone may be a key that was cut off by a space, and click would repeat it.
    click.argument("surplus", nargs=-1, metavar=""),
)


@dataclass(frozen=True, slots=True)
class _Values:
    """What was given for a record's two maps."""

    from_existing: bool
    credentials: tuple[str, ...]
    config: tuple[str, ...]

    def check(self) -> None:
        if self.from_existing and self.credentials:
            raise click.UsageError("--from-existing and --credential exclude each other; give one of them")


def _value_options(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def with_values(
        *,
        from_existing: bool,
        credentials: tuple[str, ...],
        config: tuple[str, ...],
        surplus: tuple[str, ...],
        **others: Any,
    ) -> None:
        if surplus:
            raise click.UsageError("an argument belongs to no option; write KEY=VALUE without spaces, and quote VALUE")
        values = _Values(from_existing, credentials, config)
        values.check()
        command(values=values, **others)

    decorated: Callable[..., None] = with_values
    for option in reversed(_CREDENTIAL_OPTIONS):
        decorated = option(decorated)
    return decorated


@click.group()
def provider() -> None:
    """Providers: where inference can go, with which key. Keys go into the gateway and never come out again."""


@provider.command()
@click.option("--name", required=True, metavar="NAME", help="What routes call it.")
@click.option(
    "--type",
    "type_",
    required=True,
    metavar="TYPE",
    help="openai, anthropic, nvidia, openai_compatible with --config OPENAI_BASE_URL=URL, or local_gguf, for chains, "
    "with --config MODEL_PATH=FILE.",
)
@_value_options
@output_option
@client_options
def create(access: Access, name: str, type_: str, values: _Values, output: str) -> None:
    """Make a provider.

    \b
    Examples:
      pointsman provider create --name work --type openai --from-existing
      pointsman provider create --name claude --type anthropic --credential ANTHROPIC_API_KEY
      pass show groq | pointsman provider create --name groq --type openai_compatible \\
        --credential OPENAI_API_KEY=- --config OPENAI_BASE_URL=https://api.groq.com/openai/v1
      pointsman provider create --name local --type local_gguf --config MODEL_PATH=/models/small.gguf
    """
    from pointsman.rpc.gen import openshell_pb2

    keyless = type_.strip().lower() == LOCAL_GGUF
    if not values.from_existing and not values.credentials and not keyless:
        raise click.UsageError("no credential; give --from-existing or --credential KEY")
    credentials, config = _read(values, lambda: type_, may_delete=False)
    if values.from_existing and (unused := unused_base_url(type_, os.environ, config)):
        click.echo(
            f"pointsman: warning: {unused} is set here and was not taken; if the key is for that place, give "
            f'--config {unused}="${unused}"',
            err=True,
        )
    record = _record(name, credentials, config)
    record.type = type_
    with access.open() as gateway:
        answer = gateway.call(gateway.openshell.CreateProvider, openshell_pb2.CreateProviderRequest(provider=record))
    show(output, [f"Created provider {told(answer.provider.name)}"], provider_json(answer.provider))
    _warn(answer.provider)


@provider.command()
@click.argument("name", metavar="NAME")
@output_option
@client_options
def get(access: Access, name: str, output: str) -> None:
    """Show one provider, without its keys."""
    from pointsman.rpc.gen import openshell_pb2

    with access.open() as gateway:
        answer = gateway.call(gateway.openshell.GetProvider, openshell_pb2.GetProviderRequest(name=name))
    show(output, provider_lines(answer.provider), provider_json(answer.provider))


@provider.command(name="list")
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=100, show_default=True, metavar="N", help="Show at most N."
)
@click.option(
    "--offset", type=click.IntRange(0, _MOST), default=0, show_default=True, metavar="N", help="Leave out the first N."
)
@click.option("--names", is_flag=True, help="Names only, one per line.")
@output_option
@client_options
def list_(access: Access, limit: int, offset: int, names: bool, output: str) -> None:
    """List providers by name."""
    from pointsman.rpc.gen import openshell_pb2

    with access.open() as gateway:
        request = openshell_pb2.ListProvidersRequest(limit=limit, offset=offset)
        providers = gateway.call(gateway.openshell.ListProviders, request).providers
    if output == "json":
        show_json([each.name if names else provider_json(each) for each in providers])
    elif names:
        if providers:
            show_lines([told(each.name) for each in providers])
    elif providers:
        show_lines(provider_rows(providers))
    else:
        show_lines(["No providers; 'pointsman provider create' makes one" if not offset else "No more providers"])


@provider.command()
@click.argument("name", metavar="NAME")
@_value_options
@output_option
@client_options
def update(access: Access, name: str, values: _Values, output: str) -> None:
    """Change keys or config of a provider; what is not named stays. KEY= deletes the key.

    Every sandbox whose route leads there has the change within one poll, five seconds.

    \b
    Examples:
      pointsman provider update work --credential OPENAI_API_KEY
      pointsman provider update work --config OPENAI_BASE_URL=
    """
    from pointsman.rpc.gen import openshell_pb2

    if not (values.from_existing or values.credentials or values.config):
        raise click.UsageError("nothing to change; give --credential, --from-existing or --config")
    with access.open() as gateway:

        def type_of() -> str:
            return gateway.call(
                gateway.openshell.GetProvider, openshell_pb2.GetProviderRequest(name=name)
            ).provider.type

        credentials, config = _read(values, type_of, may_delete=True)
        request = openshell_pb2.UpdateProviderRequest(provider=_record(name, credentials, config))
        answer = gateway.call(gateway.openshell.UpdateProvider, request)
    show(output, [f"Updated provider {told(answer.provider.name)}"], provider_json(answer.provider))
    if values.config:
        _warn(answer.provider)


@provider.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Delete it even if routes use it; they lead nowhere then.")
@output_option
@client_options
def delete(access: Access, names: tuple[str, ...], force: bool, output: str) -> None:
    """Delete providers, and their keys with them. One that routes use stays, unless forced.

    All are tried. Exits with 1 when one of them was not there or had to stay.
    """
    from pointsman.rpc.gen import control_pb2

    results: list[dict[str, Any]] = []
    with access.open() as gateway:
        for name in dict.fromkeys(names):
            request = control_pb2.DeleteProviderRequest(name=name, force=force)
            try:
                answer = gateway.call(gateway.control.DeleteProvider, request)
            except click.ClickException as error:
                if getattr(error, "code", "") not in ("FAILED_PRECONDITION", "NOT_FOUND", "INVALID_ARGUMENT"):
                    raise
                results.append({"name": name, "deleted": False, "broken_routes": [], "problem": error.format_message()})
            else:
                problem = (
                    None if answer.deleted else f"provider {name!r} not found; 'pointsman provider list' names them"
                )
                broken = list(answer.broken_routes)
                results.append({"name": name, "deleted": answer.deleted, "broken_routes": broken, "problem": problem})
            _tell_deletion(results[-1], output)
    if output == "json":
        show_json(results)
    if not all(each["deleted"] for each in results):
        sys.exit(_FAILED)


def _warn(record: Any) -> None:
    for warning in record_warnings(record.name, record.type, dict(record.config)):
        click.echo(f"pointsman: warning: provider {told(record.name)}: {told(warning)}", err=True)


def _tell_deletion(result: Mapping[str, Any], output: str) -> None:
    if result["problem"]:
        click.echo(f"pointsman: {told(result['problem'])}", err=True)
    elif output == "text":
        click.echo(f"Deleted provider {told(result['name'])}")
    for route in result["broken_routes"]:
        click.echo(
            f"pointsman: warning: route {told(route)} leads nowhere now; point it elsewhere or delete it", err=True
        )


def _read(
    values: _Values, type_of: Callable[[], str], *, may_delete: bool
) -> tuple[Mapping[str, Secret], Mapping[str, str]]:
    """Both maps. Raises UsageError and ClickException."""
    try:
        config = read_config(values.config, may_delete=may_delete)
        if values.from_existing:
            return discover(type_of(), os.environ), config
        return read_credentials(values.credentials, os.environ, _from_standard_input, may_delete=may_delete), config
    except WrongFlag as error:
        raise click.UsageError(str(error)) from None
    except NotThere as error:
        raise click.ClickException(str(error)) from None


def _from_standard_input(key: str) -> str:
    if sys.stdin is None:
        raise NotThere("standard input is closed; pipe the key in")
    if sys.stdin.isatty():
        return str(click.prompt(told(key), hide_input=True, err=True))
    try:
        return sys.stdin.buffer.read(2 * LONGEST_VALUE).decode()
    except UnicodeDecodeError:
        raise NotThere("standard input is not UTF-8 text; pipe the key itself in") from None
    except OSError as error:
        raise NotThere(f"standard input: {(error.strerror or 'failed').lower()}; pipe the key in") from None


def _record(name: str, credentials: Mapping[str, Secret], config: Mapping[str, str]) -> Any:
    from pointsman.rpc.gen import datamodel_pb2

    values = {key: secret.reveal() for key, secret in credentials.items()}
    return datamodel_pb2.Provider(name=name, credentials=values, config=config)
