"""What a client's output means. Pure.

Clients say the same thing in many words; the words below were taken from real ones, in the C locale.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pointsman.sandbox.doctor.client import Bypass
from pointsman.sandbox.environment import looks_secret


class Outcome(StrEnum):
    """How far a request came."""

    ANSWERED = "answered"
    HOSTS_FILE = "hosts_file"
    """Not asked: outside a sandbox nothing leads it to the door, inside one its hosts file will."""
    UNTRUSTED = "untrusted"
    EXPIRED = "expired"
    CA_FILE = "ca_file"
    BYPASSED = "bypassed"
    PROXY_DOWN = "proxy_down"
    CONNECT_REFUSED = "connect_refused"
    STRANGER = "stranger"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    status: int
    output: str
    """Standard output and standard error, cut to a bound."""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What was learnt."""

    outcome: Outcome
    detail: str = ""
    """For people; no secret is in it."""
    http_status: int = 0
    bypass: Bypass | None = None


_MARK = re.compile(r"x-pointsman-request-id:[ \t]*([\w-]+)", re.I)
_STATUS = re.compile(r"^(?:.*[ \t])?(?:HTTP/[\d.]+|status) (\d{3})\b", re.M)
_WORDS = tuple(
    (outcome, re.compile(words, re.I))
    for outcome, words in (
        (Outcome.EXPIRED, r"certificate has expired|cert_has_expired|has expired|expired certificate"
                          r"|CertificateExpired|verify error:num=10\b|validity check failed"),
        (Outcome.CA_FILE, r"error setting certificate|Problem with the SSL CA cert|Failed to open cert"
                          r"|suitable TLS CA certificate bundle|NO_CERTIFICATE_OR_CRL_FOUND|FileNotFoundError"
                          r"|Unable to add certificates from file|InvalidAlgorithmParameterException"),
        (Outcome.UNTRUSTED, r"certificate verif\w+ failed|unable to get (?:local )?issuer|self[- _]signed"
                            r"|unable_to_(?:get_issuer|verify)|known issuer|is not trusted|PKIX path"
                            r"|UnknownIssuer|unknown authority|SSL certificate problem|verify error:num="
                            r"|unknown certificate verification|certificate_verify_failed"),
        (Outcome.CONNECT_REFUSED, r"CONNECT tunnel failed|HTTP code \d+ from proxy|Tunnel connection failed"
                                  r"|Proxy tunneling failed|unable to tunnel through proxy|HTTP CONNECT failed"),
        (Outcome.PROXY_DOWN, r"could not resolve proxy|ProxyError|proxy connection"),
        (Outcome.BYPASSED, r"could not resolve|name or service not known|temporary failure in name resolution"
                           r"|unable to resolve|enotfound|eai_again|UnknownHost|no address associated|getaddrinfo"
                           r"|failed to lookup|dns error|unreachable|no route to host"),
        (Outcome.PROXY_DOWN, r"connection refused|econnrefused|couldn't connect|failed to connect|ConnectionRefused"
                             r"|unable to connect"),
    )
)  # fmt: skip
_LONGEST = 160


def read_output(finished: Finished, expected_bypass: Bypass | None, environ: Mapping[str, str]) -> Reading:
    """How far a request came; `expected_bypass`: why its client was not expected to use the proxy, if so."""
    text = finished.output
    status = _last_status(text)
    if _MARK.search(text):
        return Reading(Outcome.ANSWERED, http_status=status)
    detail = scrubbed(_telling_line(text), environ)
    if finished.timed_out:
        return Reading(Outcome.TIMED_OUT, detail)
    for outcome, words in _WORDS:
        if words.search(text):
            if outcome in (Outcome.PROXY_DOWN, Outcome.CONNECT_REFUSED) and expected_bypass is not None:
                outcome = Outcome.BYPASSED
            return Reading(outcome, detail, bypass=expected_bypass)
    if status:
        return Reading(Outcome.STRANGER, f"HTTP {status} from something that is not the door", status, expected_bypass)
    return Reading(Outcome.FAILED, detail or f"it ended with status {finished.status}", bypass=expected_bypass)


def _last_status(text: str) -> int:
    found = _STATUS.findall(text)
    return int(found[-1]) if found else 0


def _telling_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(words.search(line) for _, words in _WORDS)]
    return (telling or lines or [""])[-1]


def scrubbed(text: str, environ: Mapping[str, str]) -> str:
    """`text` on one printable line, without what may be a credential."""
    for name, value in environ.items():
        # Paths and proxies are what these messages are about; a password in a URL is masked below.
        about = value.startswith("/") or name.upper().endswith("_PROXY")
        if len(value) >= 6 and not about and looks_secret(name, value):
            text = text.replace(value, "***")
    text = re.sub(r"://[^/\s@]+@", "://***@", text)
    text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
