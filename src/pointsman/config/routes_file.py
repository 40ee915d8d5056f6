"""The standalone route file: YAML on disk to a bundle, or to everything that is wrong with it.

Owns reading the file, its top level, and what needs a look at other files; `route_entry` owns the keys of a route,
`yaml_positions` the YAML. Loaded once: nothing here watches the file.
"""

import os
import ssl
from collections.abc import Mapping as Environment
from dataclasses import dataclass
from pathlib import Path, PurePath

from pointsman.config.problems import Problem, RouteFileError
from pointsman.config.route_entry import Findings, RouteEntry, read_entry
from pointsman.config.text_file import Unreadable, decode, open_regular, read_bytes
from pointsman.config.wording import nearest, shown
from pointsman.config.yaml_positions import NOTHING, Mapping, Sequence, read_document
from pointsman.core.candidate import SANDBOX_SYSTEM, Bundle, Candidate, make_bundle
from pointsman.core.secret import Secret

SMALLEST_FILE = (
    "routes: [{endpoint: 'http://localhost:1234/v1', model: local-model, "
    "protocols: [openai_chat_completions], api_key: none}]"
)
_SMALLEST = f"the smallest file is {SMALLEST_FILE}"
_UNNAMED = "<routes>"
_HERE = PurePath()


_NO_KEY = Secret("none")
"""What our own messages advise for an upstream that asks for no key."""


@dataclass(frozen=True, slots=True)
class LoadedRoutes:
    """What a good file gives."""

    bundle: Bundle
    warnings: tuple[str, ...] = ()
    """Lines `FILE:LINE: what; next step`, for the caller to print."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that hold keys: a sandboxed command must not inherit them."""


@dataclass(frozen=True, slots=True)
class CheckedRoute:
    """A route that is good by itself."""

    candidate: Candidate
    line: int
    key_source: str
    """Where its key comes from, as in `api_key_env OPENAI_API_KEY`, never the key; empty for a route without one."""


@dataclass(frozen=True, slots=True)
class RouteFileCheck:
    """Everything that can be said of a file. It is good if there are no problems."""

    name: str
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    routes: tuple[CheckedRoute, ...]
    """Those that are good by themselves, in the file's order."""
    key_variables: tuple[str, ...]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What those routes lead to."""
        return tuple(each.candidate for each in self.routes)


def load_route_file(path: str | os.PathLike[str], environ: Environment[str, str]) -> LoadedRoutes:
    """Read a route file. Raises RouteFileError with every problem that it has."""
    check = check_route_file(path, environ)
    if check.problems:
        raise RouteFileError(check.name, check.problems)
    warnings = tuple(warning.describe(check.name) for warning in check.warnings)
    return LoadedRoutes(make_bundle(check.candidates), warnings, check.key_variables)


def check_route_file(path: str | os.PathLike[str], environ: Environment[str, str]) -> RouteFileCheck:
    """Read a route file and the files it names, and tell all that is wrong with them. Raises nothing for any file."""
    name = os.fspath(path)
    try:
        data, public = read_bytes(name)
    except Unreadable as error:
        return RouteFileCheck(name, (error.problem,), (), (), ())
    return check_route_data(name, data, environ, Path(os.path.abspath(name)).parent, public=public)


def check_route_data(
    name: str, data: bytes, environ: Environment[str, str], directory: PurePath, *, public: bool = False
) -> RouteFileCheck:
    """The same for what is already read, whose relative paths start at `directory`; `public`: everyone may read it."""
    findings = Findings()
    entries: list[RouteEntry] = []
    try:
        text = decode(data)
    except Unreadable as error:
        findings.problems.append(error.problem)
    else:
        entries = _entries(text, environ, directory, findings)
    for entry in entries:
        _check_files(entry, findings)
        if public and entry.inline_key and entry.candidate.api_key != _NO_KEY:
            line = entry.line_of("api_key")
            reason = "every user of this machine can read this file, and it holds an api_key"
            findings.warnings.append(Problem(line, reason, "chmod 600 it, or use api_key_env", "api_key"))
    return _check(name, entries, findings)


def parse_route_file(text: str, environ: Environment[str, str], directory: PurePath = _HERE) -> tuple[Candidate, ...]:
    """Candidates of a route file's text; relative paths in it start at `directory`.

    Raises RouteFileError with every problem. Looks at no file, so that a model or CA bundle it names may not exist.
    """
    findings = Findings()
    entries = _entries(text, environ, directory, findings)
    check = _check(_UNNAMED, entries, findings)
    if check.problems:
        raise RouteFileError(_UNNAMED, check.problems)
    return check.candidates


def _check(name: str, entries: list[RouteEntry], findings: Findings) -> RouteFileCheck:
    # A route that is an alias of another repeats what is wrong with it.
    problems = tuple(sorted(set(findings.problems)))
    warnings = tuple(sorted(set(findings.warnings)))
    routes = tuple(CheckedRoute(entry.candidate, entry.line, _key_source(entry)) for entry in entries)
    variables = tuple(sorted({entry.key_variable for entry in entries} - {""}))
    return RouteFileCheck(name, problems, warnings, routes, variables)


def _key_source(entry: RouteEntry) -> str:
    if entry.candidate.api_key is None:
        return ""
    return f"api_key_env {entry.key_variable}" if entry.key_variable else "api_key in this file"


def _entries(text: str, environ: Environment[str, str], directory: PurePath, findings: Findings) -> list[RouteEntry]:
    document = read_document(text)
    findings.problems.extend(document.problems)
    root = document.root
    if root is None:
        if not document.problems:
            findings.problems.append(Problem(0, "the file is empty", _SMALLEST, "routes"))
        return []
    if not isinstance(root, Mapping):
        findings.problems.append(Problem(root.line, f"the file is {root.kind}, not a mapping", _SMALLEST, "routes"))
        return []
    for key, (line, _) in root.entries.items():
        if key != "routes" and not key.startswith("x-"):
            next_step = "did you mean routes?" if nearest(key, ("routes",)) else "the only key at this level is routes"
            findings.problems.append(Problem(line, f"unknown key{shown(key)}", next_step))
    if "routes" not in root.entries:
        findings.problems.append(Problem(0, "there is no routes list", _SMALLEST, "routes"))
        return []
    line, routes = root.entries["routes"]
    if not isinstance(routes, Sequence):
        reason = "routes has no value" if routes.kind == NOTHING else f"routes is {routes.kind}, not a list"
        next_step = f"write routes: [] for none; {_SMALLEST}"
        findings.problems.append(Problem(line, reason, next_step, "routes"))
        return []
    read = (read_entry(node, environ, directory, findings) for node in routes.items)
    entries = [entry for entry in read if entry is not None]
    _warn_of_shadows(entries, findings)
    return entries


def _warn_of_shadows(entries: list[RouteEntry], findings: Findings) -> None:
    """The first candidate that speaks a dialect gets all of it, so one behind it that adds none is never used."""
    seen: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for entry in entries:
        first = seen[entry.candidate.route == SANDBOX_SYSTEM]
        protocols = entry.candidate.protocols
        if all(protocol in first for protocol in protocols):
            lines = ", ".join(str(line) for line in sorted({first[protocol] for protocol in protocols}))
            reason = f"this route is never used: what it speaks goes to the route in line {lines}"
            findings.warnings.append(Problem(entry.line, reason, "move it up or remove it", "protocols"))
        for protocol in protocols:
            first.setdefault(protocol, entry.line)


def _check_files(entry: RouteEntry, findings: Findings) -> None:
    candidate = entry.candidate
    if candidate.endpoint.scheme == "gguf":
        key = "model_path" if "model_path" in entry.key_lines else "endpoint"
        _check_file(key, entry, candidate.endpoint.path, findings)
    if candidate.ca_bundle and _check_file("ca_bundle", entry, candidate.ca_bundle, findings):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=candidate.ca_bundle)
        except (OSError, ValueError):
            reason = f"ca_bundle {candidate.ca_bundle} holds no certificate"
            problem = Problem(entry.line_of("ca_bundle"), reason, "name a file of PEM certificates", "ca_bundle")
            findings.problems.append(problem)


def _check_file(key: str, entry: RouteEntry, path: str, findings: Findings) -> bool:
    try:
        descriptor, _ = open_regular(path)
    except Unreadable as error:
        reason = f"{key} {path}: {error.problem.reason}"
        next_step = "check it; relative paths start at the route file's directory"
        findings.problems.append(Problem(entry.line_of(key), reason, next_step, key))
        return False
    with os.fdopen(descriptor, "rb") as file:
        magic = file.read(4)
    if key != "ca_bundle" and magic != b"GGUF":
        reason = f"{key} {path} is no GGUF file"
        findings.problems.append(Problem(entry.line_of(key), reason, "fetch the model again; check the path", key))
        return False
    return True
