"""`pointsman audit`: who changed what, and whether the record of it is the one that was written."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from pointsman.cli.audit_file import entries_in, line_of
from pointsman.cli.call import Access, Gateway, client_options
from pointsman.cli.exported_chain import chain_key, checked, exported_file, key_file_option
from pointsman.cli.hash_chain import (
    PAGE,
    export_line,
    head_given,
    head_option,
    limit_option,
    show_verification,
    time_told,
    verified,
)
from pointsman.cli.show import output_option, show_json, show_lines, told
from pointsman.cli.shown_once import new_file
from pointsman.cli.since import SINCE_HELP, moment_given
from pointsman.cli.table import table
from pointsman.core.audit import AUDIT_CHAIN, AUDIT_PURPOSE, AuditEntry
from pointsman.core.chain import NO_HEAD, ChainHead
from pointsman.core.chain_check import ChainCheck, given_head

_HEAD = ("NUMBER", "TIME", "ACTOR", "ACTION", "SUBJECT", "CHANGE")
_LONGEST_CHANGE = 120


@click.group()
def audit() -> None:
    """The record of every change: who, what, before and after. Entries are chained, so that none can be altered later.

    \b
    Examples:
      pointsman audit list --since 7d --subject work
      pointsman audit verify --head 1042:9f2c…
      pointsman audit export --out audit.jsonl
    """


@audit.command(name="list")
@click.option("--since", callback=moment_given, metavar="WHEN", help=SINCE_HELP)
@click.option("--actor", default="", metavar="WHO", help="admin, key:NAME, sandbox:NAME, runner:NAME, file or gateway.")
@click.option("--action", default="", metavar="WHAT", help="key.revoke, or key for all of its actions.")
@click.option("--subject", default="", metavar="NAME", help="The record, or the request's id.")
@limit_option
@click.option("--all-accounts", is_flag=True, help="Of every account, not of one.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "jsonl"]),
    default="text",
    help="How to print it; jsonl: as 'audit export'.",
)
@client_options
def list_(access: Access, output: str, limit: int, all_accounts: bool, **wanted: Any) -> None:
    """List changes, the newest first.

    What was only read is not in the record, and neither is what was refused: it changed nothing.

    \b
    Examples:
      pointsman audit list --actor key:laptop --action ai_model
      pointsman audit list --since 2031-01-01 --limit 1000 -o json
    """
    with access.open() as gateway:
        found = _entries(gateway, limit, newest_first=True, all_accounts=all_accounts, **wanted)
        if output == "jsonl":
            for entry in found:
                show_lines([line_of(entry)])
        elif output == "json":
            show_json([_json(entry) for entry in found])
        else:
            show_lines(_rows(list(found), with_accounts=all_accounts))


def _entries(gateway: Gateway, limit: int, after: int = 0, **wanted: Any) -> Iterator[AuditEntry]:
    """Page after page. Raises CallFailed."""
    from pointsman.rpc.audit import entry_of
    from pointsman.rpc.gen import audit_pb2

    while limit > 0:
        request = audit_pb2.ListAuditRequest(after=after, limit=min(limit, PAGE), **wanted)
        page = gateway.call(gateway.audit.ListAudit, request, waiting_for=f"the entries behind number {after}")
        yield from map(entry_of, page.entries)
        limit -= len(page.entries)
        after = page.next
        if not after:
            return


def _rows(entries: list[AuditEntry], *, with_accounts: bool) -> list[str]:
    if not entries:
        return ["No entries; 'pointsman audit list --help' shows how to ask for others"]
    rows = [_HEAD, *map(_row, entries)]
    if with_accounts:
        accounts = ["ACCOUNT", *(told(entry.account) for entry in entries)]
        rows = [(*row[:2], account, *row[2:]) for row, account in zip(rows, accounts, strict=True)]
    return table(rows[0], rows[1:])


def _row(entry: AuditEntry) -> tuple[str, ...]:
    change = " -> ".join(text for text in (entry.before, entry.after) if text)
    if not entry.after:
        change = f"{change} -> gone" if change else ""
    short = change if len(change) <= _LONGEST_CHANGE else f"{change[: _LONGEST_CHANGE - 1]}…"
    cells = (entry.actor, entry.action, entry.subject, short)
    return (str(entry.sequence), time_told(entry.at), *map(told, cells))


def _json(entry: AuditEntry) -> dict[str, Any]:
    """For programs that look at changes; what digests are over is a line of `-o jsonl`."""
    return {
        "sequence": entry.sequence,
        "at": time_told(entry.at),
        "account": entry.account,
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "before": _told_json(entry.before),
        "after": _told_json(entry.after),
        "previous": entry.previous.hex(),
        "digest": entry.digest.hex(),
    }


def _told_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:  # somebody altered it
        return text


@audit.command()
@exported_file
@head_option
@key_file_option
@click.option(
    "--after",
    callback=head_given,
    metavar="NUMBER:DIGEST",
    help="Of a FILE that begins behind another's end: its head.",
)
@output_option
@client_options
def verify(access: Access, file: Path | None, output: str, **given: Any) -> None:
    """Recompute the chain over all entries, and tell what does not fit. Ends with 1 when anything does not.

    Entries that were altered, removed, moved or put in are found. A record whose end was cut off fits in itself: give
    the head that an earlier verification told, which you kept where nobody else writes. Whoever has the gateway's key
    file can write a record that fits; only a kept head shows that.

    \b
    Examples:
      pointsman audit verify
      pointsman audit verify --head 1042:9f2c…
      pointsman audit verify audit.jsonl --key-file credentials.key
    """
    if (file is None) != (given["key_file"] is None):
        raise click.UsageError("FILE and --key-file belong together: an exported record and the key it was made with")
    if file is None and given["after"] is not None:
        raise click.UsageError("--after is for a FILE; the gateway's own record begins with its first entry")
    if file is None:
        found = verified(access, given["head"], lambda gateway: gateway.audit.VerifyAudit, "the record")
    else:
        key = chain_key(given["key_file"], AUDIT_PURPOSE)
        check = ChainCheck(AUDIT_CHAIN, key, given["after"] or NO_HEAD, given_head(given["head"]))
        found = checked(file, check, entries_in)
    entries = f"{found.checked} entr{'y' if found.checked == 1 else 'ies'}"
    show_verification(
        output,
        found,
        f"The record is whole: {entries}",
        f"the audit record is not the one that was written (findings: {found.problem_count}, in {entries})",
    )


@audit.command()
@click.option("--out", metavar="FILE", help="Write it to FILE, which must not exist yet, for its owner's eyes only.")
@click.option("--after", callback=head_given, metavar="NUMBER:DIGEST", help="Only what is behind an earlier export.")
@client_options
def export(access: Access, out: str | None, after: ChainHead | None) -> None:
    """Write the whole record as lines of JSON: to keep, or to verify without the gateway.

    \b
    Examples:
      pointsman audit export --out audit.jsonl
      pointsman audit export | gzip > audit.jsonl.gz
    """
    start = after or NO_HEAD
    written = 0
    with access.open() as gateway, new_file(out) as file:
        for entry in _entries(gateway, sys.maxsize, all_accounts=True, after=start.sequence):
            export_line(file, line_of(entry), out)
            written, start = written + 1, ChainHead(entry.sequence, entry.digest)
    place = f" to {told(out)}" if out is not None else ""
    click.echo(f"pointsman: exported {written} entr{'y' if written == 1 else 'ies'}{place}; head {start}", err=True)
