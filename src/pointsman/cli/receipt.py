"""`pointsman receipt`: what can be shown of requests, and whether it is what was written."""

import hashlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pointsman.cli.call import Access, Gateway, client_options
from pointsman.cli.exported_chain import chain_key, checked, exported_file, key_file_option
from pointsman.cli.hash_chain import (
    PAGE,
    export_line,
    head_option,
    limit_option,
    show_verification,
    time_told,
    verified,
)
from pointsman.cli.receipt_file import receipts_in
from pointsman.cli.show import block, output_option, show, show_json, show_lines, told
from pointsman.cli.shown_once import new_file
from pointsman.cli.since import SINCE_HELP, moment_given
from pointsman.cli.table import table
from pointsman.core.chain import ChainHead
from pointsman.core.chain_check import ChainCheck, Verification, given_head
from pointsman.core.receipt import RECEIPT_CHAIN, RECEIPTS_PURPOSE

if TYPE_CHECKING:
    from pointsman.rpc.gen.receipts_pb2 import Receipt

_HEAD = ("NUMBER", "TIME", "REQUEST", "ROUTE", "PROVIDER", "STATUS", "ATTEMPTS")
_HASHES = ("received", "sent", "answered", "delivered")
_AT_ONCE = 1024 * 1024  # bytes of a file that are read together


@click.group()
def receipt() -> None:
    """Receipts: SHA-256 of what a client sent, what went to the provider, what came back, and what was delivered.

    Requests get one where the gateway's setting 'receipts' says so: none, all, or routes by name. An answer's header
    x-pointsman-request-id names its receipt, half a second after it has ended. Receipts are chained, so that none can
    be altered later.

    \b
    Examples:
      pointsman receipt list --limit 20
      pointsman receipt check 8f3a0c21d4e5-1f --request sent.json --response answer.json
      pointsman receipt verify --head 1042:9f2c…
    """


@receipt.command(name="list")
@limit_option
@click.option("--since", callback=moment_given, metavar="WHEN", help=SINCE_HELP)
@output_option
@client_options
def list_(access: Access, limit: int, since: float, output: str) -> None:
    """List receipts, the newest first.

    \b
    Examples:
      pointsman receipt list --since 1d
      pointsman receipt list --limit 1000 -o json
    """
    with access.open() as gateway:
        found = list(itertools.takewhile(lambda each: each.at >= since, _receipts(gateway, limit, newest_first=True)))
    if output == "json":
        show_json([_json(each) for each in found])
    else:
        rows = [_row(each) for each in found]
        none = f"No receipts of account {access.account}; the gateway's setting 'receipts' says which requests get one"
        show_lines(table(_HEAD, rows) if rows else [none])


def _receipts(gateway: Gateway, limit: int, *, newest_first: bool = False) -> Iterator["Receipt"]:
    """Page after page. Raises CallFailed."""
    from pointsman.rpc.gen import receipts_pb2

    after = 0
    while limit > 0:
        request = receipts_pb2.ListReceiptsRequest(after=after, limit=min(limit, PAGE), newest_first=newest_first)
        page = gateway.call(gateway.receipts.ListReceipts, request, waiting_for=f"the receipts behind number {after}")
        yield from page.receipts
        limit -= len(page.receipts)
        after = page.next
        if not after:
            return


@receipt.command()
@click.argument("request_id", metavar="ID")
@output_option
@client_options
def get(access: Access, request_id: str, output: str) -> None:
    """Show the receipt of a request.

    \b
    Example:
      pointsman receipt get 8f3a0c21d4e5-1f
    """
    with access.open() as gateway:
        found = _found(gateway, request_id)
    show(output, block("Receipt:", _pairs(found)), _json(found))


def _found(gateway: Gateway, request_id: str) -> "Receipt":
    from pointsman.rpc.gen import receipts_pb2

    return gateway.call(gateway.receipts.GetReceipt, receipts_pb2.GetReceiptRequest(request_id=request_id))


_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@receipt.command()
@click.argument("request_id", metavar="ID")
@click.option("--request", "sent", type=_file, metavar="FILE", help="The body that the client sent.")
@click.option("--response", "answer", type=_file, metavar="FILE", help="The body that the client got.")
@output_option
@client_options
def check(access: Access, request_id: str, sent: Path | None, answer: Path | None, output: str) -> None:
    """Compare files that a client kept with the receipt of a request. Ends with 1 when either differs.

    The files are bodies byte for byte: without header fields, chunks or compression of their own.

    \b
    Example:
      pointsman receipt check 8f3a0c21d4e5-1f --request sent.json --response answer.json
    """
    if sent is None and answer is None:
        raise click.UsageError("name what to compare: --request FILE, --response FILE, or both")
    kept = {"request": (sent, "received"), "response": (answer, "delivered")}
    hashes = {what: (_digest_of(file), field) for what, (file, field) in kept.items() if file is not None}
    with access.open() as gateway:
        found = _found(gateway, request_id)
    equal = {what: digest == getattr(found, field) for what, (digest, field) in hashes.items()}
    lines = [
        f"The {what} is the one of the receipt" if is_equal else _difference(found, what, *hashes[what])
        for what, is_equal in equal.items()
    ]
    show(output, lines, {"request_id": found.request_id, **equal})
    differing = [what for what, is_equal in equal.items() if not is_equal]
    if differing:
        raise click.ClickException(
            f"the {' and the '.join(differing)} of {told(request_id)} is not what the gateway saw; see 'pointsman "
            f"receipt get', and verify the receipts themselves: {access.command('receipt verify')}"
        )


def _difference(found: "Receipt", what: str, digest: bytes, field: str) -> str:
    told_there = getattr(found, field).hex() or "empty"
    return f"The {what} differs: the receipt's {field} is {told_there}, the file's is {digest.hex()}"


def _digest_of(path: Path) -> bytes:
    hashed = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(_AT_ONCE):
                hashed.update(data)
    except OSError as error:
        raise click.ClickException(f"{told(str(path))}: {(error.strerror or 'cannot be read').lower()}") from None
    return hashed.digest()


@receipt.command()
@exported_file
@head_option
@key_file_option
@output_option
@client_options
def verify(access: Access, file: Path | None, head: ChainHead | None, key_file: Path | None, output: str) -> None:
    """Recompute the chain over an account's receipts, and tell what does not fit. Ends with 1 when anything does not.

    Receipts that were altered, removed, moved or put in are found. Receipts whose end was cut off fit in themselves:
    give the head that an earlier verification told, which you kept where nobody else writes.

    \b
    Examples:
      pointsman receipt verify
      pointsman receipt verify --head 1042:9f2c…
      pointsman receipt verify receipts.jsonl --key-file credentials.key
    """
    if (file is None) != (key_file is None):
        raise click.UsageError("FILE and --key-file belong together: exported receipts and the key they were made with")
    if file is not None and key_file is not None:
        check = ChainCheck(RECEIPT_CHAIN, chain_key(key_file, RECEIPTS_PURPOSE), kept=given_head(head))
        _show_verified(output, checked(file, check, receipts_in), f"The receipts of {told(str(file))}")
        return
    found = verified(access, head, lambda gateway: gateway.receipts.VerifyReceipts, "receipts")
    _show_verified(output, found, f"The receipts of account {access.account}")


def _show_verified(output: str, found: Verification, which: str) -> None:
    number = f"{found.checked} receipt{'' if found.checked == 1 else 's'}"
    show_verification(
        output,
        found,
        f"{which} are whole: {number}",
        f"the receipts are not the ones that were written (findings: {found.problem_count}, in {number})",
    )


@receipt.command()
@click.option("--out", metavar="FILE", help="Write them to FILE, which must not exist yet, for its owner's eyes only.")
@client_options
def export(access: Access, out: str | None) -> None:
    """Write all receipts of an account as lines of JSON, the oldest first: to keep, or to compare with later.

    \b
    Examples:
      pointsman receipt export --out receipts.jsonl
      pointsman receipt export | gzip > receipts.jsonl.gz
    """
    written = 0
    with access.open() as gateway, new_file(out) as file:
        for each in _receipts(gateway, sys.maxsize):
            export_line(file, msgspec.json.encode(_line(each)).decode(), out)
            written += 1
    place = f" to {told(out)}" if out is not None else ""
    click.echo(f"pointsman: exported {written} receipt{'' if written == 1 else 's'}{place}", err=True)


def _row(made: "Receipt") -> tuple[str, ...]:
    names = (made.request_id, made.route, made.provider or "-")
    return (str(made.sequence), time_told(made.at), *map(told, names), str(made.status), str(made.attempts))


def _pairs(made: "Receipt") -> list[tuple[str, str]]:
    return [
        ("Request", made.request_id),
        ("Ended at", time_told(made.at)),
        ("Route", made.route),
        ("Provider", made.provider or "none answered"),
        ("Model", made.model),
        ("Policy version", str(made.policy_version or "none")),
        ("Attempts", str(made.attempts)),
        ("Status", str(made.status or "none: the client left before")),
        *((name.capitalize(), getattr(made, name).hex() or "nothing") for name in _HASHES),
        ("Number", str(made.sequence)),
        ("Previous", made.previous.hex()),
        ("Digest", made.digest.hex()),
    ]


def _json(made: "Receipt") -> dict[str, Any]:
    """For programs that look at receipts; what digests are over is a line of an export."""
    return {**_line(made), "at": time_told(made.at)}


def _line(made: "Receipt") -> dict[str, Any]:
    names = ("sequence", "request_id", "at", "account", "route", "provider", "model")
    numbers = ("policy_version", "attempts", "status")
    hashes = {name: getattr(made, name).hex() for name in (*_HASHES, "previous", "digest")}
    return {**{name: getattr(made, name) for name in (*names, *numbers)}, **hashes}
