"""What every client command prints with: blocks of `Label: value` under a heading, and JSON."""

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import click
import msgspec

from pointsman.events.printable import printable

_LONGEST_VALUE = 1000
"""Characters of one value in text; JSON has all of it."""

output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it."
)


def heading(text: str) -> str:
    """A line above others."""
    return click.style(text, bold=True)


def block(title: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A heading, an empty line, and indented pairs."""
    return [heading(title), "", *(f"  {label}: {told(value)}" for label, value in pairs)]


def told(value: str) -> str:
    """A value on one line: it may have been written by somebody else, for a terminal to obey."""
    return printable(value, _LONGEST_VALUE)


def moment(milliseconds: int) -> str | None:
    """A time since the epoch in ISO 8601, in UTC; None for 0, which means never."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if milliseconds else None


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody watches; a stream that was closed before we came is None."""
    return stream is not None and stream.isatty()


def show_lines(lines: Sequence[str]) -> None:
    """Print text; emphasis only for a terminal whose user did not decline it by NO_COLOR. Raises NotShown."""
    _print("\n".join(lines), color=is_terminal(sys.stdout) and not os.environ.get("NO_COLOR"))


def show_json(document: Any) -> None:
    """Print JSON for programs. Raises NotShown."""
    _print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode(), color=False)


def show(output: str, lines: Sequence[str], document: Any) -> None:
    """Print the one form or the other. Raises NotShown."""
    if output == "json":
        show_json(document)
    else:
        show_lines(lines)


class NotShown(click.ClickException):
    """What was asked was done, and could not be printed."""


def _print(text: str, *, color: bool) -> None:
    if sys.stdout is None:
        raise NotShown("it is done, but the answer could not be written: standard output is closed")
    try:
        click.echo(text, color=color)
    except OSError as error:
        # Whatever is still buffered would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = (error.strerror or "failed").lower()
        raise NotShown(f"it is done, but the answer could not be written: {reason}") from None
