"""What is derived from a candidate once and used for all of its requests."""

from collections.abc import Callable
from typing import Generic, TypeVar

from pointsman.core.candidate import Candidate

_T = TypeVar("_T")
_MOST_KEPT = 64
"""More than a bundle has; candidates of bundles that were replaced go with the next clearing."""


class CandidateCache(Generic[_T]):
    """Keeps what `make` derives, by the candidate's identity: hashing one costs more than the rest of a look-up."""

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[Candidate], _T]) -> None:
        self._make = make
        self._kept: dict[int, tuple[Candidate, _T]] = {}

    def get(self, candidate: Candidate) -> _T:
        """What belongs to this very object, which is held as long as the entry, so its identity stays its own."""
        known = self._kept.get(id(candidate))
        if known is not None and known[0] is candidate:
            return known[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        derived = self._make(candidate)
        self._kept[id(candidate)] = (candidate, derived)
        return derived
