"""`pointsman usage`: what was used, and what it cost."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.show import show_json, show_lines, told
from pointsman.cli.since import SINCE_HELP, moment_given
from pointsman.cli.table import table
from pointsman.core.usage_sum import UsageBy, parse_by

if TYPE_CHECKING:
    from pointsman.rpc.gen.usage_pb2 import UsageSum

_FIELDS = (
    "requests",
    "failed",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "saved_tokens",
    "cost",
    "estimated",
    "unpriced",
)
_SHOWN = ("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")
_HEAD = ("REQUESTS", "FAILED", "PROMPT", "COMPLETION", "CACHED", "REASONING", "COST")


def _parsed_by(_: click.Context, __: click.Parameter, value: str) -> Sequence[UsageBy]:
    try:
        return parse_by(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "--by",
    callback=_parsed_by,
    metavar="WHAT",
    default=UsageBy.MODEL.value,
    show_default=True,
    help=f"What is put together: {', '.join(UsageBy)}, or several: day,key,model. By account, all accounts are told.",
)
@click.option("--since", callback=moment_given, metavar="WHEN", default="30d", show_default=True, help=SINCE_HELP)
@click.option(
    "--until", callback=moment_given, metavar="WHEN", help="The same; what ended then is left out. Default: now."
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "csv"]), default="text", help="How to print it.")
@client_options
def usage(access: Access, by: Sequence[UsageBy], since: float, until: float, output: str) -> None:
    """Show what was used, and what it cost: the dearest first, within the latest days.

    Days are UTC's. Tokens of answers whose upstream did not tell them are estimates; what has no price costs nothing.
    A request is in it a second after its end. Keys are told with sandboxes among them, as sandbox:NAME.

    \b
    Examples:
      pointsman usage --by key --since 2026-11-01
      pointsman usage --by day,key,model --since 7d
      pointsman usage --by day -o csv
      pointsman usage --by account -o json
    """
    from pointsman.rpc.gen import usage_pb2

    request = usage_pb2.SumUsageRequest(by=",".join(by), since_ms=round(since * 1000))
    if until:
        request.until_ms = round(until * 1000)
    with access.open() as gateway:
        sums = gateway.call(gateway.usage.SumUsage, request).sums
    if output == "json":
        show_json([_values(by, each) for each in sums])
    elif output == "csv":
        show_lines(_csv(by, sums))
    else:
        show_lines(_text(by, sums))


def _values(by: Sequence[UsageBy], each: "UsageSum") -> dict[str, Any]:
    return {**dict(zip(by, each.names, strict=True)), **{field: getattr(each, field) for field in _FIELDS}}


def _csv(by: Sequence[UsageBy], sums: Sequence["UsageSum"]) -> list[str]:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow((*by, *_FIELDS))
    writer.writerows((*map(_harmless, each.names), *(getattr(each, field) for field in _FIELDS)) for each in sums)
    return [written.getvalue().removesuffix("\n")]


def _harmless(name: str) -> str:
    """A client chooses some names, and a spreadsheet must not take one for a formula."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t") else name


def _text(by: Sequence[UsageBy], sums: Sequence["UsageSum"]) -> list[str]:
    if not sums:
        return ["No requests in this time; 'pointsman usage --help' shows how to ask for another"]
    rows = [
        (*(told(name) or "-" for name in each.names), *(str(getattr(each, field)) for field in _SHOWN)) for each in sums
    ]
    lines = table((*(each.upper() for each in by), *_HEAD), rows)
    estimated, unpriced = sum(each.estimated for each in sums), sum(each.unpriced for each in sums)
    if estimated:
        lines.append(f"Tokens of {estimated} requests are estimates: their upstream did not tell them")
    if unpriced:
        lines.append(f"{unpriced} requests had no price and cost nothing here; see pointsman price set --help")
    return lines
