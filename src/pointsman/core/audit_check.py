"""Whether a record of entries is the one that was written: a walk over it that keeps nothing but the last digest. Pure.

Whoever has the key can make a record that passes; whoever has not, can at most cut its end. That shows only against a
head that was kept elsewhere.
"""

from collections.abc import Iterable

from pointsman.core.audit import NO_ENTRY, AuditEntry, AuditHead, digest_of_entry

MOST_TOLD = 20
"""Problems that are told in words; more are counted."""


class AuditCheck:
    """Give it entry after entry, then `end` once. `kept` are heads with where each was kept."""

    def __init__(self, key: bytes, start: AuditHead = NO_ENTRY, kept: Iterable[tuple[AuditHead, str]] = ()) -> None:
        self._key = key
        self.head = start
        """The last entry that was given."""
        self.checked = 0
        self.problems: list[str] = []
        """The first `MOST_TOLD`."""
        self.problem_count = 0
        self._kept = [each for each in kept if each[0].sequence > start.sequence]

    def entry(self, entry: AuditEntry) -> None:
        """The next one of the record, in the record's order."""
        self.checked += 1
        last, number = self.head, entry.sequence
        if number <= last.sequence:
            self.tell(f"entry {number} stands behind entry {last.sequence}: it was moved, repeated or inserted")
        elif number > last.sequence + 1:
            self.tell(f"{_entries(last.sequence + 1, number - 1)} missing")
        elif entry.previous != last.digest:
            self.tell(f"entry {number} does not follow the entry before it: one of the two was replaced")
        if digest_of_entry(entry, self._key) != entry.digest:
            self.tell(f"entry {number} was altered, or was not written by a gateway with this key file")
        for kept, place in self._kept:
            if kept.sequence == number and kept.digest != entry.digest:
                self.tell(f"entry {number} is not the one that {place} has: the record was rewritten")
        if number > last.sequence:
            self.head = AuditHead(number, entry.digest)

    def end(self) -> None:
        """The record is at its end: what was kept of later entries shows that it was cut."""
        for kept, place in self._kept:
            if kept.sequence > self.head.sequence:
                self.tell(
                    f"the record ends with entry {self.head.sequence}, and {place} has entry {kept.sequence}: its end "
                    "was cut off, or an older database was restored"
                )

    def tell(self, problem: str) -> None:
        """Add what was found."""
        self.problem_count += 1
        if len(self.problems) < MOST_TOLD:
            self.problems.append(problem)


def _entries(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"
