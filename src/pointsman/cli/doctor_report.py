"""A diagnosis in words: a table for people, JSON for programs. Pure."""

from typing import Any

import msgspec

from pointsman.cli.table import table
from pointsman.sandbox.app import DEFAULT_PORT
from pointsman.sandbox.doctor.client import Kind
from pointsman.sandbox.doctor.diagnose import Diagnosis
from pointsman.sandbox.doctor.endpoints import Reach
from pointsman.sandbox.doctor.examine import Examination
from pointsman.sandbox.doctor.mend import effective, lasting
from pointsman.sandbox.doctor.reading import Outcome

_CLIENT_HEAD = ("CLIENT", "VERSION", "USES THE DOOR", "TRUSTS THE CA", "MEND")
_FINDING_HEAD = ("STATE", "WHAT", "FOUND")
_ENDPOINT_HEAD = ("ENDPOINT", "REACHED", "ROUTES", "NEXT STEP")
_WORDS = {True: "yes", False: "no", None: "?"}


def as_text(diagnosis: Diagnosis) -> list[str]:
    """Lines for people."""
    where = "inside a sandbox" if diagnosis.inside else "outside a sandbox: what one on this host would meet"
    lines = [f"{where}; door {diagnosis.situation.proxy_url}" if diagnosis.inside else where, ""]
    lines += table(
        _FINDING_HEAD, [(each.state, each.subject, _with(each.detail, each.mend)) for each in diagnosis.findings]
    )
    rows = [row for each in diagnosis.examinations for row in _rows(each, diagnosis)]
    rows += [
        (each.name, each.version, "yes" if each.configured else "not told to", "not run", each.mend or "-")
        for each in diagnosis.agents
    ]
    if rows:
        lines += ["", *table(_CLIENT_HEAD, rows)]
    if diagnosis.reaches:
        lines += [
            "",
            *table(_ENDPOINT_HEAD, [_reach(each) for each in diagnosis.reaches]),
        ]
    return [*lines, "", _verdict(diagnosis)]


def _with(detail: str, mend: str) -> str:
    return f"{detail}; {mend}" if mend else detail


def _rows(examination: Examination, diagnosis: Diagnosis) -> list[tuple[str, ...]]:
    client = examination.client
    first, *others = _mends(examination, diagnosis)
    uses = "by its -proxy" if client.kind is Kind.OPENSSL and examination.uses_door else _WORDS[examination.uses_door]
    twins = [each for each in diagnosis.examinations if each.client.name == client.name]
    name = client.name if len(twins) == 1 else f"{client.path} {client.library}".rstrip()
    head = (name, client.version, uses, _WORDS[examination.trusts_authority], first)
    return [head, *(("", "", "", "", other) for other in others)]


def _mends(examination: Examination, diagnosis: Diagnosis) -> list[str]:
    """The mends, and whether they were seen to work; what went wrong where there are none."""
    if examination.first.outcome is Outcome.HOSTS_FILE:
        return [f"- ({examination.first.detail})"]
    if examination.is_good:
        return ["-"]
    last = examination.last
    texts = [_text(each.text, diagnosis) for each in effective(examination.mends)]
    if examination.is_proven:
        return [*texts[:-1], f"{texts[-1]}   (tried: it works)"]
    return [*texts, f"({last.detail or last.outcome.value})"]


def _text(text: str, diagnosis: Diagnosis) -> str:
    return text if diagnosis.inside else lasting(text, diagnosis.situation, DEFAULT_PORT)


def _reach(reach: Reach) -> tuple[str, ...]:
    if reach.failure is None:
        return (reach.endpoint, "yes", ", ".join(reach.routes), "-")
    return (reach.endpoint, "no", ", ".join(reach.routes), f"{reach.detail}; {reach.mend}")


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.is_good:
        return "nothing needs mending"
    bad = [each.client.name for each in diagnosis.examinations if not each.is_good]
    bad += [each.name for each in diagnosis.agents if not each.configured]
    bad += [each.endpoint for each in diagnosis.reaches if each.failure]
    bad += [each.subject for each in diagnosis.findings if each.state == "mend"]
    return f"to mend: {', '.join(bad)}"


def as_json(diagnosis: Diagnosis) -> str:
    """The same for programs."""
    document: dict[str, Any] = {
        "ok": diagnosis.is_good,
        "inside": diagnosis.inside,
        "findings": [
            {"subject": each.subject, "state": each.state, "detail": each.detail, "mend": each.mend}
            for each in diagnosis.findings
        ],
        "clients": [_client(each, diagnosis) for each in diagnosis.examinations],
        "agents": [
            {
                "agent": each.name,
                "path": each.path,
                "version": each.version,
                "configured": each.configured,
                "mend": each.mend,
            }
            for each in diagnosis.agents
        ],
        "endpoints": [
            {
                "endpoint": each.endpoint,
                "routes": each.routes,
                "failure": each.failure,
                "detail": each.detail,
                "mend": each.mend,
            }
            for each in diagnosis.reaches
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _client(examination: Examination, diagnosis: Diagnosis) -> dict[str, Any]:
    client, first = examination.client, examination.first
    return {
        "client": client.name,
        "kind": client.kind,
        "path": client.path,
        "library": client.library,
        "version": client.version,
        "uses_door": examination.uses_door,
        "trusts_authority": examination.trusts_authority,
        "outcome": first.outcome,
        "http_status": first.http_status if first.outcome is Outcome.ANSWERED else None,
        "detail": first.detail,
        "mends": [_text(each.text, diagnosis) for each in effective(examination.mends)],
        "mends_tried": examination.is_proven,
    }
