"""A chain: numbered rows, each with a keyed digest over itself and the digest of the one before. Pure.

The audit record is one, and so are an account's receipts. Whether rows are the ones that were written: `chain_check`.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

GENESIS = bytes(32)
"""What the first row depends on."""
_written = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode  # made once: it takes longer than it works
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest row: whoever keeps it elsewhere can tell later that nothing up to it is missing."""

    sequence: int = 0
    """0: there is none."""
    digest: bytes = GENESIS

    def __str__(self) -> str:
        return f"{self.sequence}:{self.digest.hex()}"


NO_HEAD = ChainHead()


class Link(Protocol):
    """A row of a chain."""

    @property
    def sequence(self) -> int:
        """1, 2, 3 …, without a gap."""

    @property
    def previous(self) -> bytes:
        """The digest of the row before."""

    @property
    def digest(self) -> bytes:
        """Of this one."""


def parse_head(text: str) -> ChainHead:
    """What `str` of one gave. Raises ValueError."""
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise ValueError("a head is NUMBER:DIGEST, with 64 hexadecimal digits, as 'verify' tells it")
    return ChainHead(int(found[1]), bytes.fromhex(found[2]))


def digest_over(told: Iterable[str | int], key: bytes) -> bytes:
    """BLAKE2b, keyed, over all that a row tells: whoever has no key file cannot make a chain that verifies."""
    text = _written([*told]).encode()
    return hashlib.blake2b(text, key=key, digest_size=32).digest()
