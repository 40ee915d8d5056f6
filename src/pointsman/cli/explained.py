"""An explanation in words and as JSON. Pure; the JSON is that of `POST /api/v1/explain`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pointsman.cli.show import heading, moment, told
from pointsman.cli.table import table

if TYPE_CHECKING:
    from pointsman.rpc.gen.control_pb2 import (
        ExplainedCandidate,
        ExplainedDenial,
        ExplainedQuota,
        ExplainedRewrite,
        ExplainedRunner,
        ExplainedStage,
        Explanation,
    )

_HEAD = ("TURN", "PROVIDER", "MODEL SENT", "LEFT TODAY", "LEFT THIS MINUTE", "KEY", "NOTE")
_STAGE_HEAD = ("STAGE", "DECISION", "FOR")
_SILENT = {"nothing": "Nothing to do", "not_reached": "Not reached"}
_HOW = {
    "alias": "leads to route",
    "sandbox_token": "leads, by the sandbox's token, to route",
    "default_route": "is no route's name; the default route is",
}
_REASONS = {
    "quota_daily": "no room today",
    "quota_minute": "no room this minute",
    "exhausted": "the provider said so",
    "no_weight": "no daily limit, so no weight",
    "dialect": "does not speak the dialect",
    "auth_error": "no key",
    "no_model": "no model of its own, and the request names none",
    "unresolvable": "its record leads nowhere",
    "runner_offline": "its runner is not connected",
}


def explanation_lines(made: "Explanation") -> list[str]:
    """For people: how the name led to a route, one line per candidate, what upstreams would get."""
    lines = [heading(_title(made)), ""]
    lines += [f"  {told(each.name)} {_HOW.get(each.how, 'leads to')} {told(each.to)}" for each in made.steps]
    lines += [f"  {each}" for each in _facts(made)]
    if made.HasField("denial"):
        lines += [f"  {each}" for each in _denied(made.denial)]
    lines += _stage_lines(made.stages)
    if not made.candidates:
        return lines
    rows = [tuple(told(cell) for cell in _row(each)) for each in made.candidates]
    lines += ["", *table(_HEAD, rows)]
    return [*lines, *_header_lines(made)]


def _title(made: "Explanation") -> str:
    named = told(made.model) if made.HasField("model") else "No model"
    return f"{named} at {told(made.path)}:"


def _facts(made: "Explanation") -> list[str]:
    if not made.route:
        return []
    version = f", version {made.version}" if made.version else ""
    kind = f"{made.kind} route {made.route}{version}".lstrip()
    if made.strategy:
        kind += f", {made.strategy}"
    times = f"{made.chunk_idle_secs:g} s between two pieces of an answer"
    if made.request_timeout_secs:
        times = f"{made.request_timeout_secs:g} s for an answer to begin, then {times}"
    if made.total_secs:
        begins = made.candidates[0].header_secs if made.candidates else made.chunk_idle_secs
        times = f"{begins:g} s for an answer to begin, {times}, {made.total_secs:g} s in all"
    facts = [told(f"{kind}; called by the {made.runs}, as {made.protocol}"), f"waits: {times}"]
    return [*facts, *(told(_line_of(each.runner)) for each in made.candidates if each.HasField("runner"))]


def _line_of(runner: "ExplainedRunner") -> str:
    state = "connected" if runner.connected else "not connected"
    return f"asked through runner {runner.name}, which is {state}, once: no other attempt, and nobody else after it"


def _denied(denial: "ExplainedDenial") -> list[str]:
    code = f" {denial.code}" if denial.code else ""
    lines = [f"the client gets {denial.status}{told(code)}: {told(denial.text)}"]
    if denial.stage:
        lines.append(f"refused by the stage {told(denial.stage)}")
    if denial.HasField("retry_after_secs"):
        lines.append(f"it is told to try again after {max(1, round(denial.retry_after_secs))} s")
    if denial.detail:
        lines.append(f"because: {told(denial.detail)}")
    return lines


def _stage_lines(stages: "Sequence[ExplainedStage]") -> list[str]:
    """A line for each fact; the stages that do nothing, and those that are not reached, in one line each."""
    rows = []
    for stage in stages:
        if stage.decision in _SILENT:
            continue
        facts = [f"{each.about}: {each.text}" for each in stage.facts] or ["-"]
        rows.append((stage.name, stage.decision, told(facts[0])))
        rows += [("", "", told(each)) for each in facts[1:]]
    lines = ["", *table(_STAGE_HEAD, rows)] if rows else []
    for decision, words in _SILENT.items():
        names = [told(each.name) for each in stages if each.decision == decision]
        if names:
            lines.append(f"{words}: {', '.join(names)}")
    return lines


def _row(candidate: "ExplainedCandidate") -> Sequence[str]:
    quota = candidate.quota if candidate.HasField("quota") else None
    return (
        str(candidate.place or "-"),
        candidate.provider_name or candidate.endpoint,
        candidate.rewrite.model_after or "-",
        _left(quota.daily_limit, quota.daily_used) if quota is not None else "not counted",
        _left(quota.minute_limit, quota.minute_used) if quota is not None else "not counted",
        _key(candidate),
        "; ".join(_notes(candidate)) or "-",
    )


def _left(limit: int, used: int) -> str:
    return f"{max(0, limit - used)} of {limit}" if limit else "no limit"


def _key(candidate: "ExplainedCandidate") -> str:
    if candidate.key_state == "not_needed":
        return "none needed"
    where = " file" if candidate.key_source == "file" else ""
    return f"{candidate.key_state}{where}" if candidate.key_state else "-"


def _notes(candidate: "ExplainedCandidate") -> list[str]:
    notes = ["fallback"] if candidate.fallback else []
    if candidate.by_chance:
        notes.append("drawn by chance among its equals")
    if candidate.skip_reason:
        until = moment(candidate.skip_until_ms)
        words = _REASONS.get(candidate.skip_reason, "not tried")
        notes.append(f"{candidate.skip_reason}: {words}{f', until {until}' if until else ''}")
    elif candidate.HasField("quota") and (dry := moment(candidate.quota.runs_dry_at_ms)):
        notes.append(f"runs dry at {dry} at today's pace")
    notes += [each for each in (candidate.key_problem, candidate.skip_detail) if each]
    return notes


def _header_lines(made: "Explanation") -> list[str]:
    """Once for all candidates that treat headers alike."""
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    lines: list[str] = []
    for each in made.candidates:
        if each.HasField("runner"):
            lines += ["", f"Headers for {told(each.provider_name)}: none is passed on"]
        elif each.place and each.rewrite.headers_set:  # to a mock, nothing is sent
            rewrite = each.rewrite
            rules = (rewrite.headers_kept, rewrite.headers_set, rewrite.headers_default, rewrite.headers_dropped)
            groups.setdefault(tuple(map(tuple, rules)), []).append(each.provider_name or each.endpoint)
    for (kept, ours, defaults, dropped), names in groups.items():
        lines += ["", f"Headers for {told(', '.join(names))}:", f"  passed on: {told(', '.join(kept))}"]
        lines.append(f"  set by Pointsman: {told(', '.join(ours))}")
        if defaults:
            lines.append(f"  added unless the client sends it: {told(', '.join(defaults))}")
        lines.append(f"  dropped: {told(', '.join(dropped)) + ', and ' if dropped else ''}every other")
    return lines


def explanation_json(made: "Explanation") -> dict[str, Any]:
    """All of it."""
    return {
        "account": made.account,
        "model": made.model if made.HasField("model") else None,
        "path": made.path,
        "protocol": made.protocol,
        "steps": [{"name": each.name, "how": each.how, "to": each.to} for each in made.steps],
        "route": made.route,
        "kind": made.kind,
        "version": made.version,
        "runs": made.runs,
        "strategy": made.strategy,
        "request_timeout_seconds": made.request_timeout_secs,
        "chunk_idle_seconds": made.chunk_idle_secs,
        "total_seconds": made.total_secs,
        "tried": made.tried,
        "denial": _denial_json(made.denial) if made.HasField("denial") else None,
        "candidates": [_candidate_json(each) for each in made.candidates],
        "stages": [_stage_json(each) for each in made.stages],
    }


def _stage_json(stage: "ExplainedStage") -> dict[str, Any]:
    facts = [{"about": each.about, "text": each.text, "values": dict(each.values)} for each in stage.facts]
    return {"name": stage.name, "decision": stage.decision, "facts": facts}


def _denial_json(denial: "ExplainedDenial") -> dict[str, Any]:
    return {
        "status": denial.status,
        "code": denial.code,
        "text": denial.text,
        "detail": denial.detail,
        "retry_after_seconds": denial.retry_after_secs if denial.HasField("retry_after_secs") else None,
        "stage": denial.stage,
    }


def _candidate_json(candidate: "ExplainedCandidate") -> dict[str, Any]:
    skip = {
        "reason": candidate.skip_reason,
        "until": moment(candidate.skip_until_ms),
        "detail": candidate.skip_detail,
    }
    return {
        "provider_name": candidate.provider_name,
        "provider_type": candidate.provider_type,
        "endpoint": candidate.endpoint,
        "place": candidate.place,
        "skip": skip if candidate.skip_reason else None,
        "fallback": candidate.fallback,
        "by_chance": candidate.by_chance,
        "key": {
            "state": candidate.key_state,
            "source": candidate.key_source,
            "problem": candidate.key_problem,
        },
        "quota": _quota_json(candidate.quota) if candidate.HasField("quota") else None,
        "rewrite": _rewrite_json(candidate.rewrite) if candidate.HasField("rewrite") else None,
        "header_seconds": candidate.header_secs,
        "runner": _runner_json(candidate.runner) if candidate.HasField("runner") else None,
    }


def _runner_json(runner: "ExplainedRunner") -> dict[str, Any]:
    return {"id": runner.id, "name": runner.name, "connected": runner.connected}


def _quota_json(quota: "ExplainedQuota") -> dict[str, Any]:
    return {
        "daily_limit": quota.daily_limit,
        "daily_used": quota.daily_used,
        "daily_left": max(0, quota.daily_limit - quota.daily_used) if quota.daily_limit else None,
        "minute_limit": quota.minute_limit,
        "minute_used": quota.minute_used,
        "minute_left": max(0, quota.minute_limit - quota.minute_used) if quota.minute_limit else None,
        "day_resets_at": moment(quota.day_resets_at_ms),
        "minute_resets_at": moment(quota.minute_resets_at_ms),
        "exhausted_until": moment(quota.exhausted_until_ms),
        "runs_dry_at": moment(quota.runs_dry_at_ms),
    }


def _rewrite_json(rewrite: "ExplainedRewrite") -> dict[str, Any]:
    return {
        "model_before": rewrite.model_before if rewrite.HasField("model_before") else None,
        "model_after": rewrite.model_after,
        "body": rewrite.body,
        "path": rewrite.path,
        "headers_kept": list(rewrite.headers_kept),
        "headers_set": list(rewrite.headers_set),
        "headers_default": list(rewrite.headers_default),
        "headers_dropped": list(rewrite.headers_dropped),
    }
