"""Exported receipts: one a line, in JSON. Read line by line, so that their number does not matter."""

from collections.abc import Iterator
from typing import IO

import msgspec

from pointsman.cli.audit_file import LONGEST_LINE, NoEntry
from pointsman.core.receipt import Receipt


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    sequence: int
    request_id: str
    at: float
    account: str
    route: str
    provider: str
    model: str
    policy_version: int
    attempts: int
    status: int
    received: str
    sent: str
    answered: str
    delivered: str
    previous: str
    digest: str


def receipts_in(file: IO[bytes]) -> Iterator[Receipt]:
    """Receipt after receipt. Raises NoEntry, OSError."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        try:
            read = msgspec.json.decode(line[:LONGEST_LINE], type=_Line)
            hashes = (read.received, read.sent, read.answered, read.delivered, read.previous, read.digest)
            told = msgspec.structs.astuple(read)[: -len(hashes)]
            yield Receipt(*told, *map(bytes.fromhex, hashes))
        except ValueError:  # msgspec's are ValueErrors, too
            raise NoEntry(f"line {number} is no receipt; export them again") from None
