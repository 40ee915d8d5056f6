"""The control groups of one command: made, written, read and removed. What and where is decided in `resources`."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from pointsman.sandbox.resources import (
    PERIOD_MICROSECONDS,
    Hierarchy,
    Level,
    NoControlGroup,
    Resources,
    ancestors,
    choose_place,
    find_hierarchy,
)

_INNER = "command"
_REMOVAL_TRIES, _REMOVAL_SECONDS = 50, 0.02  # the kernel counts a process that has just ended a little longer


class ControlGroups:
    """Groups with their limits set, for the command to be started in. `remove` when it has ended."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        """Directories whose `cgroup.procs` the command has to enter."""
        self._events: Path | None = None
        self._stepped_aside: Path | None = None

    @property
    def out_of_memory(self) -> int:
        """How many processes the kernel has ended because the limit was reached."""
        if self._events is not None:
            for line in self._events.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def add(self, path: Path, files: dict[str, str], events: str = "") -> None:
        """Make a group with limits, and in it the one to enter. A file whose name ends in `?` may be missing.

        Two, because a command that makes a user and a control group namespace can write to the group that it is in,
        and to none above. `events` is a file below `path`.
        """
        path.mkdir()
        inner = path / _INNER
        self.paths.append(str(inner))
        for name, value in files.items():
            file = path / name.rstrip("?")
            if file.exists() or not name.endswith("?"):
                file.write_text(value)
        inner.mkdir()
        if events:
            self._events = path / events

    def step_aside(self, group: Path, controllers: tuple[str, ...]) -> None:
        """Leave `group` for a child of it, so that it may have children with controllers."""
        leaf = group / "pointsman"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        self._stepped_aside = group
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))

    async def remove(self) -> None:
        """Remove the groups; whoever was in them has ended."""
        for path in [each for inner in self.paths for each in (inner, os.path.dirname(inner))]:
            for _ in range(_REMOVAL_TRIES):
                try:
                    os.rmdir(path)
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(_REMOVAL_SECONDS)
                else:
                    break
        self.paths.clear()
        if self._stepped_aside is not None:
            group, self._stepped_aside = self._stepped_aside, None
            with contextlib.suppress(OSError):
                enabled = (group / "cgroup.subtree_control").read_text().split()
                (group / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in enabled))
                (group / "cgroup.procs").write_text(str(os.getpid()))
                (group / "pointsman").rmdir()


def make_control_groups(resources: Resources, proc: Path = Path("/proc/self")) -> ControlGroups:
    """Groups that hold whoever enters them to `resources`. Raises NoControlGroup."""
    groups = ControlGroups()
    name = f"pointsman-{secrets.token_hex(6)}"
    with _explained():
        mounts, memberships = (proc / "mounts").read_text(), (proc / "cgroup").read_text()
    unified: list[str] = []
    hierarchy = None
    for controller in resources.controllers:
        found = find_hierarchy(controller, mounts, memberships)
        if found is None:
            raise NoControlGroup(f"the {controller} controller is not mounted")
        if found.version == 2:
            unified.append(controller)
            hierarchy = found
    try:
        for controller in set(resources.controllers) - set(unified):
            found = find_hierarchy(controller, mounts, memberships)
            assert found is not None, "it was, a moment ago"
            with _explained():
                _add_version_1(groups, _own_group(found) / name, controller, resources)
        if hierarchy is not None:
            with _explained():
                _add_version_2(groups, hierarchy, name, resources, tuple(unified))
    except NoControlGroup:
        for inner in groups.paths:
            for path in (inner, os.path.dirname(inner)):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        raise
    return groups


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoControlGroup(f"{error.filename} cannot be used ({error.strerror})") from None


def _own_group(hierarchy: Hierarchy) -> Path:
    own = Path(ancestors(hierarchy)[0])
    # A container without a control group namespace is told a path of its host.
    return own if own.is_dir() else Path(hierarchy.mount)


def _add_version_1(groups: ControlGroups, path: Path, controller: str, resources: Resources) -> None:
    if controller == "memory":
        limit = str(resources.memory_bytes)
        files = {"memory.use_hierarchy?": "1", "memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes?": limit}
        groups.add(path, files, f"{_INNER}/memory.oom_control")
    else:
        period, quota = str(PERIOD_MICROSECONDS), str(resources.quota_microseconds)
        groups.add(path, {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota})


def _add_version_2(
    groups: ControlGroups, hierarchy: Hierarchy, name: str, resources: Resources, controllers: tuple[str, ...]
) -> None:
    own = str(_own_group(hierarchy))
    place = choose_place([_level(path) for path in ancestors(hierarchy) if Path(path).is_dir()], controllers)
    if place.step_aside:
        groups.step_aside(Path(own), controllers)
    files: dict[str, str] = {}
    if "memory" in controllers:
        files |= {"memory.max": str(resources.memory_bytes), "memory.swap.max?": "0"}
    if "cpu" in controllers:
        files["cpu.max"] = f"{resources.quota_microseconds} {PERIOD_MICROSECONDS}"
    groups.add(Path(place.parent, name), files, "memory.events" if "memory" in controllers else "")


def _level(path: str) -> Level:
    group = Path(path)
    members = {int(number) for number in (group / "cgroup.procs").read_text().split()}
    return Level(
        path,
        writable=all(os.access(each, os.W_OK) for each in (group, group / "cgroup.procs")),
        available=(group / "cgroup.controllers").read_text().split(),
        enabled=(group / "cgroup.subtree_control").read_text().split(),
        occupied=bool(members - {os.getpid()}),
    )
