"""What is tried for one request, and what came of each try. Values only."""

from dataclasses import dataclass
from enum import StrEnum

from pointsman.core.candidate import Candidate
from pointsman.core.quota import UNLIMITED, Quota


class ErrorCategory(StrEnum):
    """What an upstream's failure means for a chain (DESIGN section 5); the words are the operation log's."""

    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    AUTH_ERROR = "auth_error"
    MODEL_UNAVAILABLE = "model_unavailable"
    REQUEST_REJECTED = "request_rejected"
    """The request is at fault: no other provider is asked."""
    UNKNOWN = "unknown_error"


@dataclass(frozen=True, slots=True)
class ErrorMapping:
    """An operator's own reading of a provider's errors; it wins over the built-in one."""

    http_status: int
    category: ErrorCategory
    error_code: str = ""
    """Compared without case with what stands at `error_code_path`; empty: every error of that status."""


@dataclass(frozen=True, slots=True)
class Member:
    """One provider of a chain, or its fallback; also that of a direct route whose key is in a file."""

    provider: str
    """The record's name."""
    candidate: Candidate
    """Resolved, but for a key that comes from a file: that is read for every attempt."""
    quota: Quota = UNLIMITED
    error_mappings: tuple[ErrorMapping, ...] = ()
    error_code_path: str = "error.code"
    """Dotted path into an error's JSON body."""
    key_file: str = ""
    """Where the candidate's key is read for every attempt; empty when the candidate carries it, or needs none."""

    @property
    def route(self) -> str:
        """The name that it is reached by."""
        return self.candidate.route

    def speaks(self, protocol: str) -> bool:
        """Whether it can be asked in a dialect."""
        return self.candidate.speaks(protocol)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain route, resolved."""

    account: str
    name: str
    members: tuple[Member, ...]
    strategy: str
    fallback: Member | None = None
    """Behind all others, whatever the strategy; never passed to one."""
    request_timeout_seconds: float = 300.0
    """Until commit, all attempts together (DESIGN section 5)."""
    forwards_model: bool = False
    """Whether the client's model name is sent (`HideModels: false`) instead of each member's own."""

    def speaks(self, protocol: str) -> bool:
        """Whether any member, or the fallback, can be asked in a dialect."""
        return any(member.speaks(protocol) for member in self.all_members)

    @property
    def all_members(self) -> tuple[Member, ...]:
        """Whom it may ask, the fallback last."""
        return self.members if self.fallback is None else (*self.members, self.fallback)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A member that is not tried."""

    provider: str
    reason: str
    """`quota_daily`, `quota_minute`, `exhausted`, `no_weight`, `dialect`, `uncounted`, `no_model`, or the
    `ErrorCategory` that an attempt ended in."""
    until: float = 0.0
    """Seconds since the epoch when it may be tried again; 0 when nobody knows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be tried, in order, the fallback last, and what will not."""

    attempts: tuple[Member, ...]
    skipped: tuple[Skipped, ...] = ()
