"""Explanations of `core` to protobuf messages, and questions back. No message leaves the gRPC edge."""

from pointsman.core.explanation import (
    CHAT_PATH,
    Denial,
    ExplainedCandidate,
    ExplainedStage,
    Explanation,
    Question,
    QuotaFact,
    Rewrite,
    RunnerFact,
)
from pointsman.rpc.gen import control_pb2 as pb


def question(message: pb.ExplainRequest) -> Question:
    """What a client asks."""
    return Question(
        model=message.model,
        path=message.path or CHAT_PATH,
        body=message.body if message.HasField("body") else None,
        headers=tuple(message.header_names),
        key_name=message.key_name.strip(),
        sandbox=message.sandbox.strip(),
        address=message.address.strip(),
    )


def explanation_message(made: Explanation) -> pb.Explanation:
    """What it is told."""
    return pb.Explanation(
        account=made.account,
        model=made.model,
        path=made.path,
        protocol=made.protocol,
        steps=[pb.ExplainedStep(name=each.name, how=each.how, to=each.to) for each in made.steps],
        route=made.route,
        kind=made.kind,
        version=made.version,
        runs=made.runs,
        strategy=made.strategy,
        request_timeout_secs=made.request_timeout_seconds,
        chunk_idle_secs=made.chunk_idle_seconds,
        candidates=map(_candidate, made.candidates),
        tried=made.is_tried,
        denial=_denial(made.denial) if made.denial is not None else None,
        total_secs=made.total_seconds,
        stages=map(_stage, made.stages),
    )


def _stage(stage: ExplainedStage) -> pb.ExplainedStage:
    facts = [pb.ExplainedFact(about=each.about, text=each.text, values=dict(each.values)) for each in stage.facts]
    return pb.ExplainedStage(name=stage.name, decision=stage.decision, facts=facts)


def _denial(denial: Denial) -> pb.ExplainedDenial:
    return pb.ExplainedDenial(
        status=denial.status,
        text=denial.text,
        code=denial.code,
        detail=denial.detail,
        retry_after_secs=denial.retry_after_seconds,
        stage=denial.stage,
    )


def _candidate(candidate: ExplainedCandidate) -> pb.ExplainedCandidate:
    return pb.ExplainedCandidate(
        provider_name=candidate.provider,
        provider_type=candidate.provider_type,
        endpoint=candidate.endpoint,
        place=candidate.place,
        skip_reason=candidate.skip_reason,
        skip_until_ms=_milliseconds(candidate.skip_until),
        skip_detail=candidate.skip_detail,
        fallback=candidate.is_fallback,
        by_chance=candidate.by_chance,
        key_state=candidate.key.state,
        key_source=candidate.key.source,
        key_problem=candidate.key.problem,
        quota=_quota(candidate.quota) if candidate.quota is not None else None,
        rewrite=_rewrite(candidate.rewrite) if candidate.rewrite is not None else None,
        header_secs=candidate.header_seconds,
        runner=_runner(candidate.runner) if candidate.runner is not None else None,
    )


def _runner(runner: RunnerFact) -> pb.ExplainedRunner:
    return pb.ExplainedRunner(id=runner.id, name=runner.name, connected=runner.is_connected)


def _quota(quota: QuotaFact) -> pb.ExplainedQuota:
    return pb.ExplainedQuota(
        daily_limit=quota.daily_limit,
        daily_used=quota.daily_used,
        minute_limit=quota.minute_limit,
        minute_used=quota.minute_used,
        day_resets_at_ms=_milliseconds(quota.day_resets_at),
        minute_resets_at_ms=_milliseconds(quota.minute_resets_at),
        exhausted_until_ms=_milliseconds(quota.exhausted_until),
        runs_dry_at_ms=_milliseconds(quota.runs_dry_at or 0.0),
    )


def _rewrite(rewrite: Rewrite) -> pb.ExplainedRewrite:
    return pb.ExplainedRewrite(
        model_before=rewrite.model_before,
        model_after=rewrite.model_after,
        body=rewrite.body,
        path=rewrite.path,
        headers_kept=rewrite.headers_kept,
        headers_set=rewrite.headers_set,
        headers_default=rewrite.headers_default,
        headers_dropped=rewrite.headers_dropped,
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
