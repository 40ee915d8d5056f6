"""One entry of a route file, read into a candidate.

Owns the rules for each key and the words that say what is wrong. Pure: the environment and the directory that relative
paths start from are arguments; whether a named file exists is for the caller to see. No value of `api_key`, nor
anything that could be one in the wrong place, is ever repeated.
"""

import re
from collections.abc import Mapping as Environment
from dataclasses import dataclass, field
from pathlib import PurePath

from pointsman.config.problems import Problem
from pointsman.config.wording import nearest, shown, shown_variable
from pointsman.config.yaml_positions import NOTHING, NUMBER, STRING, Mapping, Node, Scalar, Sequence
from pointsman.core.candidate import INFERENCE_LOCAL, SANDBOX_SYSTEM, Candidate
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.profiles import LOCAL_GGUF, LOCAL_PROTOCOLS, MOCK, known_provider_types, profile_for
from pointsman.core.protocols import InferenceProtocol as P
from pointsman.core.protocols import normalize_protocols
from pointsman.core.reach import refused_address
from pointsman.core.secret import Secret

KEYS = (
    "route",
    "name",
    "endpoint",
    "model",
    "protocols",
    "provider_type",
    "api_key",
    "api_key_env",
    "timeout",
    "model_path",
    "ca_bundle",
)
HABITS = {
    "base_url": "endpoint",
    "url": "endpoint",
    "model_id": "model",
    "protocol": "protocols",
    "type": "provider_type",
    "provider": "provider_type",
    "key": "api_key",
    "timeout_secs": "timeout",
    "timeout_seconds": "timeout",
    "path": "model_path",
}
"""What other files call our keys."""

NOT_SERVED = frozenset({"aws_bedrock_invoke"})
"""Protocol names of OpenShell that are no slip of the pen, though no pattern of ours matches them."""

LONGEST_TIMEOUT = 86_400
"""Seconds in a day: longer than any request lives, short enough to catch milliseconds."""
LONGEST_NAME = 253  # of a route; the seed project's limit for names
LONGEST_TYPE = 64  # of a provider type; the same source
LONGEST_MODEL = 512  # characters; the longest published model names have about 100
LONGEST_KEY = 8192  # characters; the same source as the names

_PROVIDER_TYPES = (*known_provider_types(), LOCAL_GGUF, MOCK)
_PLAIN_NUMBER = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|\$\(.*\)|\{\{.*\}\}")


@dataclass(slots=True)
class Findings:
    """Collects what is wrong, and what only deserves a word."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """A candidate and where the file speaks of it."""

    candidate: Candidate
    line: int
    key_lines: dict[str, int]
    inline_key: bool
    key_variable: str
    """The environment variable that holds its key, if one does."""

    def line_of(self, *keys: str) -> int:
        """The line of the first of these keys that the entry has, else the entry's own."""
        return next((self.key_lines[key] for key in keys if key in self.key_lines), self.line)


def read_entry(
    node: Node, environ: Environment[str, str], directory: PurePath, findings: Findings
) -> RouteEntry | None:
    """Read one item of `routes`. What is wrong goes into `findings`, and the result is None if anything was."""
    if not isinstance(node, Mapping):
        findings.problems.append(
            Problem(node.line, f"a route is {node.kind}, not a mapping", "write it as - endpoint: …", "routes")
        )
        return None
    return _EntryReader(node, environ, directory, findings).read()


class _EntryReader:
    """Reads one mapping, key by key. A key whose value is null counts as absent."""

    def __init__(self, node: Mapping, environ: Environment[str, str], directory: PurePath, findings: Findings) -> None:
        self._line = node.line
        self._environ = environ
        self._directory = directory
        self._findings = findings
        self._all = node.entries
        self._key_variable = ""
        self._entries = {key: each for key, each in node.entries.items() if each[1].kind != NOTHING}

    def read(self) -> RouteEntry | None:
        before = len(self._findings.problems)
        self._unknown_keys()
        provider_type = self._provider_type()
        endpoint = self._endpoint(provider_type)
        if endpoint is not None and endpoint.scheme == "gguf":
            provider_type = LOCAL_GGUF
        scheme = endpoint.scheme if endpoint is not None else self._meant_scheme(provider_type)
        route, model = self._route(), self._model(scheme, endpoint)
        protocols, api_key = self._protocols(provider_type), self._key(provider_type, scheme)
        timeout, ca_bundle = self._timeout(), self._ca_bundle(endpoint)
        if len(self._findings.problems) > before or endpoint is None:
            return None
        candidate = Candidate(route, endpoint, model, protocols, provider_type, api_key, timeout, ca_bundle)
        lines = {key: line for key, (line, _) in self._entries.items()}
        return RouteEntry(candidate, self._line, lines, "api_key" in self._entries, self._key_variable)

    # Words

    def _line_of(self, key: str) -> int:
        return self._entries[key][0] if key in self._entries else self._line

    def _problem(self, key: str, reason: str, next_step: str) -> None:
        self._findings.problems.append(Problem(self._line_of(key), reason, next_step, key))

    def _warning(self, key: str, reason: str, next_step: str) -> None:
        self._findings.warnings.append(Problem(self._line_of(key), reason, next_step, key))

    def _text(self, key: str) -> str | None:
        """A key's text without surrounding space. None if it is absent, or no text, which is noted."""
        if key not in self._entries:
            return None
        node = self._entries[key][1]
        if not isinstance(node, Scalar):
            self._problem(key, f"{key} is {node.kind}", "write a single value")
        elif node.kind != STRING:
            self._problem(key, f"{key} is read as {node.kind}", f'put it in quotes, as in {key}: "…"')
        elif not node.text.strip():
            self._problem(key, f"{key} is empty", "give it a value or remove the line")
        else:
            return node.text.strip()
        return None

    def _plain_text(self, key: str, longest: int) -> str | None:
        """The same, and printable and bounded as well."""
        text = self._text(key)
        if text is None:
            return None
        if not text.isprintable():
            self._problem(key, f"{key} holds a control or invisible character", "type it again by hand")
        elif len(text) > longest:
            self._problem(key, f"{key} is longer than {longest} characters", "shorten it")
        else:
            return text
        return None

    # Keys

    def _unknown_keys(self) -> None:
        for key, (line, _) in self._all.items():
            if key not in KEYS:
                known = nearest(key, KEYS, HABITS)
                next_step = f"did you mean {known}?" if known else f"the keys are {', '.join(KEYS)}"
                self._findings.problems.append(Problem(line, f"unknown key{shown(key)}", next_step))

    def _route(self) -> str:
        route, name = self._plain_text("route", LONGEST_NAME), self._plain_text("name", LONGEST_NAME)
        if route is not None and name is not None and route != name:
            self._problem("name", "route and name are two spellings of one key, and differ", "keep one of them")
        chosen, key = (route, "route") if route is not None else (name or INFERENCE_LOCAL, "name")
        if not chosen.isascii():
            self._problem(key, f"{key} is not plain ASCII", "use Latin letters, digits, dots and dashes")
        # The system route is what no request through a tunnel may reach; a slip must not hand it to the agents.
        folded = chosen.lower().replace("_", "-").replace(" ", "-")
        for reserved in (INFERENCE_LOCAL, SANDBOX_SYSTEM):
            if chosen != reserved and folded == reserved:
                self._problem(key, f"{key} is almost the reserved name {reserved}", f"write {reserved}")
        return chosen

    def _provider_type(self) -> str:
        text = self._plain_text("provider_type", LONGEST_TYPE)
        if text is None:
            return ""
        kind = text.lower()
        if not kind.isascii():
            self._problem("provider_type", "provider_type is not plain ASCII", f"use {', '.join(_PROVIDER_TYPES)}")
        elif kind not in _PROVIDER_TYPES and (known := nearest(kind, _PROVIDER_TYPES)):
            reason = f"unknown provider_type{shown(kind)} gets a Bearer key and no extra headers"
            self._warning("provider_type", reason, f"did you mean {known}?")
        return kind

    def _endpoint(self, provider_type: str) -> Endpoint | None:
        if "model_path" in self._entries:
            return self._model_path(provider_type)
        text = self._text("endpoint")
        if text is None:
            if "endpoint" in self._entries:
                return None
            if provider_type == MOCK:
                return Endpoint(MOCK, "", 0, "")
            self._missing_endpoint(provider_type)
            return None
        try:
            endpoint = parse_endpoint(text)
        except ValueError as error:
            reason, _, next_step = str(error).partition("; ")
            self._problem("endpoint", f"endpoint {reason}", next_step or "write it as http://host:port/v1")
            return None
        return endpoint if self._may_be_reached(endpoint) and self._agrees(endpoint, provider_type) else None

    def _meant_scheme(self, provider_type: str) -> str:
        """What a refused endpoint was meant to be: it decides what else the route lacks."""
        if provider_type in (LOCAL_GGUF, MOCK) or "model_path" in self._entries:
            return MOCK if provider_type == MOCK else "gguf"
        node = self._entries["endpoint"][1] if "endpoint" in self._entries else None
        text = node.text if isinstance(node, Scalar) else ""
        return text.strip().lower().partition("://")[0]

    def _missing_endpoint(self, provider_type: str) -> None:
        if provider_type == LOCAL_GGUF:
            self._problem("endpoint", "a local_gguf route names no model file", "add model_path: model.gguf")
            return
        profile = profile_for(provider_type)
        example = (profile.default_base_url if profile is not None else "") or "http://localhost:1234/v1"
        self._problem("endpoint", "a route has no endpoint", f"add endpoint: {example}")

    def _model_path(self, provider_type: str) -> Endpoint | None:
        path = self._plain_text("model_path", 4096)  # PATH_MAX of Linux
        if "endpoint" in self._entries:
            self._problem("model_path", "model_path and endpoint are both given", "keep one of them")
        elif provider_type != LOCAL_GGUF:
            self._problem("model_path", "model_path belongs to local models", "add provider_type: local_gguf")
        elif path is not None:
            return Endpoint("gguf", "", 0, str(self._directory / path))
        return None

    def _may_be_reached(self, endpoint: Endpoint) -> bool:
        try:
            reason = refused_address(endpoint.host)
        except ValueError:  # a name; what it resolves to is checked when it is dialled
            return True
        if reason is not None:
            self._problem("endpoint", f"endpoint {reason}, which no route may lead to", "name the model server itself")
        return reason is None

    def _agrees(self, endpoint: Endpoint, provider_type: str) -> bool:
        local = endpoint.scheme == "gguf"
        if local and provider_type not in ("", LOCAL_GGUF):
            self._problem("provider_type", "a gguf:// endpoint is of provider_type local_gguf", "write that or nothing")
        elif provider_type == LOCAL_GGUF and not local:
            self._problem("endpoint", "provider_type local_gguf has a network endpoint", "use model_path instead")
        elif provider_type == MOCK and endpoint.scheme != MOCK:
            self._problem(
                "endpoint", "provider_type mock has a real endpoint", "write mock://, or remove provider_type"
            )
        else:
            return True
        return False

    def _model(self, scheme: str, endpoint: Endpoint | None) -> str:
        text = self._plain_text("model", LONGEST_MODEL)
        if text is not None or "model" in self._entries:
            return text or ""
        if scheme == "gguf":
            return PurePath(endpoint.path).stem if endpoint is not None else ""
        self._problem("model", "a route has no model", "add model: with the name the endpoint knows it by")
        return ""

    def _protocols(self, provider_type: str) -> tuple[str, ...]:
        if "protocols" not in self._entries:
            if provider_type == LOCAL_GGUF:
                return LOCAL_PROTOCOLS
            if (profile := profile_for(provider_type)) is not None and profile.default_base_url:
                # Embeddings have a model of their own, so a file gives them a route of their own, by listing them.
                return tuple(each for each in profile.protocols if each is not P.EMBEDDINGS)
            self._problem("protocols", "a route has no protocols", "add protocols: [openai_chat_completions]")
            return ()
        node = self._entries["protocols"][1]
        if not isinstance(node, Sequence):
            self._problem("protocols", f"protocols is {node.kind}", "write a list, as in [openai_chat_completions]")
            return ()
        names = []
        for item in node.items:
            if isinstance(item, Scalar) and item.kind == STRING:
                names.append(item.text)
            else:
                self._problem("protocols", f"protocols holds {item.kind}", "write names, as openai_chat_completions")
        protocols = normalize_protocols(names)
        if not protocols and len(names) == len(node.items):
            self._problem("protocols", "protocols is empty", "list at least one, as in [openai_chat_completions]")
        for name in protocols:
            self._check_protocol(name, provider_type)
        return protocols

    def _check_protocol(self, name: str, provider_type: str) -> None:
        served: tuple[P, ...] = LOCAL_PROTOCOLS if provider_type == LOCAL_GGUF else tuple(P)
        if name in served:
            return
        if name in tuple(P):
            self._problem("protocols", f"a local model does not serve {name}", f"use {', '.join(served)}")
        elif name in NOT_SERVED:
            self._warning("protocols", f"protocol {name} is kept, but no request matches it", "it may be removed")
        else:
            known = nearest(name, tuple(P))
            next_step = f"did you mean {known}?" if known else f"the protocols are {', '.join(served)}"
            self._problem("protocols", f"unknown protocol{shown(name)}", next_step)

    def _key(self, provider_type: str, scheme: str) -> Secret | None:
        given = [key for key in ("api_key", "api_key_env") if key in self._entries]
        if len(given) == 2:
            self._problem("api_key_env", "api_key and api_key_env are both given", "keep one of them")
            return None
        if not given:
            if scheme not in ("gguf", MOCK):
                next_step = "add api_key_env: NAME_OF_A_VARIABLE, or api_key: none for a server that wants none"
                self._problem("api_key", "a route has no key", next_step)
            return None
        key = self._inline_key() if given == ["api_key"] else self._key_from_environment()
        if key is not None and provider_type == LOCAL_GGUF:
            self._warning(given[0], f"a local model takes no key, so {given[0]} is not used", "remove the line")
            return None
        return key

    def _inline_key(self) -> Secret | None:
        text = self._text("api_key")
        if text is None:
            return None
        if _REFERENCE.fullmatch(text):
            self._problem("api_key", "api_key is a reference that nothing expands", "use api_key_env: NAME")
            return None
        return self._checked_key("api_key", "api_key", text)

    def _key_from_environment(self) -> Secret | None:
        name = self._text("api_key_env")
        if name is None:
            return None
        if not _VARIABLE_NAME.fullmatch(name):
            reason = "api_key_env is not the name of an environment variable"
            self._problem("api_key_env", reason, "write the name, as in OPENAI_API_KEY; the key itself is for api_key")
            return None
        self._key_variable = name
        named = f"the environment variable{shown_variable(name)} named by api_key_env"
        value = self._environ.get(name)
        if value is None:
            self._problem("api_key_env", f"{named} is not set", "export it where pointsman is started")
            return None
        if not value.strip():
            self._problem("api_key_env", f"{named} is empty", "give it the key as its value")
            return None
        return self._checked_key("api_key_env", named, value.strip())

    def _checked_key(self, key: str, subject: str, value: str) -> Secret | None:
        # A header value must not carry anything else; a line break in it would start a header of its own.
        if not all("!" <= character <= "~" for character in value):
            reason = f"{subject} holds a space, a line break or a character outside ASCII"
            self._problem(key, reason, "copy the key again, without anything around it")
        elif len(value) > LONGEST_KEY:
            self._problem(key, f"{subject} is longer than {LONGEST_KEY} characters", "check that it is the key")
        else:
            return Secret(value)
        return None

    def _timeout(self) -> float:
        if "timeout" not in self._entries:
            return 0.0
        node = self._entries["timeout"][1]
        if not isinstance(node, Scalar) or node.kind != NUMBER or not _PLAIN_NUMBER.fullmatch(node.text):
            self._problem(
                "timeout", "timeout is not a plain number of seconds", "write timeout: 120, or 0 for the default"
            )
            return 0.0
        seconds = float(node.text)
        if seconds > LONGEST_TIMEOUT:
            self._problem("timeout", f"timeout is longer than {LONGEST_TIMEOUT} seconds", "give it in seconds")
        return seconds

    def _ca_bundle(self, endpoint: Endpoint | None) -> str:
        path = self._plain_text("ca_bundle", 4096)
        if path is None:
            return ""
        if endpoint is not None and endpoint.scheme != "https":
            self._problem("ca_bundle", "ca_bundle belongs to https:// endpoints", "remove it, or write https://")
        return str(self._directory / path)
