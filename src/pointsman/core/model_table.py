"""What the names that clients put into `model` lead to, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pointsman.core.candidate import Candidate


@dataclass(frozen=True, slots=True)
class ModelTable:
    """Immutable: a request keeps the one that it began with."""

    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    """By route name."""
    default: str = ""
    """The route of every other name; empty for none."""

    def find(self, model: str | None) -> Candidate | None:
        """Where a model leads, None for nowhere."""
        found = self.candidates.get(model) if model is not None else None
        return found or self.candidates.get(self.default)
