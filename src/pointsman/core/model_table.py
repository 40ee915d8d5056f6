"""What the names that clients put into `model` lead to, at one moment."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pointsman.core.attempts import Chain, Member
from pointsman.core.caller import Caller
from pointsman.core.candidate import Candidate
from pointsman.core.reach import Network
from pointsman.core.runner_model import RunnerModel

Target = Candidate | Member | Chain | RunnerModel
"""A direct route's one candidate, the same with a key that is read from a file for each request, a chain, or a model
beside a runner."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """Immutable: a request keeps the one that it began with."""

    targets: Mapping[str, Target] = field(default_factory=dict)
    """By route name."""
    default: str = ""
    """The route of every other name; empty for none."""

    barred: Mapping[str, Target] = field(default_factory=dict)
    """The account's other routes, which whoever has this table may not use. A name that is in `targets` too counts
    there."""
    unserved: frozenset[str] = frozenset()
    """Names that were meant to lead somewhere, and do not at present: of routes and models whose records lead nowhere,
    and what a key or token names that is not there. Who asks for one of them is not given another."""

    def find(self, model: str | None) -> Target | None:
        """Where a model leads, None for nowhere. What is barred or not served does not lead to the default either."""
        if model is not None:
            found = self.targets.get(model)
            if found is not None:
                return found
            if model in self.barred or model in self.unserved:
                return None
        return self.targets.get(self.default)

    def speaks(self, protocol: str) -> bool:
        """Whether anything of the account can be asked in a dialect: a path does not tell who may use it."""
        return any(target.speaks(protocol) for each in (self.targets, self.barred) for target in each.values())

    def only(self, names: Iterable[str], barred: Mapping[str, Target] | None = None) -> "ModelTable":
        """The same for whoever may use some routes and no other.

        `barred`: all that is here, for a caller that makes many such tables, which would otherwise hold a copy each.
        """
        wanted = frozenset(names)
        kept = {name: target for name, target in self.targets.items() if name in wanted}
        gone = wanted - kept.keys() - self.barred.keys()
        unserved = self.unserved | gone if gone else self.unserved  # else all such tables have the one
        return ModelTable(kept, self.default if self.default in kept else "", barred or self.all_targets, unserved)

    def without(self, names: Iterable[str]) -> "ModelTable":
        """The same for whoever may not use some routes."""
        return self.only(self.targets.keys() - set(names))

    @property
    def all_targets(self) -> Mapping[str, Target]:
        """Of the account, whoever may use them. Made when asked."""
        return {**self.barred, **self.targets}


NO_MODELS = ModelTable()


@dataclass(frozen=True, slots=True)
class Entry:
    """What one key opens, or one sandbox's token."""

    caller: Caller
    table: ModelTable
    valid_until: float = math.inf
    """Seconds since the epoch: when it was revoked, or expires."""
    may_infer: bool = True
    """Whether it has the permission to call models at all."""
    networks: tuple[Network, ...] = ()
    """Where its requests may come from; empty for anywhere."""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """Who may use what, at one moment."""

    accounts: Mapping[str, ModelTable] = field(default_factory=dict)
    """By account."""
    keys: Mapping[bytes, Entry] = field(default_factory=dict)
    """By digest; keys and sandbox tokens, revoked ones included."""
    halted: frozenset[str] = frozenset()
    """Accounts that may do nothing."""
