"""What the names that clients put into `model` lead to, at one moment."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from pointsman.core.attempts import Chain, Member
from pointsman.core.candidate import Candidate
from pointsman.core.data_key import DataKey

Target = Candidate | Member | Chain
"""A direct route's one candidate, the same with a key that is read from a file for each request, or a chain."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """Immutable: a request keeps the one that it began with."""

    targets: Mapping[str, Target] = field(default_factory=dict)
    """By route name."""
    default: str = ""
    """The route of every other name; empty for none."""

    def find(self, model: str | None) -> Target | None:
        """Where a model leads, None for nowhere."""
        found = self.targets.get(model) if model is not None else None
        return found or self.targets.get(self.default)

    def speaks(self, protocol: str) -> bool:
        """Whether anything here can be asked in a dialect."""
        return any(target.speaks(protocol) for target in self.targets.values())

    def only(self, names: Container[str]) -> "ModelTable":
        """The same for whoever may use some routes and no other."""
        kept = {name: target for name, target in self.targets.items() if name in names}
        return ModelTable(kept, self.default if self.default in kept else "")


NO_MODELS = ModelTable()


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """Who may use what, at one moment."""

    accounts: Mapping[str, ModelTable] = field(default_factory=dict)
    """By account."""
    keys: Mapping[bytes, tuple[DataKey, ModelTable]] = field(default_factory=dict)
    """By digest."""
