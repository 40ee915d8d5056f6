"""The newest head of the audit record in a file of this gateway's, beside its other files and not in the database.

Whoever shortens the record in the database, and its head there with it, does not reach this one. It is a lower bound:
a gateway that is killed, or that shares the database with others, has noted an older head, never a newer one.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from pointsman.core.audit import AuditQuery
from pointsman.core.chain import NO_HEAD, ChainHead, parse_head
from pointsman.store.interface import Reader

FILE_NAME = "audit.head"
_LONGEST_FILE = 1024


class AuditHeadFile:
    """Once it contradicts the record it is kept as it is, until somebody has looked and removes it. One that cannot be
    written is tried again with the next head: what it holds stays true."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.path = directory / FILE_NAME
        self._say = say
        self._head = NO_HEAD
        self._is_kept = False
        self._trouble = ""
        """Why it could not be written, the last time."""

    def read(self) -> ChainHead | None:
        """What it holds; None when there is none. Raises ValueError for what is no head, OSError."""
        try:
            with self.path.open("rb") as file:
                return parse_head(file.read(_LONGEST_FILE).decode("ascii", "replace"))
        except FileNotFoundError:
            return None

    def kept(self) -> tuple[ChainHead, str] | None:
        """The same with where it is. Raises as `read`."""
        head = self.read()
        return None if head is None else (head, str(self.path))

    async def check(self, reader: Reader) -> None:
        """At the start: whether the record still holds what this file says, which is told when it does not."""
        try:
            head = self.read() or NO_HEAD
        except (OSError, ValueError) as error:
            self._keep(f"{self.path} cannot be read ({type(error).__name__})")
            return
        if await holds(reader, head):
            self._head = head
        else:
            self._keep(f"the record does not hold entry {head.sequence} as {self.path} noted it")

    def note(self, head: ChainHead) -> None:
        """A head that has just been committed."""
        if self._is_kept:
            return
        if head.sequence <= self._head.sequence:
            self._keep(f"the record has got shorter than entry {self._head.sequence}, which {self.path} noted")
            return
        self._head = head
        try:
            self._write(head)
            trouble = ""
        except OSError as error:
            trouble = error.strerror or type(error).__name__
        if trouble and trouble != self._trouble:
            self._say(
                f"audit: {self.path} cannot be written ({trouble}); it is tried again with each entry, and a cut of "
                "what was added since would not be noticed"
            )
        elif self._trouble and not trouble:
            self._say(f"audit: {self.path} is written again")
        self._trouble = trouble

    def _write(self, head: ChainHead) -> None:
        draft = self.path.with_name(f".{FILE_NAME}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{head}\n")
        draft.replace(self.path)

    def _keep(self, why: str) -> None:
        self._is_kept = True
        self._say(
            f"audit: {why}; the file stays as it is from now on. Look with 'pointsman audit verify', and when all is "
            "well remove it and restart the gateway"
        )


async def holds(reader: Reader, head: ChainHead) -> bool:
    """Whether the record has the entry of a head."""
    if head.sequence == 0:
        return True
    found = await reader.audit(AuditQuery(1, after=head.sequence - 1))
    return bool(found) and (found[0].sequence, found[0].digest) == (head.sequence, head.digest)
