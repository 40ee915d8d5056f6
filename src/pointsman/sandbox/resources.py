"""How much memory and processor time a command may take, and where control groups can be made to hold it to that.

Pure: `control_groups` reads and writes the files. Version 1 has one hierarchy per controller; version 2 has one for
all, in which a group that holds processes cannot have controlled children.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pointsman.core.size import read_size
from pointsman.sandbox.child import CannotStart

LEAST_MEMORY = 16 << 20  # the launcher's init is counted, and takes 10 MiB
LEAST_CPUS, MOST_CPUS = 0.01, 4096.0  # the kernel's least quota is 1 ms of its period of 100 ms
PERIOD_MICROSECONDS = 100_000
_CPUS = re.compile(r"\d{1,4}(?:\.\d{1,3})?|\.\d{1,3}", re.ASCII)

GROUP_MEND = (
    "as a user, start it as 'systemd-run --user --scope -p Delegate=yes pointsman sandbox run …'; or run it with sudo, "
    "or leave the option away"
)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a command may take; None is as much as there is."""

    memory_bytes: int | None = None
    cpus: float | None = None

    @property
    def controllers(self) -> tuple[str, ...]:
        """The kernel's names of what has to be controlled."""
        wanted = (("memory", self.memory_bytes), ("cpu", self.cpus))
        return tuple(name for name, value in wanted if value is not None)

    @property
    def quota_microseconds(self) -> int:
        """Of every PERIOD_MICROSECONDS."""
        return round((self.cpus or 0) * PERIOD_MICROSECONDS)


UNBOUNDED = Resources()


def read_memory(text: str) -> int:
    """Bytes that a command can live with. Raises ValueError that says what is wrong."""
    size = read_size(text)
    if size < LEAST_MEMORY:
        raise ValueError(f"{text!r} is too little for any command; at least {LEAST_MEMORY >> 20}M")
    return size


def read_cpus(text: str) -> float:
    """Processors from `1.5`. Raises ValueError that says what is wrong."""
    if _CPUS.fullmatch(text.strip()) is None or not LEAST_CPUS <= float(text) <= MOST_CPUS:
        raise ValueError(f"{text!r} is not a number of processors from {LEAST_CPUS} up; for example 1.5")
    return float(text)


def out_of_memory(killed: int, resources: Resources) -> str:
    """One line for the operator when the kernel has ended `killed` processes at the limit."""
    size = (resources.memory_bytes or 0) / (1 << 20)
    what = "a process" if killed == 1 else f"{killed} processes"
    return (
        f"pointsman: the command reached its --memory of {size:.0f} MiB and the kernel ended {what} of it; give it more"
    )


class NoControlGroup(CannotStart):
    """A limit was asked for that cannot be set here."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"--memory and --cpus need a control group, and {cause}: {GROUP_MEND}")
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where a controller's groups are."""

    version: int
    mount: str
    own: str
    """Path of our own group, below `mount`."""


def find_hierarchy(controller: str, mounts: str, memberships: str) -> Hierarchy | None:
    """Where `controller` may be found, from /proc/self/mounts and /proc/self/cgroup; version 1 where it has it."""
    unified = None
    own = {name: path for _, names, path in _fields(memberships) for name in names.split(",")}
    for line in mounts.splitlines():
        _, mount, kind, options, *_ = (*line.split(), "", "", "", "")
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount)
        if kind == "cgroup" and controller in options.split(",") and controller in own:
            return Hierarchy(1, mount, own[controller])
        if kind == "cgroup2" and "" in own:
            unified = Hierarchy(2, mount, own[""])
    return unified


def _fields(memberships: str) -> Sequence[Sequence[str]]:
    return [line.split(":", 2) for line in memberships.splitlines() if line.count(":") >= 2]


@dataclass(frozen=True, slots=True)
class Level:
    """A group of version 2, as it was found."""

    path: str
    writable: bool
    available: Collection[str]
    """Controllers it has from above."""
    enabled: Collection[str]
    """Controllers its children have."""
    occupied: bool
    """Whether processes other than ours are in it, which bars it from enabling controllers."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to make a group of version 2."""

    parent: str
    step_aside: bool = False
    """Whether we have to move to a child of it first, and enable the controllers."""


def choose_place(levels: Sequence[Level], controllers: Collection[str]) -> Place:
    """The place for a group with `controllers`; `levels` are our own group and those above it, innermost first.

    Our own group when it was delegated to us and we are alone in it, else the nearest one above that has what is
    needed. Raises NoControlGroup with the cause.
    """
    wanted = set(controllers)
    own = levels[0]
    if own.writable and wanted <= set(own.available) and not own.occupied:
        return Place(own.path, step_aside=True)
    for level in levels:
        if level.writable and wanted <= set(level.enabled):
            return Place(level.path)
    missing = wanted - set(own.available)
    if not own.writable:
        raise NoControlGroup(f"{own.path} may not be written to")
    if missing:
        raise NoControlGroup(f"{own.path} was given no {' and '.join(sorted(missing))} controller")
    raise NoControlGroup(f"other processes are in {own.path}")


def ancestors(hierarchy: Hierarchy) -> tuple[str, ...]:
    """The directories of our own group and of those above it, innermost first."""
    top = PurePosixPath(hierarchy.mount)
    own = top / hierarchy.own.lstrip("/")
    return tuple(str(path) for path in (own, *own.parents) if path.is_relative_to(top))
