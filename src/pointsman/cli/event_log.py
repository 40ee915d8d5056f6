"""The options that say where OCSF events go, shared by the commands that serve."""

import functools
from collections.abc import Callable
from typing import Any

import click

from pointsman.core.size import read_size

_LEAST_BYTES = 64 * 1024


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes. Fails for what is not a size."""
        try:
            size = read_size(str(value))
        except ValueError as error:
            self.fail(f"{error}, or 0 for no bound", param, ctx)
        if 0 < size < _LEAST_BYTES:
            self.fail(f"{value!r} is too small; at least 64K, or 0 for no bound", param, ctx)
        return size


_OPTIONS = (
    click.option(
        "--ocsf-log",
        "path",
        default="",
        metavar="FILE",
        help="Append one OCSF event per line to FILE; '-' is standard output.",
    ),
    click.option(
        "--ocsf-log-size",
        "most_bytes",
        type=_Size(),
        default="64M",
        show_default=True,
        metavar="SIZE",
        help="Begin a new FILE when it would exceed SIZE; 0: never.",
    ),
    click.option(
        "--ocsf-log-keep",
        "keep",
        type=click.IntRange(1, 999),
        default=5,
        show_default=True,
        metavar="N",
        help="Keep N older files: FILE.1 is the newest.",
    ),
)


def event_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--ocsf-log` and what belongs to it, as one argument `event_log`."""

    @functools.wraps(command)
    def with_event_log(*, path: str, most_bytes: int, keep: int, **others: Any) -> None:
        from pointsman.events.log_files import EventLog

        command(event_log=EventLog(path, most_bytes, keep), **others)

    decorated: Callable[..., None] = with_event_log
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
