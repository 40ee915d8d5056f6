"""A receipt of one request: hashes of what passed, chained. Pure."""

from dataclasses import dataclass, replace

from pointsman.core.chain import GENESIS, ChainHead, digest_over
from pointsman.core.chain_check import ChainKind

RECEIPTS_PURPOSE = b"receipts"
"""Of the key that digests are made with, as a store derives it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What can be shown later of one request: never a word of it."""

    sequence: int
    """1, 2, 3 …, of one account, without a gap; 0 for one that is in no chain yet."""
    request_id: str
    at: float
    """When it ended, in seconds since the epoch."""
    account: str
    route: str
    provider: str
    model: str
    policy_version: int
    """0 for none."""
    attempts: int
    status: int
    received: bytes
    """SHA-256 of the body that the client sent; 32 bytes, as the others."""
    sent: bytes
    """Of the body that went to the upstream whose answer it is; empty when nobody answered."""
    answered: bytes
    """Of the body that came back, as far as it came; empty where none was read."""
    delivered: bytes
    """Of the body that the client was handed, before chunks; `answered`, unless a rule changed it or it was cut."""
    previous: bytes = GENESIS
    """The digest of the receipt before."""
    digest: bytes = b""
    """Of this one: `digest_of_receipt`."""

    @property
    def head(self) -> ChainHead:
        """This one as the end of its chain."""
        return ChainHead(self.sequence, self.digest)


def digest_of_receipt(receipt: Receipt, key: bytes) -> bytes:
    """Over all but itself."""
    return _digest(receipt, receipt.sequence, receipt.previous, key)


def _digest(receipt: Receipt, sequence: int, previous: bytes, key: bytes) -> bytes:
    """Of the one that it is in that place."""
    told = (sequence, receipt.request_id, repr(receipt.at), receipt.account, receipt.route, receipt.provider)
    how = (receipt.model, receipt.policy_version, receipt.attempts, receipt.status)
    hashes = (receipt.received, receipt.sent, receipt.answered, receipt.delivered, previous)
    return digest_over((*told, *how, *(each.hex() for each in hashes)), key)


RECEIPT_CHAIN = ChainKind("receipt", "receipts", digest_of_receipt)


def chained(receipt: Receipt, head: ChainHead, key: bytes) -> Receipt:
    """The same as the next one behind a head."""
    number = head.sequence + 1
    digest = _digest(receipt, number, head.digest, key)
    return replace(receipt, sequence=number, previous=head.digest, digest=digest)


@dataclass(frozen=True, slots=True)
class ReceiptScope:
    """Which requests get a receipt."""

    is_all: bool = False
    routes: frozenset[str] = frozenset()
    """Names, in whichever account; `is_all` goes before."""

    def __bool__(self) -> bool:
        return self.is_all or bool(self.routes)

    def covers(self, route: str) -> bool:
        """Whether this route's requests get one."""
        return self.is_all or route in self.routes

    def __str__(self) -> str:
        return "all" if self.is_all else ", ".join(sorted(self.routes)) or "none"


NO_RECEIPTS = ReceiptScope()
