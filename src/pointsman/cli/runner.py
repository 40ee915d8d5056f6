"""`pointsman runner`: this machine as the host of models that a gateway may ask for, each approved here first.

What dials and asks is imported where it is used, so that other commands don't pay for it.
"""

import os
import socket
import sys
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from pointsman.cli.context_option import context_option
from pointsman.cli.show import is_terminal, output_option, show, told
from pointsman.core.gateway_address import GatewayAddress, GatewayFileError
from pointsman.core.secret import Secret
from pointsman.proxy.memory import keep_memory_private
from pointsman.runner.allowlist import FILE_NAME, clear, read_allowlist
from pointsman.runner.gateway_address import DEFAULT_GATEWAY, read_control_address
from pointsman.runner.private_file import NoSuchFile, PrivateFileError, check_writable
from pointsman.runner.state import FILE_NAME as STATE_FILE_NAME
from pointsman.runner.state import RunnerState, default_config_directory, read_state, write_state


def _directory(_: click.Context, __: click.Parameter, value: str | None) -> Path:
    if value:
        return Path(value)
    try:
        return default_config_directory(os.environ)
    except RuntimeError:
        raise click.UsageError("this user has no home; give --config-dir DIR") from None


directory_option = click.option(
    "--config-dir",
    "directory",
    callback=_directory,
    metavar="DIR",
    help="Where runner.json and allowlist.json are. Default: pointsman in the user's configuration directory.",
)
key_option = click.option(
    "--key-file",
    envvar="POINTSMAN_KEY",
    show_envvar=True,
    metavar="FILE",
    help="File with a user's key for the gateway, which may runners:manage and models:create. It is not kept.",
)


def _choice_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        context_option,
        click.option("--register-all", is_flag=True, help="Approve and register every model that is found."),
        click.option(
            "--register",
            "wanted",
            multiple=True,
            metavar="MODEL",
            help="Approve and register this one, or MODEL@URL where several servers have it; again for more.",
        ),
        click.option(
            "--url",
            "urls",
            multiple=True,
            metavar="URL",
            help="Look at this server of this machine too: http://localhost:PORT/v1; again for more.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def runner() -> None:
    """This machine's models, for a gateway: it may ask for those that were approved here, and reach nothing else.

    \b
    Examples:
      pointsman runner register --gateway https://gateway.example:8781 --key-file my.key
      pointsman runner start
      pointsman runner models --key-file my.key
      pointsman runner status --key-file my.key
    """


@runner.command()
@click.argument("name", metavar="[NAME]", default="")
@click.option(
    "--gateway",
    "url",
    envvar="POINTSMAN_RUNNER_GATEWAY",
    show_envvar=True,
    metavar="URL",
    default=DEFAULT_GATEWAY,
    show_default=True,
    help="The gateway's control listener: https://HOST:PORT, or http://HOST:PORT on this machine.",
)
@click.option(
    "--gateway-ca",
    envvar="POINTSMAN_GATEWAY_CA",
    show_envvar=True,
    metavar="FILE",
    help="The only certificates it is verified against (PEM). Default: the public authorities.",
)
@key_option
@directory_option
@_choice_options
def register(name: str, directory: Path, key_file: str | None, **given: Any) -> None:
    """Make this machine a runner of a gateway; on a terminal, offer the models that are found here.

    Without NAME it gets this machine's. A runner that is registered already gets a new token, which ends the
    connection that it has: start it again then.

    \b
    Examples:
      pointsman runner register --gateway https://gateway.example:8781 --key-file my.key
      pointsman runner register --key-file my.key --register qwen3:8b < /dev/null
    """
    from pointsman.cli.runner_models import Choice, choose_models, register_chosen
    from pointsman.runner.control_api import CallFailed, ControlApi

    gateway = _address(given["url"], given["gateway_ca"])
    choice = Choice(given["urls"], given["wanted"], every=given["register_all"], context=given["context"] or "")
    choice.check()
    before = _state_or_none(directory)
    resumed = before.runner_id if before is not None and before.gateway.url == gateway.url else ""
    try:
        check_writable(directory / STATE_FILE_NAME)  # before the token that it holds is replaced
        api = ControlApi(gateway, _key(key_file))
        state = api.register(name or (before.name if before and resumed else socket.gethostname()), resumed)
        if state.runner_id != resumed:
            clear(directory / FILE_NAME)  # what was approved was approved for another
        write_state(directory, state)
    except (CallFailed, PrivateFileError, OSError) as error:
        taken = isinstance(error, CallFailed) and error.status == HTTPStatus.CONFLICT
        raise click.ClickException(f"{error}{': pointsman runner register NAME' if taken else ''}") from None
    click.echo(f"Registered the runner {told(state.name)} ({state.runner_id}) with {gateway.url}")
    if choice.is_given or is_terminal(sys.stdin):
        register_chosen(api, state, directory, choose_models(choice, directory, ask=is_terminal(sys.stdin)))
    click.echo(f"Next: pointsman runner {'start' if _approved(directory) else 'models, to approve some; then start'}")


@runner.command()
@directory_option
def start(directory: Path) -> None:
    """Connect to the gateway, stay connected, and answer for the models that are approved.

    Says 'pointsman: ready gateway=URL runner=ID' on standard error for each connection, once the gateway passes
    requests on to it. A changed allowlist.json counts at once. Ends by SIGINT or SIGTERM, or when the
    gateway has revoked this runner.
    """
    from pointsman.proxy.process import run

    run_runner = _import_runner()
    try:
        keep_memory_private()  # before the token is in it
        state = read_state(directory)
        if not read_allowlist(directory / FILE_NAME):
            _say("no model is approved yet; 'pointsman runner models' finds and approves them")
    except PrivateFileError as error:
        raise click.ClickException(str(error)) from None
    try:
        sys.exit(run(run_runner(state, directory, _say)))
    except OSError as error:
        raise click.ClickException(f"--gateway-ca: {(error.strerror or 'cannot be used').lower()}") from None


@runner.command()
@key_option
@directory_option
@_choice_options
@output_option
def models(directory: Path, key_file: str | None, output: str, **given: Any) -> None:
    """Find the models of this machine's servers; approve and register those that are chosen.

    Looks at Ollama (11434), LM Studio (1234), vLLM (8000) and llama.cpp (8080). On a terminal it asks; elsewhere it
    only lists, unless --register or --register-all is given.

    \b
    Examples:
      pointsman runner models
      pointsman runner models --key-file my.key --register qwen3:8b
      pointsman runner models --key-file my.key --url http://localhost:9000/v1 --register-all
      pointsman runner models --key-file my.key --register qwen3:8b --context drop-duplicates,most-tokens=30000
    """
    from pointsman.cli.runner_models import Choice, choose_models, register_chosen, show_models
    from pointsman.runner.control_api import ControlApi

    choice = Choice(given["urls"], given["wanted"], every=given["register_all"], context=given["context"] or "")
    choice.check()
    ask = output == "text" and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    chosen = choose_models(choice, directory, ask=ask, quiet=output == "json")
    registered = {}
    if chosen.models:
        state = _state(directory)
        try:
            api = ControlApi(state.gateway, _key(key_file))
        except OSError as error:
            raise click.ClickException(f"--gateway-ca: {(error.strerror or 'cannot be used').lower()}") from None
        registered = register_chosen(api, state, directory, chosen, quiet=output == "json")
    if output == "json":
        show_models(chosen, directory, registered)
    elif not chosen.models and chosen.found and not choice.is_given and not ask:
        click.echo("Nothing was registered; give --register MODEL or --register-all to approve", err=True)


@runner.command()
@key_option
@directory_option
@output_option
def status(directory: Path, key_file: str | None, output: str) -> None:
    """Show who this runner is, whether its gateway has its connection, and what it may call.

    Asks the gateway, which may want --key-file, and the servers of the approved models.
    """
    from pointsman.cli.runner_status import as_document, as_lines, presence, problems

    state = _state(directory)
    try:
        approved = read_allowlist(directory / FILE_NAME)
    except PrivateFileError as error:
        raise click.ClickException(f"every request is refused: {error}") from None
    try:
        told = presence(state, _key(key_file))
    except OSError as error:
        raise click.ClickException(f"--gateway-ca: {(error.strerror or 'cannot be used').lower()}") from None
    seen = (state, approved, told, problems(approved))
    show(output, as_lines(*seen), as_document(*seen))


def _import_runner() -> "Callable[[RunnerState, Path, Callable[[str], None]], Coroutine[Any, Any, int]]":
    try:
        from pointsman.runner.app import run_runner
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "websockets":  # or a part of it that an old one has not
            raise
        raise click.ClickException(
            "the runner needs websockets, which is not installed or too old; pip install 'pointsman[runner]'"
        ) from None
    return run_runner


def _say(line: str) -> None:
    click.echo(f"pointsman: {line}", err=True)


def _address(url: str, ca_file: str | None) -> GatewayAddress:
    try:
        return read_control_address(url, os.path.abspath(ca_file) if ca_file else "")
    except ValueError as error:
        raise click.UsageError(f"--gateway {error}") from None


def _key(path: str | None) -> Secret | None:
    """None where none was named: a gateway may ask for none, and says so otherwise."""
    from pointsman.rpc.token_file import read_token

    if not path:
        return None
    try:
        keep_memory_private()  # before the key is in it
        return read_token(path)
    except GatewayFileError as error:
        raise click.ClickException(str(error).replace("token file", "--key-file", 1)) from None


def _approved(directory: Path) -> bool:
    try:
        return bool(read_allowlist(directory / FILE_NAME))
    except PrivateFileError as error:
        raise click.ClickException(f"every request is refused: {error}") from None


def _state(directory: Path) -> RunnerState:
    try:
        return read_state(directory)
    except PrivateFileError as error:
        raise click.ClickException(str(error)) from None


def _state_or_none(directory: Path) -> RunnerState | None:
    try:
        return read_state(directory)
    except NoSuchFile:
        return None
    except PrivateFileError as error:
        raise click.ClickException(str(error)) from None
