"""What the environment itself says, before any client is asked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cryptography import x509

from pointsman.sandbox.doctor.client import Situation, leads_to, no_proxy_covers
from pointsman.sandbox.doctor.door_facts import CaFile, DoorFacts, is_loopback
from pointsman.sandbox.doctor.mend import NAME_THE_AUTHORITY, START_AGAIN, export, unset
from pointsman.sandbox.environment import AUTHORITY_VARIABLES, NO_PROXY

_UNCHECKED = {"NODE_TLS_REJECT_UNAUTHORIZED": "0", "PYTHONHTTPSVERIFY": "0", "GIT_SSL_NO_VERIFY": ""}
"""Variables that switch checking off, with the value that does; empty: any."""


class State(StrEnum):
    """Of a finding."""

    OK = "ok"
    NOTE = "note"
    MEND = "mend"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    state: State
    detail: str
    mend: str = ""


def seems_inside(environ: Mapping[str, str], files: Sequence[CaFile], *, isolated: bool) -> bool:
    """Whether this is where a command behind the door runs: two signs of four, since any one may be what is broken."""
    signs = (
        any(is_loopback(environ.get(name, "")) for name in ("HTTPS_PROXY", "https_proxy")),
        any("inference.local" in environ.get(name, "") for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL")),
        any(each.variable and "pointsman" in each.path for each in files) or any(each.authority for each in files),
        isolated,
    )
    return sum(signs) >= 2


def situation_of(
    environ: Mapping[str, str],
    door: DoorFacts,
    files: Sequence[CaFile],
    direct: DoorFacts | None,
    now: datetime,
) -> Situation:
    """What clients find, as far as looking can tell; `isolated` is for the caller to add."""
    good = [each for each in files if each.authority is not None]
    bundle = next((each.path for each in good if each.certificates > 1), "")
    authority = next((each.path for each in good if each.certificates == 1), bundle)
    validity = [door.certificate, *(each.authority for each in good)]
    valid = all(_in_time(each, now) for each in validity if each is not None)
    served = direct is not None and direct.is_door
    return Situation(environ, f"http://{door.address}", authority, bundle, valid, served)


def _in_time(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def judge_environment(
    situation: Situation, door: DoorFacts, files: Sequence[CaFile], direct: DoorFacts | None, now: datetime
) -> tuple[Finding, ...]:
    """Everything that can be told from variables, files and one look at the door."""
    environ = situation.environ
    findings = [_door(door)]
    if door.is_door:
        findings.append(_route(door.http_status))
    if door.certificate is not None:
        findings.append(_certificate(door.certificate, files, now))
    findings += _proxies(environ, situation.proxy_url)
    findings += _files(situation, files, compared=door.certificate is not None)
    findings += _unchecked(environ)
    findings.append(_hosts(direct))
    return tuple(findings)


def _door(door: DoorFacts) -> Finding:
    if door.is_door:
        return Finding("door", State.OK, f"answers CONNECT at {door.address}")
    return Finding("door", State.MEND, f"{door.address}: {door.error}", START_AGAIN)


def _route(status: int) -> Finding:
    if 200 <= status < 300:
        return Finding("route", State.OK, f"GET /v1/models was answered with {status}")
    if status == 503:
        mend = "add a route to the route file, and check it with 'pointsman doctor --inference-routes FILE' outside"
        return Finding(
            "route", State.NOTE, "GET /v1/models got 503: no route is configured, or its server is down", mend
        )
    if status == 400:
        return Finding(
            "route", State.NOTE, "GET /v1/models got 400: no route lists model_discovery; chat may still work"
        )
    return Finding("route", State.NOTE, f"GET /v1/models got {status} from the route's server")


def _certificate(leaf: x509.Certificate, files: Sequence[CaFile], now: datetime) -> Finding:
    authorities = [each.authority for each in files if each.authority is not None]
    for what, each in (("certificate", leaf), *(("certificate authority", each) for each in authorities[:1])):
        if now > each.not_valid_after_utc:
            return Finding(
                "certificate", State.MEND, f"the {what} expired {_day(each.not_valid_after_utc)}", START_AGAIN
            )
        if now < each.not_valid_before_utc:
            mend = "set this machine's clock"
            return Finding(
                "certificate", State.MEND, f"the {what} is valid from {_day(each.not_valid_before_utc)}", mend
            )
    return Finding("certificate", State.OK, f"valid until {_day(leaf.not_valid_after_utc)}")


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _proxies(environ: Mapping[str, str], proxy_url: str) -> list[Finding]:
    findings = []
    names = ("HTTPS_PROXY", "https_proxy")
    wrong = [name for name in names if not leads_to(environ.get(name, ""), proxy_url)]
    if wrong:
        what = "; ".join(f"{name} {'leads elsewhere' if environ.get(name) else 'is not set'}" for name in wrong)
        mend = export(*((name, proxy_url) for name in wrong)).text
        # Nearly all read either name; who does not is on the list of clients, with this mend.
        suffices = len(wrong) < len(names) and not any(environ.get(name) for name in wrong)
        findings.append(Finding("proxy variables", State.NOTE if suffices else State.MEND, what, mend))
    else:
        findings.append(Finding("proxy variables", State.OK, f"HTTPS_PROXY and https_proxy lead to {proxy_url}"))
    covering = [name for name in ("NO_PROXY", "no_proxy") if no_proxy_covers(environ.get(name, ""))]
    if covering:
        mend = export(*((name, NO_PROXY) for name in covering)).text
        findings.append(Finding("proxy exceptions", State.MEND, f"{', '.join(covering)} covers inference.local", mend))
    return findings


def _files(situation: Situation, files: Sequence[CaFile], *, compared: bool) -> list[Finding]:
    """`compared`: whether the door showed a certificate, without which no file can be said to lack its authority."""
    wrong = [each for each in files if each.variable and (each.error or (compared and each.authority is None))]
    findings = [_wrong_files(situation, wrong)] if wrong else []
    if not compared:
        return [*findings, Finding("CA files", State.NOTE, "not compared: the door showed no certificate")]
    good = [each.variable for each in files if each.variable and each.authority is not None]
    if good:
        findings.append(Finding("CA files", State.OK, f"{len(good)} variables name the door's authority"))
    elif not findings:
        right = situation.bundle or situation.authority
        mend = export(("SSL_CERT_FILE", right)).text if right else NAME_THE_AUTHORITY
        findings.append(Finding("CA files", State.MEND, "no variable names the door's certificate authority", mend))
    return findings


def _wrong_files(situation: Situation, wrong: Sequence[CaFile]) -> Finding:
    """One finding for all of them: they are set together, and one line mends them."""
    faults: dict[str, list[str]] = {}
    for each in wrong:
        what = each.error or "does not hold the door's certificate authority"
        faults.setdefault(f"{each.path}: {what}", []).append(each.variable)
    bundle = situation.bundle or situation.authority
    right = {each.variable: situation.authority if each.variable in AUTHORITY_VARIABLES else bundle for each in wrong}
    mend = export(*right.items()).text if bundle else NAME_THE_AUTHORITY
    if len(wrong) == 1:
        return Finding(wrong[0].variable, State.MEND, next(iter(faults)), mend)
    detail = "; ".join(f"{what} ({', '.join(names)})" for what, names in faults.items())
    return Finding(f"{len(wrong)} CA variables", State.MEND, detail, mend)


def _unchecked(environ: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            name, State.MEND, "it makes clients accept any certificate, so below trust means nothing", unset(name).text
        )
        for name, value in _UNCHECKED.items()
        if name in environ and (environ[name] == value or not value)
    ]


def _hosts(direct: DoorFacts | None) -> Finding:
    if direct is None:
        return Finding(
            "hosts file", State.NOTE, "does not name inference.local: who reads no proxy variables, finds no door"
        )
    if direct.is_door:
        return Finding("hosts file", State.OK, f"leads to the door at {direct.address}")
    return Finding(
        "hosts file", State.MEND, f"names inference.local, but {direct.address}: {direct.error}", START_AGAIN
    )
