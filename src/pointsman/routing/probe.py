"""The probe of a route before it is stored: what is sent, what its answer means, what the operator is told.

Bodies, their order and the kinds of failure are the inference-routing design's, as its later versions have them
(DESIGN D3). Nothing of an upstream's body is repeated but one word, and that only if it cannot be a piece of a key.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.secret import Secret
from pointsman.routing.rewrite import base_path

_MESSAGES = b'"messages":[{"role":"user","content":"ping"}]'
_WORD = re.compile(r"[a-z0-9_.-]{1,64}")
_PIECE = 4
"""Characters: as many of a key's end as providers show."""
_AUTH_WORDS = re.compile(
    r"api[ _-]?key|unauthori[sz]ed|authenticat|authori[sz]ation|credential|permission|bearer|"
    r"(access|auth|api)[ _-]?token"
)
"""`token` and `forbidden` alone are no such words: `max_tokens` and pydantic's `extra_forbidden` hold them."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One small request; the model is spliced in as into any other."""

    protocol: str
    path: str
    body: bytes


_PROBES = (
    # Newer models refuse max_tokens, older servers know nothing else.
    Probe(P.CHAT_COMPLETIONS, "/v1/chat/completions", b'{%b,"max_completion_tokens":32}' % _MESSAGES),
    Probe(P.CHAT_COMPLETIONS, "/v1/chat/completions", b'{%b,"max_tokens":32}' % _MESSAGES),
    Probe(P.MESSAGES, "/v1/messages", b'{%b,"max_tokens":32}' % _MESSAGES),
    Probe(P.RESPONSES, "/v1/responses", b'{"input":"ping","max_output_tokens":32}'),
    Probe(P.COMPLETIONS, "/v1/completions", b'{"prompt":"ping","max_tokens":32}'),
    Probe(P.EMBEDDINGS, "/v1/embeddings", b'{"input":"ping"}'),
)


class FailureKind(Enum):
    """Why a probe failed, as far as it decides what comes next; the value says it to the operator."""

    CREDENTIALS = "the upstream refused the credentials"
    REQUEST_SHAPE = "the upstream refused the request"
    RATE_LIMITED = "the upstream is limiting requests"
    UPSTREAM_HEALTH = "the upstream reports trouble of its own"
    CONNECTIVITY = "the upstream cannot be reached"
    UNEXPECTED = "the upstream's answer was not expected"


@dataclass(frozen=True, slots=True)
class Failure:
    """What one probe came to."""

    kind: FailureKind
    cause: str
    """Fit for the operator, without the path that was called."""
    path: str = ""
    """Of the request that failed; empty when the failure is of no request in particular."""
    redirect: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What is looked at of a response."""

    status: int
    body: bytes = b""
    """Its beginning; not needed for a 2xx."""
    location: str = ""


def probes_for(protocols: Sequence[str]) -> tuple[Probe, ...]:
    """The probes of a route that speaks these protocols, in the order in which they are tried."""
    return tuple(probe for probe in _PROBES if probe.protocol in protocols)


def next_probe(probes: Sequence[Probe], failures: Sequence[Failure]) -> Probe | None:
    """What to send after these failures; None when they settle it.

    A request that was refused for its shape says nothing of the next dialect; any other failure would be its as well.
    """
    if failures and failures[-1].kind is not FailureKind.REQUEST_SHAPE:
        return None
    return probes[len(failures)] if len(failures) < len(probes) else None


def verdict(failures: Sequence[Failure]) -> Failure:
    """What is reported of one or more: the failure that settled it, else the first refusal."""
    return failures[0] if failures[-1].kind is FailureKind.REQUEST_SHAPE else failures[-1]


def probed_url(candidate: Candidate, path: str) -> str:
    """Where a probe goes."""
    endpoint = candidate.endpoint
    authority = endpoint.host if endpoint.scheme == "mock" else endpoint.authority  # a label has no port
    return f"{endpoint.scheme}://{authority}{base_path(candidate).join(path)}"


def judge(answer: Answer, path: str, key: Secret | None) -> Failure | None:
    """What a response says; None for any 2xx."""
    status = answer.status
    if 200 <= status <= 299:
        return None
    if 300 <= status <= 399:
        return _redirect(answer, path, key)
    word = _told_word(answer.body, key)
    cause = f"HTTP {status} {word}" if word else f"HTTP {status}"
    return Failure(_kind_of(status, answer.body), cause, path)


def _kind_of(status: int, body: bytes) -> FailureKind:
    if status in (401, 403):
        return FailureKind.CREDENTIALS
    if status in (400, 404, 422) and _is_about_credentials(body):
        return FailureKind.CREDENTIALS
    if status in (400, 404, 405, 422):
        return FailureKind.REQUEST_SHAPE
    if status == 429:
        return FailureKind.RATE_LIMITED
    return FailureKind.UPSTREAM_HEALTH if status >= 500 else FailureKind.UNEXPECTED


def _is_about_credentials(body: bytes) -> bool:
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n").lower()
    # A page is a web server's, and may well have a link that says "authentication".
    return not text.startswith("<") and _AUTH_WORDS.search(text) is not None


def _redirect(answer: Answer, path: str, key: Secret | None) -> Failure:
    cause = f"HTTP {answer.status}, a redirect"
    try:
        target = parse_endpoint(answer.location.partition("?")[0].partition("#")[0])
    except ValueError:
        target = None
    if target is not None and target.scheme in ("http", "https") and not _shows(key, target.authority):
        cause += f" to {target.scheme}://{target.authority}"  # a path may hold anything
    return Failure(FailureKind.UNEXPECTED, f"{cause}, which is never followed", path, redirect=True)


def _told_word(body: bytes, key: Secret | None) -> str:
    """The upstream's own short name for what is wrong, such as `model_not_found`; empty if there is none."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    error = content.get("error") if isinstance(content, dict) else None
    fields = error if isinstance(error, dict) else {}
    for word in (fields.get("code"), fields.get("type")):
        if isinstance(word, str) and _WORD.fullmatch(word) and not _shows(key, word):
            return word
    return ""


def _shows(key: Secret | None, text: str) -> bool:
    """Whether a text and a key share a piece that could be one of the key's."""
    value, text = key.reveal().lower() if key is not None else "", text.lower()
    return text in value or any(value[at : at + _PIECE] in text for at in range(len(value) - _PIECE + 1))


def failure_text(provider_name: str, candidate: Candidate, failure: Failure) -> str:
    """One line: which provider and model, where, why, and what to do next."""
    where = f"POST {failure.path}: " if failure.path else ""
    return (
        f"cannot verify model {candidate.model} of provider {provider_name} at {probed_url(candidate, '')}: "
        f"{failure.kind.value} ({where}{failure.cause}); {_next_step(provider_name, candidate, failure)}, "
        "or store the route unverified with --no-verify"
    )


def _next_step(provider_name: str, candidate: Candidate, failure: Failure) -> str:
    profile = candidate.profile
    update = f"pointsman provider update {provider_name}"
    match failure.kind:
        case FailureKind.CREDENTIALS:
            name = profile.credential_key_names[0] if profile is not None else "KEY"
            return f"set a valid key with '{update} --credential {name}'"
        case FailureKind.REQUEST_SHAPE:
            return "check the model's name, and the provider's type and base URL"
        case FailureKind.RATE_LIMITED:
            return "try again later, or check the quota at the provider"
        case FailureKind.UPSTREAM_HEALTH:
            return "try again when the upstream is well"
        case FailureKind.CONNECTIVITY:
            return "check the base URL, and that the gateway can reach it"
        case FailureKind.UNEXPECTED:
            if not failure.redirect:
                return "check the base URL, and the account at the provider"
            name = profile.base_url_config_keys[0] if profile is not None else "BASE_URL"
            return f"set the base URL to where it leads with '{update} --config {name}=URL'"
