"""`POST /explain`: what may be asked, and the JSON of the answer."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from pointsman.core import explanation as core
from pointsman.core.limits import DEFAULT_LIMITS, MIB
from pointsman.core.provider import LONGEST_NAME
from pointsman.core.route import LONGEST_MODEL
from pointsman.gateway.control import ControlPlane
from pointsman.gateway.explained_question import MOST_HEADERS
from pointsman.gateway.rest.admission import AdminRoute
from pointsman.gateway.rest.endpoints import AccountName
from pointsman.gateway.rest.strict_request import BodyLimits

LARGEST_REQUEST = 2 * DEFAULT_LIMITS.body_bytes + MIB
"""Bytes. JSON that stands in a string has its quotes escaped; beyond what a listener takes, one byte is to be told."""


_LONGEST_ADDRESS = 64


class ExplainRoute(AdminRoute):
    """A path whose request holds another request's body."""

    def body_limits(self, usual: BodyLimits) -> BodyLimits:
        """More than usual."""
        return BodyLimits(max(usual.body_bytes, LARGEST_REQUEST), usual.body_seconds)


class ExplainQuestion(BaseModel):
    """A request that somebody thinks of sending. It is not sent."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    model: str = Field(
        default="",
        max_length=LONGEST_MODEL,
        description="What it would name; `inference.local` is an agent's way in. Left out when the body names it.",
    )
    path: str = Field(
        default=core.CHAT_PATH, max_length=DEFAULT_LIMITS.request_line_bytes, description="With its query."
    )
    body: str | None = Field(default=None, description="The text of its body, of at most 10 MiB.")
    header_names: list[str] = Field(
        default_factory=list, max_length=MOST_HEADERS, description="Of header fields that the client would send."
    )
    key_name: str = Field(default="", max_length=LONGEST_NAME, description="Of a key that it would come with.")
    sandbox: str = Field(default="", max_length=LONGEST_NAME, description="Name of a sandbox's token, instead.")
    address: str = Field(
        default="",
        max_length=_LONGEST_ADDRESS,
        description="An IP address that it would come from. Left out: from where the key's networks let it in.",
    )

    def question(self) -> core.Question:
        """The same for an operation."""
        body = None if self.body is None else self.body.encode("utf-8", "surrogatepass")
        return core.Question(
            self.model, self.path, body, tuple(self.header_names), self.key_name, self.sandbox, self.address
        )


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)


class ExplainedStep(_Answer):
    """How one name led to another."""

    name: str
    how: str = Field(description="alias, sandbox_token or default_route.")
    to: str


class ExplainedDenial(_Answer):
    """What the client would hear instead of an answer."""

    status: int
    code: str
    text: str
    detail: str = Field(description="For the operator alone.")
    retry_after_seconds: float | None
    stage: str = Field(description="Which one refuses; empty: what is looked at before them, or the sandbox itself.")


class ExplainedFact(_Answer):
    """One thing that a stage goes by: a key, a budget, a rule of a policy, a price."""

    about: str = Field(description="Its kind and name, as `budget monthly` or `policy 3`.")
    text: str = Field(description="For people.")
    values: dict[str, str] = Field(description="The same for programs.")


class ExplainedStage(_Answer):
    """What one of the gateway's stages makes of the request."""

    name: str = Field(
        description="authorize, budget_reserve, request_policy, context, attempts (the candidates), response_policy, "
        "budget_settle, audit, receipt or usage_record."
    )
    decision: str = Field(
        description="nothing, passes, changes (the body), refuses, depends (on the body or the answer), records or "
        "not_reached."
    )
    facts: list[ExplainedFact]


class ExplainedSkip(_Answer):
    """Why a candidate would not be asked."""

    reason: str = Field(
        description="quota_daily, quota_minute, exhausted, no_weight, dialect, auth_error, no_model, unresolvable or "
        "runner_offline."
    )
    until: datetime | None
    detail: str


class ExplainedKey(_Answer):
    """Whether the key is there; neither its value nor its length."""

    state: str = Field(description="not_needed, readable or missing.")
    source: str = Field(description="record or file.")
    problem: str


class ExplainedQuota(_Answer):
    """A provider's quota as of now; a limit of 0 is none."""

    daily_limit: int
    daily_used: int
    daily_left: int | None
    minute_limit: int
    minute_used: int
    minute_left: int | None
    day_resets_at: datetime
    minute_resets_at: datetime
    exhausted_until: datetime | None = Field(description="What the provider said.")
    runs_dry_at: datetime | None = Field(description="At the day's pace so far.")


class ExplainedRewrite(_Answer):
    """What the upstream would get in place of what the client sends; headers by name."""

    model_before: str | None
    model_after: str
    body: str = Field(description="replaced, inserted, same, pinned (whatever it names) or unchanged (no JSON).")
    path: str
    headers_kept: list[str] = Field(description="Passed on when the client sends them.")
    headers_set: list[str] = Field(description="Set by Pointsman.")
    headers_default: list[str] = Field(description="Added unless the client sends them.")
    headers_dropped: list[str] = Field(description="Of those that were asked about.")


class ExplainedRunner(_Answer):
    """The runner that a model is asked through."""

    id: str
    name: str
    connected: bool = Field(description="Now, to whichever process of the gateway.")


class ExplainedCandidate(_Answer):
    """One provider, and whether it would be asked."""

    provider_name: str
    provider_type: str
    endpoint: str = Field(description="Without its path; of a runner's model, on the runner's machine.")
    place: int = Field(description="In the order of attempts, from 1; 0: not asked.")
    skip: ExplainedSkip | None
    fallback: bool
    by_chance: bool = Field(description="Whether its place among its equals is drawn anew for every request.")
    key: ExplainedKey
    quota: ExplainedQuota | None = Field(description="None where nothing is counted.")
    rewrite: ExplainedRewrite | None
    header_seconds: float = Field(description="How long the head of its answer is waited for.")
    runner: ExplainedRunner | None = Field(description="None for what no runner is asked for.")


class ExplanationAnswer(_Answer):
    """What would become of a request."""

    account: str
    model: str | None
    path: str
    protocol: str = Field(description="The dialect.")
    steps: list[ExplainedStep]
    route: str
    kind: str = Field(description="direct, chain, runner or model.")
    version: int = Field(description="Of the route; 0 when it is not known.")
    runs: str = Field(description="gateway or sandbox: who calls the provider.")
    strategy: str
    request_timeout_seconds: float = Field(description="Of a chain: until the first byte of an answer.")
    chunk_idle_seconds: float = Field(description="Between two pieces of an answer.")
    total_seconds: float = Field(description="Until the last byte of an answer; 0 where only its pauses are bounded.")
    tried: bool = Field(description="Whether anybody would be asked.")
    denial: ExplainedDenial | None
    candidates: list[ExplainedCandidate] = Field(
        description="Those that would be asked in their order, then the others."
    )
    stages: list[ExplainedStage] = Field(
        description="In their order, all of them; none where a sandbox calls the provider itself."
    )

    @classmethod
    def of(cls, made: core.Explanation) -> "ExplanationAnswer":
        """The same for a client."""
        return cls(
            account=made.account,
            model=made.model,
            path=made.path,
            protocol=made.protocol,
            steps=[ExplainedStep(name=each.name, how=each.how, to=each.to) for each in made.steps],
            route=made.route,
            kind=made.kind,
            version=made.version,
            runs=made.runs,
            strategy=made.strategy,
            request_timeout_seconds=made.request_timeout_seconds,
            chunk_idle_seconds=made.chunk_idle_seconds,
            total_seconds=made.total_seconds,
            tried=made.is_tried,
            denial=None if made.denial is None else _denial(made.denial),
            candidates=[_candidate(each) for each in made.candidates],
            stages=[_stage(each) for each in made.stages],
        )


def _stage(stage: core.ExplainedStage) -> ExplainedStage:
    facts = [ExplainedFact(about=each.about, text=each.text, values=dict(each.values)) for each in stage.facts]
    return ExplainedStage(name=stage.name, decision=stage.decision, facts=facts)


def _denial(denial: core.Denial) -> ExplainedDenial:
    return ExplainedDenial(
        status=denial.status,
        code=denial.code,
        text=denial.text,
        detail=denial.detail,
        retry_after_seconds=denial.retry_after_seconds,
        stage=denial.stage,
    )


def _candidate(made: core.ExplainedCandidate) -> ExplainedCandidate:
    skip = ExplainedSkip(reason=made.skip_reason, until=_time(made.skip_until), detail=made.skip_detail)
    return ExplainedCandidate(
        provider_name=made.provider,
        provider_type=made.provider_type,
        endpoint=made.endpoint,
        place=made.place,
        skip=skip if made.skip_reason else None,
        fallback=made.is_fallback,
        by_chance=made.by_chance,
        key=ExplainedKey(state=made.key.state, source=made.key.source, problem=made.key.problem),
        quota=None if made.quota is None else _quota(made.quota),
        rewrite=None if made.rewrite is None else _rewrite(made.rewrite),
        header_seconds=made.header_seconds,
        runner=None if made.runner is None else _runner(made.runner),
    )


def _runner(runner: core.RunnerFact) -> ExplainedRunner:
    return ExplainedRunner(id=runner.id, name=runner.name, connected=runner.is_connected)


def _quota(quota: core.QuotaFact) -> ExplainedQuota:
    return ExplainedQuota(
        daily_limit=quota.daily_limit,
        daily_used=quota.daily_used,
        daily_left=quota.daily_left,
        minute_limit=quota.minute_limit,
        minute_used=quota.minute_used,
        minute_left=quota.minute_left,
        day_resets_at=datetime.fromtimestamp(int(quota.day_resets_at), UTC),
        minute_resets_at=datetime.fromtimestamp(int(quota.minute_resets_at), UTC),
        exhausted_until=_time(quota.exhausted_until),
        runs_dry_at=_time(quota.runs_dry_at or 0.0),
    )


def _rewrite(rewrite: core.Rewrite) -> ExplainedRewrite:
    return ExplainedRewrite(
        model_before=rewrite.model_before,
        model_after=rewrite.model_after,
        body=rewrite.body,
        path=rewrite.path,
        headers_kept=list(rewrite.headers_kept),
        headers_set=list(rewrite.headers_set),
        headers_default=list(rewrite.headers_default),
        headers_dropped=list(rewrite.headers_dropped),
    )


def _time(seconds: float) -> datetime | None:
    """In whole seconds, as everywhere; None for 0."""
    return datetime.fromtimestamp(int(seconds), UTC) if seconds else None


class ExplainEndpoint:
    """`/explain`."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def explain(self, account: AccountName, body: ExplainQuestion) -> ExplanationAnswer:
        """Say who would be asked for a request, in which order, and why others would not. Nothing is sent."""
        return ExplanationAnswer.of(await self._control.explain.explain(account, body.question()))
