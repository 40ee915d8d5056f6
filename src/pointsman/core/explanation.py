"""What would become of a request, told without sending it.

Values only; none holds a credential, a header's value, or text of a body.
"""

from dataclasses import dataclass
from enum import StrEnum

CHAT_PATH = "/v1/chat/completions"
"""What is asked about when no path is given."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that somebody thinks of sending."""

    model: str = ""
    """What it would name; `inference.local` is an agent's way in. Empty: what the body names."""
    path: str = CHAT_PATH
    """With its query."""
    body: bytes | None = None
    """None: a body that holds the model alone."""
    headers: tuple[str, ...] = ()
    """Names of the fields that the client would send."""
    key_name: str = ""
    """Of the data listener's key that it would show; empty: anybody of the account."""
    sandbox: str = ""
    """Name of the sandbox's token that it would come with; empty for a client outside sandboxes."""
    address: str = ""
    """Where the client would come from, an IP address; empty: from where a key's networks let it in."""


@dataclass(frozen=True, slots=True)
class Denial:
    """What a client would hear in place of an answer, and no upstream would be asked."""

    status: int
    text: str
    """As the client would read it."""
    code: str = ""
    """The word that clients' libraries look at; empty where there is none."""
    detail: str = ""
    """For the operator alone, when it says more than the text."""
    retry_after_seconds: float | None = None
    stage: str = ""
    """Which one refuses, as `ExplainedStage.name`; empty: what is looked at before them, or the sandbox itself."""


class StageDecision(StrEnum):
    """What a stage makes of a request, or of how it ends."""

    NOTHING = "nothing"
    """It is not set up for such requests, or such an end is none of its."""
    PASSES = "passes"
    CHANGES = "changes"
    """It passes with another body."""
    REFUSES = "refuses"
    DEPENDS = "depends"
    """On the body, which was not given, or on the answer."""
    RECORDS = "records"
    """Something is written when the request has ended."""
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True)
class StageFact:
    """One thing that a stage goes by: a key, a budget, a policy, a price."""

    about: str
    """Its kind and name: `budget monthly`, `policy 3`."""
    text: str
    """For people."""
    values: tuple[tuple[str, str], ...] = ()
    """The same for programs, by name."""


@dataclass(frozen=True, slots=True)
class ExplainedStage:
    """One of the stages around a request of the gateway's data listener."""

    name: str
    """As in `proxy.stages.Stages`; `attempts` stands for the candidates."""
    decision: StageDecision
    facts: tuple[StageFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """How one name led to another."""

    name: str
    how: str
    """`alias`, `sandbox_token` or `default_route`."""
    to: str


class KeyState(StrEnum):
    """Whether the key is there that an attempt would send."""

    NOT_NEEDED = "not_needed"
    READABLE = "readable"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class KeyFact:
    """What may be told of a candidate's key: neither its value nor its length."""

    state: KeyState
    source: str = ""
    """`record` or `file`; empty when none is needed."""
    problem: str = ""
    """Why it cannot be used, and what to do."""


@dataclass(frozen=True, slots=True)
class QuotaFact:
    """A provider's quota as of now; times are seconds since the epoch."""

    daily_limit: int
    """0 for none; so for `minute_limit`."""
    daily_used: int
    minute_limit: int
    minute_used: int
    day_resets_at: float
    minute_resets_at: float
    exhausted_until: float
    """What an upstream said; 0 when nothing that still holds."""
    runs_dry_at: float | None
    """At the day's pace so far; None: not today, or nobody can tell."""

    @property
    def daily_left(self) -> int | None:
        """None when there is no limit."""
        return max(0, self.daily_limit - self.daily_used) if self.daily_limit else None

    @property
    def minute_left(self) -> int | None:
        """None when there is no limit."""
        return max(0, self.minute_limit - self.minute_used) if self.minute_limit else None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What an upstream would get in place of what the client sends."""

    model_before: str | None
    """None: the request names none."""
    model_after: str
    body: str
    """What happens to it: `replaced` (its model), `inserted` (a model), `same` (it names that model), `pinned`
    (whatever it names is replaced) or `unchanged` (it is not JSON)."""
    path: str
    """At the upstream, with the query."""
    headers_kept: tuple[str, ...]
    """Names that a client may send and the upstream gets."""
    headers_set: tuple[str, ...]
    """Names that are ours: the upstream gets our values, whatever the client sends."""
    headers_default: tuple[str, ...]
    """Names that are added unless the client sends them."""
    headers_dropped: tuple[str, ...]
    """Of those that were asked about, the ones that no upstream gets."""


@dataclass(frozen=True, slots=True)
class RunnerFact:
    """The runner that a model is asked through."""

    id: str
    name: str
    is_connected: bool
    """Now, to whichever process of the gateway."""


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """One provider, and whether it would be tried."""

    provider: str
    """Empty where a listener knows the endpoint alone."""
    provider_type: str
    endpoint: str
    """Scheme and authority; of a model file its path. Of a runner's model, what the runner calls on its machine."""
    place: int
    """In the order of attempts, from 1; 0: not tried."""
    skip_reason: str = ""
    """`unresolvable`, `runner_offline`, or as in `core.attempts.Skipped`; empty when it would be tried."""
    skip_until: float = 0.0
    """Seconds since the epoch; 0 when nobody knows."""
    skip_detail: str = ""
    is_fallback: bool = False
    by_chance: bool = False
    """Whether the order among its equals is drawn anew for every request."""
    key: KeyFact = KeyFact(KeyState.NOT_NEEDED)
    quota: QuotaFact | None = None
    """None where nothing is counted."""
    rewrite: Rewrite | None = None
    """None where nobody can tell, as for a record that leads nowhere."""
    header_seconds: float = 0.0
    """How long an answer's head is waited for."""
    runner: RunnerFact | None = None
    """None for what no runner is asked for."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would become of a request."""

    account: str
    model: str | None
    """What it names; None for nothing."""
    path: str
    protocol: str = ""
    """The dialect; empty when the path is none of inference."""
    steps: tuple[Step, ...] = ()
    route: str = ""
    """Where the steps ended; empty for nowhere."""
    kind: str = ""
    """As in `core.route`: `direct`, `chain`, `runner` or `model`."""
    version: int = 0
    """Of the stored route; 0 when it is not known."""
    runs: str = ""
    """`gateway` or `sandbox`: who calls the provider."""
    strategy: str = ""
    request_timeout_seconds: float = 0.0
    """Until the first byte of an answer, all attempts of a chain together; 0 for any other route."""
    chunk_idle_seconds: float = 0.0
    """Between two pieces of an answer."""
    total_seconds: float = 0.0
    """Until the last byte of an answer; 0 where only the pauses in it are bounded."""
    candidates: tuple[ExplainedCandidate, ...] = ()
    """Those that would be tried in their order, then the others."""
    denial: Denial | None = None
    stages: tuple[ExplainedStage, ...] = ()
    """In their order, all of them; none where a sandbox calls the provider itself."""

    @property
    def is_tried(self) -> bool:
        """Whether anybody would be asked."""
        return self.denial is None and any(each.place for each in self.candidates)
