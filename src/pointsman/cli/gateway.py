"""`pointsman gateway`: the control plane and the data listener, in one process or several."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from pointsman.cli.file_records import records_as_json, records_as_text
from pointsman.cli.table import table
from pointsman.config.gateway_records import FileRecords
from pointsman.config.problems import SettingsError
from pointsman.config.reload import Loaded, Source, load
from pointsman.config.setting_keys import KEYS, SettingKey
from pointsman.config.settings import Settings
from pointsman.core.control_errors import ControlError
from pointsman.proxy.memory import keep_memory_private

_PROBLEMS = 1
_HELP = {
    "role": ("all|api|data", "One process of several: the control plane, or the data listener."),
    "listen.data": ("HOST:PORT", "Where clients of models come. Port 0 picks a free one."),
    "listen.control": ("HOST:PORT", "Where REST is."),
    "listen.grpc": ("HOST:PORT", "Where sandboxes and the command line come."),
    "data_dir": ("DIR", "What the gateway keeps. Made at first start."),
    "database_url": ("URL", "A password in it belongs into the file or the variable: others see a command line."),
    "key_file": ("FILE", "Key of the credentials at rest. Made at first start."),
    "auth.grpc": ("token|none", "none asks nobody for a token; on loopback only."),
    "auth.data": ("auto|keys|none", "Whether clients of models need a key; auto: not on loopback."),
    "auth.metrics": ("token|none", "none asks nobody for a token at /metrics."),
    "public_data_url": ("URL", "The data listener as sandboxes on other machines reach it."),
    "nats_url": ("URL", "NATS server between the processes; a password in it belongs into the file or the variable."),
    "secrets_dir": ("DIR", "Where the files with the keys of providers are."),
    "default_route": ("NAME", "Where a model name leads that names no route."),
    "direct_allowed_cidrs": ("CIDR,…", "Networks that models of accounts' users may lead to, besides public ones."),
    "operation_log.dir": ("DIR", "Where the daily files of requests are."),
    "operation_log.keep_days": ("N", "Days that they are kept."),
    "usage_keep_days": ("N", "Days that the database keeps a row for each request."),
    "receipts": ("none|all|ROUTE,…", "Which requests get a receipt: hashes of what passed."),
    "tls.cert": ("FILE", "Certificate of all three listeners, PEM."),
    "tls.key": ("FILE", "Its private key."),
    "tls.client_ca": ("FILE", "Whoever connects must show a certificate that this one signed."),
}

Command = Callable[..., None]


def _setting_options(command: Command) -> Command:
    for key in reversed(KEYS):
        metavar, text = _HELP[key.path]
        command = click.option(key.option, _parameter(key), metavar=metavar, help=text)(command)
    return command


def _parameter(key: SettingKey) -> str:
    return key.path.replace(".", "__")


@click.command()
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings (YAML).")
@_setting_options
@click.option(
    "--allow-degraded",
    is_flag=True,
    help="Start though a local model's file is missing or a final fallback's server is away.",
)
@click.option("--check", is_flag=True, help="Read the settings, print them without secrets, start nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), help="How --check prints.")
def gateway(config: Path | None, allow_degraded: bool, check: bool, output: str | None, **options: str | None) -> None:
    """Run the gateway: providers, routes and tokens of sandboxes.

    \b
    Examples:
      pointsman gateway
      pointsman gateway --config /etc/pointsman/pointsman.yaml
      pointsman gateway --config pointsman.yaml --check
      pointsman gateway --config pointsman.yaml --role data --nats nats://127.0.0.1:4222

    Settings come from options, from POINTSMAN_ variables such as POINTSMAN_LISTEN__GRPC, and from the file that
    --config names; the first of them that gives a key wins. Without --config no file is read. A file whose name ends
    in .json is InferRouter's appsettings.json. See docs/reference/gateway-configuration.md.

    SIGHUP lets it read the file again, and so does a change of it; a file that is wrong changes nothing.

    It says 'pointsman: ready data=HOST:PORT control=HOST:PORT grpc=HOST:PORT' on standard error when it listens, and
    exits with 1 when it cannot start.
    """
    if output and not check:
        raise click.UsageError("-o belongs to --check")
    given = {key.path: text for key in KEYS if (text := options[_parameter(key)]) is not None}
    source = Source(config, dict(os.environ), given, allow_degraded)
    if check:
        sys.exit(_check(source, output or "text"))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # one that comes before the loop is there asks for what happens anyway
    try:
        keep_memory_private()  # before the first secret is in it
        loaded = load(source)
    except (SettingsError, OSError) as error:
        raise click.ClickException(str(error)) from None
    for warning in loaded.settings.warnings:
        click.echo(f"pointsman: warning: {warning}", err=True)
    sys.exit(_run(loaded))


def _run(loaded: Loaded) -> int:
    from pointsman.gateway.cannot_start import CannotStart
    from pointsman.proxy.background import BackgroundEnded
    from pointsman.proxy.process import run

    run_gateway = _import_gateway()
    os.umask(0o077)  # what it makes is for its user alone, also in a directory that others may read
    try:
        return run(run_gateway(loaded))
    except (BackgroundEnded, CannotStart, ControlError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _import_gateway() -> Callable[[Loaded], Coroutine[Any, Any, int]]:
    gc.disable()  # what is imported stays: looking through it for garbage costs 0.1 s
    try:
        from pointsman.gateway.app import run_gateway
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "pointsman":
            raise
        raise click.ClickException(
            f"the gateway needs {missing}, which is not installed; pip install 'pointsman[gateway]'"
        ) from None
    finally:
        gc.enable()
    return run_gateway


# --check


def _check(source: Source, output: str) -> int:
    settings, error = None, None
    try:
        settings = source.load()
    except SettingsError as found:
        error = found
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(_as_json(settings, error)), indent=2))
    else:
        click.echo("\n".join(_as_text(settings, error)))
    return _PROBLEMS if error is not None else 0


def _as_text(settings: Settings | None, error: SettingsError | None) -> list[str]:
    lines = str(error).splitlines() if error is not None else []
    if settings is not None:
        sources, shown = dict(settings.sources), settings.shown()
        lines += [f"warning: {each}" for each in settings.warnings]
        lines += table(("KEY", "VALUE", "FROM"), [(key, shown[key] or "-", sources[key]) for key in shown])
        lines += records_as_text(settings.records)
    return lines


def _as_json(settings: Settings | None, error: SettingsError | None) -> dict[str, Any]:
    problems = error.problems if error is not None else ()
    shown = settings.shown() if settings is not None else {}
    sources = dict(settings.sources) if settings is not None else {}
    return {
        "ok": error is None,
        "problems": [
            {"place": place, "line": each.line, "reason": each.reason, "next_step": each.next_step}
            for place, each in problems
        ],
        "warnings": list(settings.warnings) if settings is not None else [],
        "settings": [{"key": key, "value": value or None, "from": sources[key]} for key, value in shown.items()],
        **records_as_json(settings.records if settings is not None else FileRecords()),
    }
