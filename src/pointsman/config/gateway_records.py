"""Providers and chains that a configuration file defines, as the records the gateway works with.

Owns what needs a look at all entries, and at the files they name; `provider_entry` and `chain_entry` own their keys.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from pointsman.config.appsettings import spelling
from pointsman.config.chain_entry import read_chain
from pointsman.config.file_entry import FileEntry, Spelling, as_written
from pointsman.config.problems import Problem
from pointsman.config.provider_entry import ProviderEntry, Surroundings, read_provider
from pointsman.config.route_entry import Findings
from pointsman.config.setting_sources import FileContent
from pointsman.config.text_file import Unreadable, open_regular
from pointsman.config.yaml_positions import NOTHING, Mapping, Node, Sequence
from pointsman.core.endpoint import parse_endpoint
from pointsman.core.profiles import LOCAL_GGUF, profile_for
from pointsman.core.provider import KEY_FILE, Provider
from pointsman.core.route import Route
from pointsman.core.secret import Secret

MOST_RECORDS = 1000
"""Of each kind in a file."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileRecords:
    """What a configuration file defines; empty for a file without providers and routes."""

    providers: tuple[Provider, ...] = ()
    """Of the default account; chain settings in the config map, the place of the key too (`KEY_FILE`)."""
    routes: tuple[Route, ...] = ()
    """Chains of the default account."""
    warnings: tuple[str, ...] = ()
    """Lines `FILE:LINE: what; next step`, for the caller to print."""
    stats_on_data: bool = False
    """Whether `/stats/*` is on the data listener too, as InferRouter's clients expect it."""


@dataclass(frozen=True, slots=True)
class RecordNodes:
    """Where a file speaks of providers and routes."""

    place: str
    """The file."""
    around: Surroundings
    providers: tuple[int, Node] | None = None
    """Line and node."""
    routes: tuple[int, Node] | None = None
    spelling: Spelling = as_written
    stats_on_data: bool = False


def records_of(file: FileContent, around: Surroundings) -> tuple[FileRecords, tuple[Problem, ...]]:
    """The records of a file, in our own words or in InferRouter's; and every problem."""
    theirs = file.appsettings
    if theirs is not None:
        around = replace(around, forwards_model=not theirs.hides_models, base_is_whole=True)
    records, problems = read_records(
        RecordNodes(
            file.place,
            around,
            file.records.get("providers"),
            file.records.get("routes"),
            as_written if theirs is None else spelling,
            stats_on_data=theirs is not None,
        )
    )
    if theirs is not None:
        warnings = tuple(each.describe(file.place) for each in theirs.warnings)
        records = replace(records, warnings=(*warnings, *records.warnings))
    return records, problems


def read_records(nodes: RecordNodes) -> tuple[FileRecords, tuple[Problem, ...]]:
    """The records that are good, and every problem. Looks at the model and key files that are named."""
    findings = Findings()
    entries = _entries(nodes, "provider", nodes.providers, findings)
    providers = _unique("provider", entries, lambda each: read_provider(each, nodes.around), findings)
    for each in providers.values():
        if each is not None and each.record.type == LOCAL_GGUF:
            _check_model_file(each, nodes.around.allow_degraded)
    known = {name: _keyless(each) for name, each in providers.items()}
    routes = _unique(
        "route",
        _entries(nodes, "route", nodes.routes, findings),
        lambda each: read_chain(each, known, forwards_model=nodes.around.forwards_model),
        findings,
    )
    warnings = tuple(each.describe(nodes.place) for each in sorted(set(findings.warnings)))
    records = FileRecords(
        tuple(each.record for each in known.values() if each is not None),
        tuple(each for each in routes.values() if each is not None),
        warnings,
        stats_on_data=nodes.stats_on_data,
    )
    return records, tuple(sorted(set(findings.problems)))


def _entries(nodes: RecordNodes, what: str, given: tuple[int, Node] | None, findings: Findings) -> list[FileEntry]:
    if given is None or given[1].kind == NOTHING:
        return []
    line, node = given
    word = nodes.spelling(f"{what}s")
    if not isinstance(node, Sequence):
        findings.problems.append(Problem(line, f"{word} is {node.kind}, not a list", f"write {word}: [{{…}}]", word))
        return []
    if len(node.items) > MOST_RECORDS:
        reason = f"{word} has {len(node.items)} entries; at most {MOST_RECORDS}"
        findings.problems.append(Problem(line, reason, "keep the rest in the gateway's store", word))
        return []
    entries = []
    for item in node.items:
        if isinstance(item, Mapping):
            entries.append(FileEntry(f"a {what}", item, findings, nodes.spelling))
        else:
            findings.problems.append(Problem(item.line, f"{word} holds {item.kind}, not a mapping", "write {…}", word))
    return entries


def _unique(
    what: str, entries: list[FileEntry], read: Callable[[FileEntry], _T | None], findings: Findings
) -> dict[str, _T | None]:
    """What was read, by name; None for what is broken. Names are unique ignoring case: so are files of keys on some."""
    found: dict[str, _T | None] = {}
    lines: dict[str, int] = {}
    for entry in entries:
        value = read(entry)
        node = entry.node("name")
        name = str(getattr(node, "text", "")).strip()
        if name.lower() in lines:
            reason = f"{entry.what}: another {what} has this name, in line {lines[name.lower()]}"
            problem = Problem(entry.line_of("name"), reason, "give each a name of its own; case does not count", "name")
            findings.problems.append(problem)
        elif name:
            found[name] = value
            lines[name.lower()] = entry.line_of("name")
    return found


def _check_model_file(provider: ProviderEntry, allow_degraded: bool) -> None:
    entry, path = provider.entry, provider.record.config["MODEL_PATH"]
    note = entry.warn if allow_degraded else entry.problem
    word = entry.spelling("model_path")
    try:
        descriptor, _ = open_regular(path)
    except Unreadable as error:
        next_step = "fetch the model, or start with --allow-degraded; relative paths start at this file's directory"
        note("model_path", f"{word} {path}: {error.problem.reason}", next_step)
        return
    with os.fdopen(descriptor, "rb") as file:
        if file.read(4) != b"GGUF":
            note("model_path", f"{word} {path} is no GGUF file", "fetch the model again; check the path")


def _keyless(provider: ProviderEntry | None) -> ProviderEntry | None:
    """A server in clear text, whose key file is not there, is asked without a key: most local servers want none."""
    if provider is None or (profile := profile_for(provider.record.type)) is None:
        return provider
    record, entry = provider.record, provider.entry
    url = record.config.get(profile.base_url_config_keys[0], "")
    if KEY_FILE not in record.config or not url or parse_endpoint(url).scheme != "http":
        return provider
    path = record.config[KEY_FILE]
    if os.path.lexists(path):
        return provider
    next_step = f"add {entry.spelling('api_key')}: none if that is meant"
    entry.warn("base_url", f"there is no {path}, so that it is asked without a key", next_step)
    config = {key: value for key, value in record.config.items() if key != KEY_FILE}
    credentials = {profile.credential_key_names[0]: Secret("none")}
    return ProviderEntry(replace(record, credentials=credentials, config=config), entry)
