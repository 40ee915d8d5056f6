"""How a request that comes back around is known: every gateway leaves its mark in one header field.

The value is the marks of the gateways that a request has passed, oldest first, with commas between them. A sandbox,
which is no gateway, sends `1`. All processes on one database are one gateway, and have one mark. Only marks are passed
on: what else a client writes there reaches no upstream.
"""

import re

HOP_FIELD = "x-pointsman-hop"
FROM_SANDBOX = b"1"
MARK_BYTES = 8
"""Random enough that no two gateways share one."""
MOST_GATEWAYS = 8
"""That one request may pass; more is a circle that somebody who changes its marks keeps going."""

_MARK = re.compile(rb"[0-9a-f]{%d}" % (2 * MARK_BYTES))


def mark_of(random: bytes) -> bytes:
    """A gateway's mark, of bytes that nobody else has."""
    return random[:MARK_BYTES].hex().encode("ascii")


def comes_back(value: bytes, mark: bytes) -> bool:
    """Whether a request with this value has been through the gateway of this mark, or through too many."""
    passed = _marks(value)
    return mark in passed or len(passed) >= MOST_GATEWAYS


def onward(value: bytes, mark: bytes) -> bytes:
    """The value for what the gateway of this mark sends on."""
    return b", ".join([*_marks(value), mark])


def _marks(value: bytes) -> list[bytes]:
    return [mark for mark in (each.strip(b" \t") for each in value.split(b",")) if _MARK.fullmatch(mark)]
