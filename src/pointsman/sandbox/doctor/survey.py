"""Finds the clients on PATH and asks each for its version. A shell: it starts them."""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pointsman.sandbox.doctor.client import NODE_LIBRARIES, PYTHON_LIBRARIES, Client, Kind
from pointsman.sandbox.doctor.process import run

_VERSION = re.compile(r"\d+(?:\.\d+)+[0-9a-z.+-]*")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_ASK_VERSION: dict[Kind, tuple[str, ...]] = {Kind.OPENSSL: ("version",), Kind.JAVA: ("-version",)}
_SECONDS = 20.0  # to say a version; a cold interpreter on a busy machine takes 2
_PYTHON_FACTS = """
import importlib.util, json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        if importlib.util.find_spec(name):
            found[name] = metadata.version(name)
    except Exception:
        pass
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix, "libraries": found}))
"""
_NODE_FACTS = """
const found = {};
for (const name of %s) {
  try {
    const where = require.resolve(name, {paths: [%s]});
    const directory = where.slice(0, where.lastIndexOf(name) + name.length);
    found[name] = [where, require(directory + "/package.json").version];
  } catch {}
}
console.log(JSON.stringify(found));
"""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is on this machine."""

    clients: tuple[Client, ...]
    agents: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Coding agents by name: path and version."""


async def survey(
    environ: Mapping[str, str], directory: str, names: Sequence[str], agent_names: Sequence[str], trials: str
) -> Survey:
    """All known clients, or those whose program or library is in `names`.

    Libraries of Node are looked for from `directory`; empty: not at all, because asking one runs its code.
    All are asked in a directory of their own in `trials`.
    """
    wanted = frozenset(names)
    with tempfile.TemporaryDirectory(prefix="pointsman-doctor-", dir=trials) as place:
        search = _Search(environ, place, directory)
        async with asyncio.TaskGroup() as group:
            plain = [
                group.create_task(search.plain(kind))
                for kind in Kind
                if kind is not Kind.PYTHON and (not wanted or wanted & {kind.value, *_libraries(kind)})
            ]
            python = group.create_task(search.pythons() if not wanted or _wants_python(wanted) else search.nothing())
            agents = {
                name: group.create_task(search.version(path, ("--version",)))
                for name in agent_names
                if (path := search.find(name)) and (not wanted or name in wanted)
            }
    found = [client for task in (*plain, python) for client in task.result()]
    chosen = tuple(client for client in found if not wanted or wanted & client.words)
    return Survey(chosen, {name: (search.find(name) or "", task.result()) for name, task in agents.items()})


def _libraries(kind: Kind) -> tuple[str, ...]:
    return NODE_LIBRARIES if kind is Kind.NODE else ()


def _wants_python(wanted: frozenset[str]) -> bool:
    return bool(wanted & {*PYTHON_LIBRARIES}) or any(_PYTHON.fullmatch(name) for name in wanted)


class _Search:
    def __init__(self, environ: Mapping[str, str], place: str, directory: str) -> None:
        self._environ = environ
        self._place = place
        self._directory = directory
        path = environ.get("PATH", os.defpath).split(os.pathsep)
        # A relative entry would make the answer depend on where one stands.
        self._path = [each for each in path if os.path.isabs(each)]

    def find(self, name: str) -> str | None:
        return next((path for path in self._all(name) if os.access(path, os.X_OK) and os.path.isfile(path)), None)

    def _all(self, name: str) -> Iterator[str]:
        return (os.path.join(each, name) for each in self._path)

    async def nothing(self) -> list[Client]:
        return []

    async def version(self, path: str, question: tuple[str, ...]) -> str:
        said = await run((path, *question), self._environ, self._place, _SECONDS)
        match = _VERSION.search(said.output)
        return match[0] if match and not said.timed_out else ""

    async def plain(self, kind: Kind) -> list[Client]:
        path = self.find(kind.value)
        if path is None:
            return []
        said = await run((path, *_ASK_VERSION.get(kind, ("--version",))), self._environ, self._place, _SECONDS)
        match = _VERSION.search(said.output)
        if match is None:  # a stub of a package that is not installed
            return []
        client = Client(kind, path, match[0])
        return [client, *await self._node_libraries(client)] if kind is Kind.NODE else [client]

    async def _node_libraries(self, node: Client) -> list[Client]:
        if not self._directory:
            return []
        script = _NODE_FACTS % (json.dumps(NODE_LIBRARIES), json.dumps(self._directory))
        said = await run((node.path, "-e", script), self._environ, self._place, _SECONDS)
        return [
            Client(Kind.NODE, node.path, version, library, node.version, where)
            for library, (where, version) in _object(said.output).items()
        ]

    async def pythons(self) -> list[Client]:
        paths = self._interpreters()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._python(path)) for path in paths]
        seen: set[str] = set()
        clients = []
        for path, facts in zip(paths, (task.result() for task in tasks), strict=True):
            if not facts or facts["prefix"] in seen:
                continue
            seen.add(facts["prefix"])
            version = facts["version"]
            clients.append(Client(Kind.PYTHON, path, version, "urllib", version))
            clients += [Client(Kind.PYTHON, path, found, name, version) for name, found in facts["libraries"].items()]
        return clients

    def _interpreters(self) -> list[str]:
        """In the order of PATH; of several names for one thing in one directory the plainest."""
        found: dict[tuple[str, str], str] = {}
        for directory in self._path:
            try:
                names = [name for name in os.listdir(directory) if _PYTHON.fullmatch(name)]
            except OSError:
                continue
            for name in sorted(names, key=_plainest):
                path = os.path.join(directory, name)
                # An environment's interpreter is a link to another one, but not the same thing.
                found.setdefault((os.path.realpath(directory), os.path.realpath(path)), path)
        return list(found.values())

    async def _python(self, path: str) -> dict[str, Any]:
        argv = (path, "-c", _PYTHON_FACTS, *(name for name in PYTHON_LIBRARIES if name != "urllib"))
        said = await run(argv, self._environ, self._place, _SECONDS)
        facts = _object(said.output)
        return facts if facts.get("version", "").startswith("3.") else {}


def _plainest(name: str) -> tuple[bool, int]:
    return (name != "python3", len(name))


def _object(text: str) -> dict[str, Any]:
    """The JSON object in the last line, or an empty one."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
