"""One provider of a configuration file, read into the record that the gateway keeps of providers.

Owns the rules for each key. Pure but for the time zones' table: whether a named file exists is for the caller to see.
A key never stands in such a file; what could be one in the wrong place is never repeated.
"""

import json
import re
import uuid
import zoneinfo
from collections.abc import Mapping as Environment
from dataclasses import dataclass
from pathlib import Path

from pointsman.config.file_entry import FileEntry, Keys
from pointsman.config.secrets import secret_path
from pointsman.config.wording import nearest, shown
from pointsman.core.account import DEFAULT_ACCOUNT
from pointsman.core.attempts import ErrorCategory
from pointsman.core.endpoint import Endpoint, parse_endpoint
from pointsman.core.profiles import LOCAL_GGUF, known_provider_types, profile_for
from pointsman.core.provider import BASE_IS_WHOLE, KEY_FILE, LONGEST_VALUE, Provider
from pointsman.core.quota import DEFAULT_ZONE
from pointsman.core.reach import refused_address
from pointsman.core.route import LONGEST_MODEL
from pointsman.core.secret import Secret

MOCK = "mock"
TYPES = (*known_provider_types(), LOCAL_GGUF, MOCK)
KEYS = Keys(
    (
        "name",
        "type",
        "base_url",
        "model",
        "model_path",
        "daily_request_limit",
        "requests_per_minute",
        "reset_timezone",
        "error_code_path",
        "error_mappings",
        "api_key",
    ),
    {
        "url": "base_url",
        "endpoint": "base_url",
        "provider_type": "type",
        "model_id": "model",
        "path": "model_path",
        "daily_limit": "daily_request_limit",
        "rpm": "requests_per_minute",
        "timezone": "reset_timezone",
        "mappings": "error_mappings",
        "key": "api_key",
        "token": "api_key",
    },
)
MAPPING_KEYS = Keys(("http_status", "error_code", "category"), {"status": "http_status", "code": "error_code"})
MOST_REQUESTS = 1_000_000_000
"""A limit beyond this is none."""
MOST_MAPPINGS = 64
_LONGEST_PATH = 4096  # PATH_MAX of Linux
_LONGEST_CODE = 128
_CODE_PATH = re.compile(r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,7}")
_IDS = uuid.UUID("8b1ff5a6-6f0d-4ba5-9f5e-6a4a7f0a1d53")
"""Namespace of the ids of providers that a file defines: the same name has the same id in every process and run."""


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A record, and where the file speaks of it."""

    record: Provider
    entry: FileEntry

    @property
    def daily_requests(self) -> int:
        """Its daily limit; 0 for none."""
        return int(self.record.config.get("DAILY_REQUEST_LIMIT", "0"))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a file's entries are read against."""

    directory: Path
    """Where relative paths start."""
    secrets_dir: Path
    environ: Environment[str, str]
    allow_degraded: bool = False
    """Whether a model file may be missing."""
    forwards_model: bool = False
    """Whether the client's model name is sent, so that a provider needs none."""
    base_is_whole: bool = False
    """Whether `/chat/completions` follows a base URL at once, as InferRouter has it."""


def read_provider(entry: FileEntry, around: Surroundings) -> ProviderEntry | None:
    """The record, or None if anything is wrong with the entry, which is noted."""
    before = len(entry.findings.problems)
    name = entry.name("name")
    if name:
        entry.what = f"provider{shown(name) or ' ' + name[:40]}"
    elif "name" not in entry:
        entry.problem("name", "it has no name", f"add {entry.spelling('name')}")
    entry.check_keys(KEYS)
    kind = _type(entry)
    config = _addresses(entry, kind, around)
    config["MODEL"] = entry.text("model", LONGEST_MODEL)
    config.update(_limits(entry))
    config.update(_errors(entry))
    credentials = _keys(entry, name, kind, config, around)
    if len(entry.findings.problems) > before:
        return None
    config = {key: value for key, value in config.items() if value}
    identity = str(uuid.uuid5(_IDS, name))
    record = Provider(identity, DEFAULT_ACCOUNT, name, kind, credentials, config, 0.0, 0.0, from_file=True)
    return ProviderEntry(record, entry)


def _type(entry: FileEntry) -> str:
    kind = entry.text("type", 64).lower()
    if kind in TYPES:
        return kind
    if kind:
        known = nearest(kind, TYPES)
        next_step = f"did you mean {known}?" if known else f"the types are {', '.join(TYPES)}"
        entry.problem("type", f"unknown {entry.spelling('type')}{shown(kind)}", next_step)
    elif "type" not in entry:
        entry.problem("type", "it has no type", f"the types are {', '.join(TYPES)}")
    return ""


def _addresses(entry: FileEntry, kind: str, around: Surroundings) -> dict[str, str]:
    path = entry.text("model_path", _LONGEST_PATH)
    url, word = entry.text("base_url", 2048), entry.spelling
    endpoint = _endpoint(entry, url) if url else None
    if not kind:  # what it lacks cannot be known
        return {}
    if kind == LOCAL_GGUF:
        if "base_url" in entry:
            entry.problem("base_url", f"a local model has no {word('base_url')}", f"write {word('model_path')} instead")
        if "model_path" not in entry:
            entry.problem("model_path", "it names no model file", f"add {word('model_path')}")
        return {"MODEL_PATH": str(around.directory / path)} if path else {}
    if "model_path" in entry:
        entry.problem("model_path", f"{word('model_path')} belongs to local models", "remove it")
    if endpoint is not None and (endpoint.scheme == MOCK) != (kind == MOCK):
        entry.problem("base_url", f"{word('base_url')} does not fit its type", "mock:// belongs to type mock, alone")
    profile = profile_for(kind)
    if "base_url" not in entry and profile is not None and not profile.default_base_url:
        entry.problem("base_url", f"it has no {word('base_url')}", f"add {word('base_url')}: http://host:port/v1")
    key = profile.base_url_config_keys[0] if profile is not None else "BASE_URL"
    return {key: url, BASE_IS_WHOLE: "true" if around.base_is_whole and url else ""}


def _endpoint(entry: FileEntry, url: str) -> Endpoint | None:
    word = entry.spelling("base_url")
    try:
        endpoint = parse_endpoint(url)
    except ValueError as error:
        reason = str(error).partition(";")[0]  # its next step is for the author of a route file
        entry.problem("base_url", f"{word} {reason}", "write it as https://host/v1 or http://host:port/v1")
        return None
    if endpoint.scheme == "gguf":
        entry.problem("base_url", f"{word} names a model file", "use type local_gguf")
        return None
    try:
        refused = refused_address(endpoint.host) if endpoint.host else None
    except ValueError:  # a name; what it resolves to is checked when it is dialled
        refused = None
    if refused is not None:
        entry.problem("base_url", f"{word} {refused}, which no route may lead to", "name the model server itself")
    return endpoint


def _limits(entry: FileEntry) -> dict[str, str]:
    config = {}
    for key in ("daily_request_limit", "requests_per_minute"):
        limit = entry.whole(key, MOST_REQUESTS)
        config[key.upper()] = str(limit) if limit else ""
    zone = entry.text("reset_timezone", 64)
    if zone and not _is_zone(zone):
        known = nearest(zone, (each.lower() for each in zoneinfo.available_timezones()))
        spelt = next((each for each in zoneinfo.available_timezones() if each.lower() == known), "")
        next_step = f"did you mean {spelt}?" if spelt else "write an IANA name, as in Europe/Budapest"
        entry.problem("reset_timezone", f"{entry.spelling('reset_timezone')} is no time zone of this system", next_step)
    return {**config, "RESET_TIMEZONE": zone}


def _is_zone(name: str) -> bool:
    if name == DEFAULT_ZONE:
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _errors(entry: FileEntry) -> dict[str, str]:
    path = entry.text("error_code_path", 512)
    if path and not _CODE_PATH.fullmatch(path):
        entry.problem("error_code_path", f"{entry.spelling('error_code_path')} is no dotted path", "write error.code")
    mappings: list[dict[str, str | int]] = []
    seen: dict[tuple[int, str], int] = {}
    for each in entry.mappings("error_mappings", "a mapping", MOST_MAPPINGS):
        each.check_keys(MAPPING_KEYS)
        status, code = each.whole("http_status", 599, 100), each.text("error_code", _LONGEST_CODE)
        if "http_status" not in each:
            each.problem("http_status", f"it has no {each.spelling('http_status')}", "write a status, as in 429")
        category = _category(each)
        if (first := seen.get((status, code.lower()))) is not None:
            each.warn("http_status", f"it is never used: line {first} has the same status and code", "remove it")
        seen.setdefault((status, code.lower()), each.line)
        mappings.append({"http_status": status, "error_code": code, "category": category})
    text = json.dumps(mappings, separators=(",", ":")) if mappings else ""
    if len(text) > LONGEST_VALUE:
        entry.problem("error_mappings", f"{entry.spelling('error_mappings')} is too long", "keep those that matter")
    return {"ERROR_CODE_PATH": path, "ERROR_MAPPINGS": text}


def _category(entry: FileEntry) -> str:
    text, words = entry.text("category", 64).lower(), tuple(str(each) for each in ErrorCategory)
    if text not in words and (text or "category" not in entry):
        known = nearest(text, words)
        reason = (
            f"unknown {entry.spelling('category')}{shown(text)}" if text else f"it has no {entry.spelling('category')}"
        )
        entry.problem("category", reason, f"did you mean {known}?" if known else f"they are {', '.join(words)}")
    return text


def _keys(entry: FileEntry, name: str, kind: str, config: dict[str, str], around: Surroundings) -> dict[str, Secret]:
    """Where its key is; adds KEY_FILE to `config` if that is a file."""
    profile = profile_for(kind)
    if "api_key" in entry and entry.text("api_key", 8192).lower() != "none":
        next_step = f"put it into {around.secrets_dir}/PROVIDER_api_key; none is for servers that want none"
        entry.problem("api_key", "a key does not belong into this file", next_step)
    if profile is None or not name:
        return {}
    if "api_key" in entry:
        return {profile.credential_key_names[0]: Secret("none")}
    config[KEY_FILE] = str(secret_path(name, around.secrets_dir, around.environ))
    return {}
