"""The lines of the operation log that are about one account's requests, out of everybody's. Pure.

Most lines name no account: a request's first line does, and what follows has the same id. So what a request that began
before midnight left after it is told from its last line on.
"""

import contextlib

import msgspec

from pointsman.events.operations import INFER_CANCELLED, INFER_COMPLETED, INFER_FAILED
from pointsman.events.printable import printable

_LAST = frozenset({INFER_COMPLETED, INFER_FAILED, INFER_CANCELLED})
_LONGEST = 1024 * 1024
"""Bytes of a line; what is longer is none of ours."""


class _Line(msgspec.Struct):
    request_id: str
    event: str
    account: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


class AccountLines:
    """Feed it a file piece by piece, from its beginning."""

    def __init__(self, account: str) -> None:
        self._account = printable(account)
        self._begun: set[str] = set()
        self._rest = b""

    def of(self, piece: bytes) -> bytes:
        """The whole lines up to here that are the account's; an unfinished one waits."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST:
            self._rest = b""
        kept = [line for line in lines if self._is_its(line)]
        return b"\n".join([*kept, b""]) if kept else b""

    def _is_its(self, text: bytes) -> bool:
        with contextlib.suppress(msgspec.DecodeError):  # a line that a crash has cut, or whatever somebody else wrote
            line = _DECODER.decode(text)
            if line.account is None:
                return line.request_id in self._begun
            if line.account != self._account:
                return False
            if line.event in _LAST:
                self._begun.discard(line.request_id)
            else:
                self._begun.add(line.request_id)
            return True
        return False
