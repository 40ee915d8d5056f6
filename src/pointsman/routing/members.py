"""From a route and the records of its providers to what can be tried: a direct route's provider, a chain's members.

What a record says of its place in a chain stands in its config map, so that a provider of a file and a stored one are
the same thing. The keys are here; whether a named file exists is for whoever reads it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import msgspec

from pointsman.core.attempts import Chain, ErrorCategory, ErrorMapping, Member
from pointsman.core.candidate import Candidate
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.model_table import Target
from pointsman.core.profiles import LOCAL_GGUF, LOCAL_PROTOCOLS, MOCK, known_provider_types, profile_for
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.provider import BASE_IS_WHOLE, KEY_FILE, Provider
from pointsman.core.quota import DEFAULT_ZONE, Quota
from pointsman.core.route import CHAIN, DEFAULT_REQUEST_TIMEOUT_SECONDS, LONGEST_MODEL, Route
from pointsman.core.time_zones import zone_named
from pointsman.routing.resolve import NoSuchProvider, Unresolvable, key_file_of, resolve

MODEL = "MODEL"
MODEL_PATH = "MODEL_PATH"
DAILY_REQUEST_LIMIT = "DAILY_REQUEST_LIMIT"
REQUESTS_PER_MINUTE = "REQUESTS_PER_MINUTE"
RESET_TIMEZONE = "RESET_TIMEZONE"
ERROR_CODE_PATH = "ERROR_CODE_PATH"
ERROR_MAPPINGS = "ERROR_MAPPINGS"

DEFAULT_ERROR_CODE_PATH = "error.code"
MOST_REQUESTS = 1_000_000_000
"""Of any quota; more is a slip."""
MOST_MAPPINGS = 64
LONGEST_ERROR_CODE = 128
MOST_PATH_STEPS = 16
_LONGEST_PATH = 4096  # PATH_MAX of Linux

_RUNNER = "runner"
_MAPPING_KEYS = ("http_status", "error_code", "category")
_PATH_STEP = re.compile(r"[A-Za-z0-9_$@-]{1,64}")
_CATEGORIES = {each.value.replace("_", ""): each for each in ErrorCategory} | {"unknown": ErrorCategory.UNKNOWN}
"""Without underscores, so that InferRouter's spellings are the same words."""


LeftOut = Callable[[str, Unresolvable], None]
"""Hears which provider of a chain cannot be used, and why."""


def target_of(route: Route, providers: Mapping[str, Provider], *, left_out: LeftOut | None = None) -> Target:
    """What a direct route or a chain leads to, with the records that its account has now. Raises Unresolvable.

    A direct route is called as it is; what its provider's record says of a place in chains does not count.
    """
    if route.kind == CHAIN:
        return chain_of(route, providers, left_out=left_out)
    provider = providers.get(route.provider_name)
    if provider is None:
        raise NoSuchProvider(route.provider_name)
    candidate = replace(resolve(route, provider).candidate(), provider=provider.name)
    key_file = _Settings(provider).key_file()
    return Member(provider.name, candidate, key_file=key_file) if key_file else candidate


def member_of(provider: Provider, model: str, route: str = "", *, forwards_model: bool = False) -> Member:
    """A provider as a member of a chain. An empty model means the record's own.

    Raises Unresolvable, which names the key and what to write, for a record that leads nowhere or has a setting that
    cannot be read. A chain that forwards the client's model needs none.
    """
    kind = provider.type.strip().lower()
    settings = _Settings(provider)
    if kind == LOCAL_GGUF:
        candidate = _local(settings, model, route)
    elif kind == MOCK:
        label = _mock_endpoint(settings)
        candidate = Candidate(route, label, settings.model(model, forwards_model), tuple(P), MOCK)
    else:
        candidate = _remote(settings, settings.model(model, forwards_model), route)
    return Member(
        provider=provider.name,
        candidate=replace(candidate, provider=provider.name),
        quota=settings.quota(),
        error_mappings=settings.error_mappings(),
        error_code_path=settings.error_code_path(),
        key_file=settings.key_file() if kind not in (LOCAL_GGUF, MOCK) else "",
    )


def quota_of(provider: Provider) -> Quota:
    """What a record says of its quota. Raises Unresolvable for what cannot be read."""
    return _Settings(provider).quota()


def chain_of(route: Route, providers: Mapping[str, Provider], *, left_out: LeftOut | None = None) -> Chain:
    """A chain route with the records that its account has now. No fallback is allowed, nor a fallback alone.

    Raises Unresolvable for a chain that cannot be right, or a member that cannot be resolved. With `left_out`, such a
    member is told there and the others remain, as long as there are any: a chain in use outlives a broken record.
    """
    if not route.candidates and not route.fallback:
        raise Unresolvable(f"chain {route.name} has no candidates; name at least one provider")
    if any(each.provider_name == route.fallback for each in route.candidates):
        raise Unresolvable(
            f"provider {route.fallback} is the fallback of chain {route.name} and one of its candidates; "
            "remove it from one of them"
        )
    problems: list[Unresolvable] = []

    def resolved(name: str, model: str = "") -> Member | None:
        try:
            member = member_of(_record(route, providers, name), model, route.name, forwards_model=route.forwards_model)
            candidate = replace(member.candidate, timeout_seconds=float(route.timeout_seconds))
            return replace(member, candidate=candidate)
        except Unresolvable as error:
            if left_out is None:
                raise
            left_out(name, error)
            problems.append(error)
            return None

    members = [resolved(each.provider_name, each.model) for each in route.candidates]
    found = tuple(member for member in members if member is not None)
    fallback = resolved(route.fallback) if route.fallback else None
    _check_distinct(route, found)
    if not found and fallback is None:
        raise problems[0]
    timeout = float(route.request_timeout_seconds or DEFAULT_REQUEST_TIMEOUT_SECONDS)
    return Chain(route.account, route.name, found, route.strategy, fallback, timeout, route.forwards_model)


def _check_distinct(route: Route, members: Sequence[Member]) -> None:
    seen: set[tuple[str, str]] = set()
    for member in members:
        key = (member.provider, member.candidate.model)
        if key in seen:
            raise Unresolvable(
                f"chain {route.name} names provider {member.provider} twice with the same model; remove one of them"
            )
        seen.add(key)


def _record(route: Route, providers: Mapping[str, Provider], name: str) -> Provider:
    if name.lower().startswith(f"{_RUNNER}:"):
        raise _runner(route, name)
    provider = providers.get(name)
    if provider is None:
        raise NoSuchProvider(name)
    kind = provider.type.strip().lower()
    if kind == _RUNNER:
        raise _runner(route, name)
    if kind == LOCAL_GGUF and name != route.fallback:
        raise Unresolvable(
            f"provider {name} is a local model, which no strategy chooses; make it the fallback of chain {route.name}"
        )
    return provider


def _runner(route: Route, name: str) -> Unresolvable:
    return Unresolvable(
        f"chain {route.name} names {name}, a runner: a runner's model never takes another's place, nor another its; "
        "give it a route of its own"
    )


def _remote(settings: "_Settings", model: str, route: str) -> Candidate:
    provider = settings.provider
    if profile_for(provider.type) is None:
        kinds = ", ".join((*known_provider_types(), LOCAL_GGUF, MOCK))
        raise Unresolvable(
            f"provider {provider.name} is of type {provider.type.strip()[:64]!r}, which a chain cannot use; "
            f"use a provider of type {kinds}"
        )
    candidate = resolve(Route(provider.account, route, provider.name, model), provider).candidate()
    return replace(candidate, base_is_whole=settings.text(BASE_IS_WHOLE) == "true")


def _local(settings: "_Settings", model: str, route: str) -> Candidate:
    path = settings.path(MODEL_PATH)
    if not path:
        name = settings.provider.name
        raise Unresolvable(
            f"provider {name} names no model file; set it with 'pointsman provider update {name} "
            f"--config {MODEL_PATH}=FILE'"
        )
    named = model or settings.text(MODEL) or PurePosixPath(path).stem
    protocols = tuple(str(each) for each in LOCAL_PROTOCOLS)
    return Candidate(route, Endpoint("gguf", "", 0, path), settings.checked_model(named), protocols, LOCAL_GGUF)


def _mock_endpoint(settings: "_Settings") -> Endpoint:
    text = settings.text("BASE_URL")
    if not text:
        return Endpoint(MOCK, "", 0, "")
    try:
        endpoint = parse_endpoint(text)
    except ValueError:
        endpoint = None
    if endpoint is None or endpoint.scheme != MOCK:
        raise settings.wrong("BASE_URL", "is no mock:// URL", "write mock://NAME, or remove it")
    return endpoint


@dataclass(frozen=True, slots=True)
class _Settings:
    """Reads a record's config map; what cannot be read is named by its key, and no value is repeated."""

    provider: Provider

    def wrong(self, key: str, reason: str, next_step: str) -> Unresolvable:
        return Unresolvable(f"{key} of provider {self.provider.name} {reason}; {next_step}")

    def text(self, key: str) -> str:
        return self.provider.config.get(key, "").strip()

    def model(self, chosen: str, optional: bool) -> str:
        model = chosen.strip() or self.text(MODEL)
        if not model and not optional:
            name = self.provider.name
            raise Unresolvable(
                f"provider {name} has no model of its own; name one, {name}=MODEL, or set it with "
                f"'pointsman provider update {name} --config {MODEL}=NAME'"
            )
        return self.checked_model(model)

    def checked_model(self, model: str) -> str:
        if len(model) > LONGEST_MODEL or not model.isprintable():
            reason = f"has over {LONGEST_MODEL} characters, or one that is not printable"
            raise self.wrong(MODEL, reason, "write the name that the provider has for it")
        return model

    def path(self, key: str) -> str:
        text = self.text(key)
        if text and (not text.startswith("/") or len(text) > _LONGEST_PATH or not text.isprintable()):
            raise self.wrong(key, "is not the absolute path of a file", "write it from the root, beginning with /")
        return text

    def key_file(self) -> str:
        return self.path(KEY_FILE) if key_file_of(self.provider) else ""

    def quota(self) -> Quota:
        zone = self.text(RESET_TIMEZONE) or DEFAULT_ZONE
        try:
            zone_named(zone)
        except ValueError:
            raise self.wrong(
                RESET_TIMEZONE, "is no time zone of this machine's database", "write it as UTC or Europe/Berlin"
            ) from None
        return Quota(self._count(DAILY_REQUEST_LIMIT), self._count(REQUESTS_PER_MINUTE), zone)

    def _count(self, key: str) -> int:
        text = self.text(key)
        if not text:
            return 0
        if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > MOST_REQUESTS:
            reason = f"is not a whole number from 0 to {MOST_REQUESTS}"
            raise self.wrong(key, reason, "write it as 14400, or 0 for no limit")
        return int(text)

    def error_code_path(self) -> str:
        text = self.text(ERROR_CODE_PATH)
        steps = text.split(".")
        if text and (len(steps) > MOST_PATH_STEPS or not all(map(_PATH_STEP.fullmatch, steps))):
            reason = f"is not a path of at most {MOST_PATH_STEPS} names with dots between them"
            raise self.wrong(ERROR_CODE_PATH, reason, f"write it as {DEFAULT_ERROR_CODE_PATH}")
        return text or DEFAULT_ERROR_CODE_PATH

    def error_mappings(self) -> tuple[ErrorMapping, ...]:
        text = self.text(ERROR_MAPPINGS)
        if not text:
            return ()
        example = '[{"http_status": 429, "error_code": "tokens", "category": "rate_limit"}]'
        try:
            items = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            items = None
        if not isinstance(items, list):
            raise self.wrong(ERROR_MAPPINGS, "is no JSON list", f"write it as {example}")
        if len(items) > MOST_MAPPINGS:
            raise self.wrong(ERROR_MAPPINGS, f"has {len(items)} entries", f"write at most {MOST_MAPPINGS}")
        return tuple(self._error_mapping(position, item) for position, item in enumerate(items, 1))

    def _error_mapping(self, position: int, item: object) -> ErrorMapping:
        def wrong(reason: str, next_step: str) -> Unresolvable:
            return self.wrong(f"entry {position} of {ERROR_MAPPINGS}", reason, next_step)

        if not isinstance(item, dict):
            raise wrong("is no object", f"write it with the keys {', '.join(_MAPPING_KEYS)}")
        unknown = next((key for key in item if key not in _MAPPING_KEYS), None)
        if unknown is not None:
            raise wrong(f"has the unknown key {unknown[:40]!r}", f"the keys are {', '.join(_MAPPING_KEYS)}")
        status = item.get("http_status")
        if not isinstance(status, int) or isinstance(status, bool) or not 300 <= status <= 599:
            raise wrong("has no http_status from 300 to 599", "write a status that is an error, as in 429")
        code = item.get("error_code")
        code = str(code) if isinstance(code, int) and not isinstance(code, bool) else code or ""
        if not isinstance(code, str) or len(code) > LONGEST_ERROR_CODE:
            reason = f"has an error_code that is no text of at most {LONGEST_ERROR_CODE} characters"
            raise wrong(reason, "write it as the provider does, or leave it out for every error of that status")
        name = item.get("category")
        category = _CATEGORIES.get(name.strip().replace("_", "").lower()) if isinstance(name, str) else None
        if category is None:
            raise wrong("has no known category", f"use one of {', '.join(ErrorCategory)}")
        return ErrorMapping(status, category, code.strip())
