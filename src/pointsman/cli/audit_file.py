"""An exported audit record: one entry a line, in JSON. Read line by line, so that its size does not matter."""

from collections.abc import Iterator
from typing import IO

import msgspec

from pointsman.core.audit import AuditEntry

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; an entry of a gateway has a tenth of that at most."""


class NoEntry(ValueError):
    """A line that is no entry; the text says which."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    sequence: int
    at: float
    account: str
    actor: str
    action: str
    subject: str
    before: str
    after: str
    previous: str
    digest: str


def line_of(entry: AuditEntry) -> str:
    """An entry, without the line's end. Before and after are texts, as the digest is over them."""
    return msgspec.json.encode(_line(entry)).decode()


def _line(entry: AuditEntry) -> _Line:
    told = (entry.account, entry.actor, entry.action, entry.subject, entry.before, entry.after)
    return _Line(entry.sequence, entry.at, *told, entry.previous.hex(), entry.digest.hex())


def entries_in(file: IO[bytes]) -> Iterator[AuditEntry]:
    """Entry after entry. Raises NoEntry, OSError."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise NoEntry(f"line {number} is longer than an entry can be")
        try:
            read = msgspec.json.decode(line, type=_Line)
            previous, digest = bytes.fromhex(read.previous), bytes.fromhex(read.digest)
        except ValueError:  # msgspec's are ValueErrors, too
            raise NoEntry(f"line {number} is no entry of an audit record; export it again") from None
        told = (read.account, read.actor, read.action, read.subject, read.before, read.after)
        yield AuditEntry(read.sequence, read.at, *told, previous, digest)
