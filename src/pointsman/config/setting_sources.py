"""Collects what was given for each setting: by option, else environment variable, else file.

Owns which keys and variables there are in each source and that they hold text; what the text of a key means is
`settings`'. No value is repeated in a message: it may be a password in the wrong place.
"""

import os
from collections.abc import Mapping as Environment
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.config.appsettings import Appsettings, read_appsettings
from pointsman.config.problems import Problem, SettingsError
from pointsman.config.setting_keys import (
    BY_PATH,
    CLIENT_PREFIX,
    CLIENT_VARIABLES,
    HABITS,
    KEYS,
    PREFIX,
    RECORDS,
    SECTIONS,
    variable_of,
)
from pointsman.config.text_file import Unreadable, decode, read_bytes
from pointsman.config.wording import nearest, shown, shown_variable
from pointsman.config.yaml_positions import NOTHING, NUMBER, STRING, Mapping, Node, Scalar, Sequence, read_document


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's text and where it stands."""

    text: str = field(repr=False)
    place: str
    """A file, an environment variable or an option."""
    line: int
    """Of the file; 0 elsewhere."""
    directory: Path
    """Where relative paths in it start."""
    public: bool = False
    """Whether every user of this machine can read it."""

    @property
    def source(self) -> str:
        """For people: `FILE:LINE`, the variable or the option."""
        return f"{self.place}:{self.line}" if self.line else self.place


class Complaints:
    """Collects what is wrong with settings, wherever it stands."""

    def __init__(self) -> None:
        self._found: list[tuple[str, Problem]] = []

    def add(self, place: str, line: int, reason: str, next_step: str) -> None:
        """One more thing to mend."""
        self._found.append((place, Problem(line, reason, next_step)))

    def about(self, given: Given, reason: str, next_step: str) -> None:
        """One more thing to mend, about what was given."""
        self.add(given.place, given.line, reason, next_step)

    def extend(self, place: str, problems: tuple[Problem, ...]) -> None:
        """All that is wrong with one file."""
        self._found.extend((place, problem) for problem in problems)

    def raise_any(self) -> None:
        """Raises SettingsError if there are any: the file's by line, then variables, then options."""
        if self._found:
            raise SettingsError(tuple(sorted(set(self._found), key=_order)))


def _order(found: tuple[str, Problem]) -> tuple[bool, bool, str, Problem]:
    place, problem = found
    return place.startswith("--"), place.startswith(PREFIX), place, problem


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file holds."""

    place: str
    directory: Path
    """Where relative paths in it start."""
    settings: dict[str, Given] = field(default_factory=dict)
    records: dict[str, tuple[int, Node]] = field(default_factory=dict)
    """Line and node of `providers` and `routes`."""
    appsettings: Appsettings | None = None
    """What makes it different, if it is InferRouter's."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was given, by key; and the file, if there is one that could be read."""

    settings: dict[str, Given]
    file: FileContent | None


def gather(
    path: Path | None, environ: Environment[str, str], options: Environment[str, str], complaints: Complaints
) -> Gathered:
    """Everything. An empty variable counts as absent, and so does a key without a value in the file."""
    here = Path.cwd()
    file = _from_file(path, complaints) if path is not None else None
    given = dict(file.settings) if file is not None else {}
    given.update(_from_environment(environ, here, complaints))
    for key, text in options.items():
        given[key] = Given(text, BY_PATH[key].option, 0, here)
    return Gathered(given, file)


def _from_file(path: Path, complaints: Complaints) -> FileContent | None:
    place = os.fspath(path)
    try:
        data, public = read_bytes(place)
        text = decode(data)
    except Unreadable as error:
        complaints.extend(place, (error.problem,))
        return None
    directory = Path(os.path.abspath(place)).parent
    if path.suffix.lower() == ".json":
        return _from_appsettings(place, directory, text, complaints)
    document = read_document(text)
    complaints.extend(place, document.problems)
    root = document.root
    if root is None or root.kind == NOTHING:
        return None
    if not isinstance(root, Mapping):
        complaints.add(place, root.line, f"the file is {root.kind}, not a mapping", "write it as KEY: VALUE")
        return None
    reader = _FileReader(place, directory, public, complaints)
    reader.read(root, "")
    return FileContent(place, directory, reader.given, reader.records)


def _from_appsettings(place: str, directory: Path, text: str, complaints: Complaints) -> FileContent:
    found = read_appsettings(text)
    complaints.extend(place, found.problems)
    settings = {key: Given(value, place, line, directory) for key, (line, value) in found.settings.items()}
    return FileContent(place, directory, settings, found.records, found)


class _FileReader:
    """Walks the tree of a settings file."""

    def __init__(self, place: str, directory: Path, public: bool, complaints: Complaints) -> None:
        self.given: dict[str, Given] = {}
        self.records: dict[str, tuple[int, Node]] = {}
        self._place, self._directory, self._public = place, directory, public
        self._complaints = complaints

    def read(self, mapping: Mapping, section: str) -> None:
        """Take the keys of the file, or of a section, whose name then ends in a dot."""
        for key, (line, node) in mapping.entries.items():
            path = section + key if "." not in key else ""  # `listen.grpc: …` is one key to YAML, and not ours
            if path in BY_PATH:
                self._value(path, line, node)
            elif path in RECORDS:
                self.records[path] = line, node
            elif path in SECTIONS:
                self._section(path, line, node)
            elif section or not key.startswith("x-"):
                reason = f"unknown key{shown(key)}{' in ' + section[:-1] if section else ''}"
                self._complaints.add(self._place, line, reason, _meant(key, section))

    def _section(self, path: str, line: int, node: Node) -> None:
        if isinstance(node, Mapping):
            self.read(node, path + ".")
        elif node.kind != NOTHING:
            inner = next(key.path.partition(".")[2] for key in KEYS if key.path.startswith(path + "."))
            self._complaints.add(
                self._place, line, f"{path} is {node.kind}, not a mapping", f"write {path}: {{{inner}: …}}"
            )

    def _value(self, path: str, line: int, node: Node) -> None:
        if node.kind == NOTHING:
            return
        kinds = (STRING, NUMBER) if BY_PATH[path].is_number else (STRING,)
        if isinstance(node, Scalar) and node.kind in kinds:
            self.given[path] = Given(node.text, self._place, line, self._directory, self._public)
        elif BY_PATH[path].is_list and isinstance(node, Sequence) and all(each.kind == STRING for each in node.items):
            if texts := [each.text for each in node.items if isinstance(each, Scalar)]:
                self.given[path] = Given(", ".join(texts), self._place, line, self._directory, self._public)
        else:
            what = "a number" if BY_PATH[path].is_number else "a list" if BY_PATH[path].is_list else "text"
            next_step = f"write {what}, for example {path.rpartition('.')[2]}: {BY_PATH[path].example}"
            self._complaints.add(self._place, line, f"{path} is {node.kind}", next_step)


def _meant(key: str, section: str) -> str:
    """What somebody who wrote an unknown key should do."""
    lower = key.strip().lower()
    inside = [path.partition(".")[2] for path in BY_PATH if section and path.startswith(section)]
    near = nearest(key, inside)
    if near:
        return f"did you mean {near}?"
    top = [path for path in (*BY_PATH, *RECORDS) if "." not in path] + list(SECTIONS)
    flat = {path.replace(".", "_"): path for path in BY_PATH}
    near = HABITS.get(lower) or flat.get(lower.replace(".", "_"), "") or nearest(key, top)
    if not near:  # `grpc` alone
        near = next((path for path in BY_PATH if path.endswith("." + lower)), "")
    if "." in near:
        outer, _, inner = near.partition(".")
        return f"did you mean {outer}: {{{inner}: …}}?"
    if near:
        return f"did you mean {near}{' outside ' + section[:-1] if section else ''}?"
    return f"the keys here are {', '.join(inside or sorted(top))}"


def _from_environment(environ: Environment[str, str], here: Path, complaints: Complaints) -> dict[str, Given]:
    known = {key.variable: key.path for key in KEYS}
    given: dict[str, Given] = {}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or not text.strip():
            continue
        if name in known:
            given[known[name]] = Given(text, name, 0, here)
        elif name in (variable_of(path) for path in RECORDS):
            complaints.add(name, 0, "records stand in a file, not in a variable", "use --config FILE")
        elif name == "POINTSMAN_CONFIG":
            complaints.add(name, 0, "the file is not named by a variable", "use --config FILE")
        elif name not in CLIENT_VARIABLES and not name.startswith(CLIENT_PREFIX):
            _unknown_variable(name, tuple(known), complaints)
    return given


def _unknown_variable(name: str, known: tuple[str, ...], complaints: Complaints) -> None:
    near = nearest(name.removeprefix(PREFIX), [each.removeprefix(PREFIX).lower() for each in known]).upper()
    if not near and "__" not in name:
        return  # another program's, or another command's
    place = shown_variable(name.replace("__", "_")) and name
    reason = "is no setting" if place else "a variable that begins with POINTSMAN_ is no setting"
    next_step = f"did you mean {PREFIX}{near}?" if near else f"the variables are {', '.join(known)}"
    complaints.add(place or "environment", 0, reason, next_step)
