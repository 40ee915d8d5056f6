"""SHA-256 of the bodies of one request, as they pass. Pure."""

import hashlib
from collections.abc import Iterable

Bytes = bytes | memoryview


class BodyHashes:
    """What a receipt tells of one request. Not a dataclass: one is made per request that gets a receipt.

    What came back and what was handed to the client are nearly always the same bytes, handed a little later: they are
    hashed once, until they part.
    """

    __slots__ = ("_answered", "_common", "_handed", "_has_answer", "_pending", "received", "sent")

    def __init__(self, received: bytes) -> None:
        self.received = received
        """Of the client's body: 32 bytes, as every other."""
        self.sent = b""
        """Of the body of the attempt that is made now; empty when none was sent."""
        self._common = hashlib.sha256()
        self._pending = b""
        """What came and was not handed on yet, while nothing else was handed."""
        self._answered = self._handed = self._common
        """Two of their own once they have parted."""
        self._has_answer = False

    def send(self, pieces: Iterable[Bytes]) -> None:
        """An attempt sends these, one behind the other."""
        hashed = hashlib.sha256()
        for piece in pieces:
            hashed.update(piece)
        self.sent = hashed.digest()

    def come(self, data: bytes) -> None:
        """These are the next bytes of the answer that is to be the client's, as they came."""
        self._has_answer = True
        if self._answered is not self._common:
            self._answered.update(data)
        else:
            self._pending = self._pending + data if self._pending else data

    def hand(self, data: bytes) -> None:
        """These are the next bytes that the client is handed."""
        if not data:
            return
        if self._handed is self._common:
            pending = self._pending
            if pending.startswith(data):
                self._pending = pending[len(data) :]
            else:
                self._answered, self._handed = self._common.copy(), self._common.copy()
                self._answered.update(pending)
                self._pending = b""
        self._handed.update(data)

    @property
    def answered(self) -> bytes:
        """Of what came; empty when no answer's body was read."""
        return self.ends()[0]

    @property
    def delivered(self) -> bytes:
        """Of what was handed to the client."""
        return self.ends()[1]

    def ends(self) -> tuple[bytes, bytes]:
        """`answered` and `delivered`, as they are now: one digest where they are the same."""
        delivered = self._handed.digest()
        if not self._has_answer:
            return b"", delivered
        if self._answered is self._handed and not self._pending:
            return delivered, delivered
        hashed = self._answered.copy()
        hashed.update(self._pending)
        return hashed.digest(), delivered
