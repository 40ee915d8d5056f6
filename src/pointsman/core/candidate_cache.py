"""What is derived from a candidate once and used for all of its requests."""

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from pointsman.core.candidate import Candidate

_T = TypeVar("_T")


class CandidateCache(Generic[_T]):
    """Keeps what `make` derives, by the candidate's identity: hashing one costs more than the rest of a look-up.

    An entry goes with its candidate, so a key that was replaced stays nowhere once its last request has ended. What
    is derived must not hold the candidate.
    """

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[Candidate], _T]) -> None:
        self._make = make
        self._kept: dict[int, tuple[weakref.ref[Candidate], _T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, candidate: Candidate) -> _T:
        """What belongs to this very object."""
        known = self._kept.get(id(candidate))
        if known is not None and known[0]() is candidate:
            return known[1]
        return self._keep(candidate)

    def _keep(self, candidate: Candidate) -> _T:
        derived = self._make(candidate)
        kept, identity = self._kept, id(candidate)

        def forget(gone: weakref.ref[Candidate]) -> None:
            # The number may already be that of another candidate.
            if identity in kept and kept[identity][0] is gone:
                del kept[identity]

        kept[identity] = (weakref.ref(candidate, forget), derived)
        return derived
