"""Which candidate a request goes to."""

from pointsman.core.candidate import Candidate
from pointsman.core.errors import NoCompatibleRoute, NotConfigured


def select_candidate(candidates: tuple[Candidate, ...], protocol: str) -> Candidate:
    """The first candidate, in bundle order, that speaks the dialect.

    Raises NotConfigured when there are no candidates at all, NoCompatibleRoute when none fits.
    """
    if not candidates:
        raise NotConfigured
    for candidate in candidates:
        if protocol in candidate.protocols:
            return candidate
    raise NoCompatibleRoute(f"no route speaks {protocol}")
