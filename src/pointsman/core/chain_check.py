"""Whether the rows of a chain are the ones that were written: a walk that keeps nothing but the last digest. Pure.

Whoever has the key can make a chain that passes; whoever has not, can at most cut its end. That shows only against a
head that was kept elsewhere.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pointsman.core.chain import NO_HEAD, ChainHead, Link

MOST_TOLD = 20
"""Problems that are told in words; more are counted."""
_Link = TypeVar("_Link", bound=Link)


@dataclass(frozen=True, slots=True)
class ChainKind(Generic[_Link]):
    """What a chain is of."""

    noun: str
    nouns: str
    digest_of: Callable[[_Link, bytes], bytes]
    """A row's digest, of it and the chain's key."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a chain, or in one part of it."""

    problems: Sequence[str]
    """The first `MOST_TOLD`."""
    problem_count: int
    checked: int
    """Rows that were looked at."""
    head: ChainHead
    """The last of them: to go on from, and at the chain's end to be kept."""
    is_complete: bool
    """Whether the chain ends there."""


def given_head(head: ChainHead | None) -> list[tuple[ChainHead, str]]:
    """A head that somebody kept and gives, as `ChainCheck` takes it; None for none."""
    return [] if head is None else [(head, "the head that was given")]


class ChainCheck(Generic[_Link]):
    """Give it row after row, then `end` once. `kept` are heads with where each was kept."""

    def __init__(
        self,
        kind: ChainKind[_Link],
        key: bytes,
        start: ChainHead = NO_HEAD,
        kept: Iterable[tuple[ChainHead, str]] = (),
    ) -> None:
        self._kind = kind
        self._key = key
        self.head = start
        """The last row that was given."""
        self.checked = 0
        self.problems: list[str] = []
        """The first `MOST_TOLD`."""
        self.problem_count = 0
        self._kept = [*kept]
        for each, place in self._kept:
            self._compare(each, place, start)

    def add(self, row: _Link) -> None:
        """The next one, in the chain's order."""
        self.checked += 1
        last, number, noun = self.head, row.sequence, self._kind.noun
        if number <= last.sequence:
            self.tell(f"{noun} {number} stands behind {noun} {last.sequence}: it was moved, repeated or inserted")
        elif number > last.sequence + 1:
            self.tell(f"{self._missing(last.sequence + 1, number - 1)} missing")
        elif row.previous != last.digest:
            self.tell(f"{noun} {number} does not follow the {noun} before it: one of the two was replaced")
        if not hmac.compare_digest(self._kind.digest_of(row, self._key), row.digest):
            self.tell(f"{noun} {number} was altered, or was not written by a gateway with this key file")
        here = ChainHead(number, row.digest)
        for kept, place in self._kept:
            self._compare(kept, place, here)
        if number > last.sequence:
            self.head = here

    def _compare(self, kept: ChainHead, place: str, here: ChainHead) -> None:
        if kept.sequence == here.sequence and kept.digest != here.digest:
            self.tell(f"{self._kind.noun} {here.sequence} is not the one that {place} has: the chain was rewritten")

    def end(self) -> None:
        """The rows are at their end: what was kept of later ones shows that it was cut."""
        noun = self._kind.noun
        for kept, place in self._kept:
            if kept.sequence > self.head.sequence:
                self.tell(
                    f"the last is {noun} {self.head.sequence}, and {place} has {noun} {kept.sequence}: the end was cut "
                    "off, or an older database was restored"
                )

    def end_noted(self, noted: ChainHead | None) -> None:
        """The same where the database itself notes the newest row, too; None: what it notes cannot be read."""
        noun = self._kind.noun
        self.end()
        if noted is None:
            self.tell(f"what the database notes of the newest {noun} was removed or altered")
        elif noted != self.head:
            self.tell(
                f"the last is {noun} {self.head.sequence}, and the database notes {noun} {noted.sequence} as the "
                f"newest: {self._kind.nouns} were removed from the end or put there"
            )

    def tell(self, problem: str) -> None:
        """Add what was found."""
        self.problem_count += 1
        if len(self.problems) < MOST_TOLD:
            self.problems.append(problem)

    def found(self, *, is_complete: bool) -> Verification:
        """All until now."""
        return Verification(self.problems, self.problem_count, self.checked, self.head, is_complete)

    def _missing(self, first: int, last: int) -> str:
        return f"{self._kind.noun} {first} is" if first == last else f"{self._kind.nouns} {first} to {last} are"
