"""What an operator allows requests and answers to hold, as rules. How they are applied: `routing.policy`."""

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a rule does with what it matches."""

    BLOCK = "block"
    """Refuse: 403 `policy_blocked`; in an answer that has begun, an error event."""
    REDACT = "redact"
    """Replace the matched text by `[redacted]`; only rules of patterns in text."""
    FLAG = "flag"
    """Let it pass, and note it."""


class Side(StrEnum):
    """Where a rule looks."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class RuleScope:
    """Which requests a rule is about; an empty tuple is all."""

    routes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Names of keys; `sandbox:NAME` for a sandbox's token."""
    dialects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Exactly one of the conditions is given."""

    id: str
    side: Side
    effect: Effect
    scope: RuleScope = RuleScope()
    denied_tools: tuple[str, ...] = ()
    """Names, `*` standing for any characters: a tool that is offered, or called by the model."""
    allowed_tools: tuple[str, ...] = ()
    """All other tools are matched."""
    denied_fields: tuple[str, ...] = ()
    """Top-level fields of the request."""
    most_tokens: int = 0
    """The request asks for more output than this, or for an unbounded one."""
    pattern: str = ""
    """A regular expression of RE2: searched in all text of any role, tool results included."""
    denies_route: bool = False
    """Matches every request in its scope: whole routes, dialects or keys."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An account's rules of one version."""

    account: str
    version: int
    rules: tuple[Rule, ...]
    is_enforced: bool = False
    """False: a dry run, in which every effect is `flag`."""


class PolicyState(StrEnum):
    """What a version is for."""

    ENFORCED = "enforced"
    DRY_RUN = "dry_run"
    """In force beside the enforced one: what it would do is told."""
    KEPT = "kept"
    """As history, and to go back to."""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """What is kept of a policy. Its rules never change; at most one of an account's is enforced, and one a dry run."""

    account: str
    version: int
    """1, 2, 3 … of the account."""
    rules: tuple[Rule, ...]
    created_at: float
    """Seconds since the epoch."""
    state: PolicyState = PolicyState.DRY_RUN
    enforced_at: float | None = None
    """When it was enforced last; None for never."""

    @property
    def policy(self) -> Policy:
        """As requests meet it."""
        return Policy(self.account, self.version, self.rules, self.state is PolicyState.ENFORCED)


@dataclass(frozen=True, slots=True)
class PolicyHit:
    """A rule that matched, where: never what it matched."""

    rule: str
    effect: Effect
    place: str
    """A JSON pointer without text of the request in it: `/messages/3/content`, `/tools/0`. Empty: all of it."""
    would: Effect = Effect.FLAG
    """The rule's own effect, whether it is enforced or not."""


class Blocked(Exception):
    """A rule says that nothing more of an answer may pass.

    `told` is for the client, and repeats nothing of the answer; `passed` came before, and may go on.
    """

    def __init__(self, told: str, passed: bytes = b"") -> None:
        super().__init__(told)
        self.told = told
        self.passed = passed
