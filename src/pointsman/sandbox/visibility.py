"""What an isolated command sees of the file system.

A path the command needs may lie under a directory that its user may not enter: /root, with the interpreter in it.
Such a directory is covered with an empty one, into which only the needed paths are bound; the rest of it vanishes,
which is what a sandbox wants anyway. So do homes and the places of other people's sockets. `plan_view` decides;
`launcher` or bubblewrap mounts. Everything outside the covers stays as it is, for the file system's own permissions
to judge.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from pointsman.sandbox.child import CannotStart, User

# The sockets of the host's services live there: system bus, resolver, databases, containers. A network namespace
# does not contain a socket that has a path, and a resolver is a way out.
HIDDEN = (
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/incus",
    "/var/lib/lxd",
    "/var/lib/mysql",
    "/var/lib/sss/pipes",
    "/var/snap",
    "/var/spool/postfix",
)
PRIVATE = {"/dev/shm": "shm", "/tmp": "tmp", "/var/tmp": "var-tmp"}  # noqa: S108
"""Replaced by a writable directory of the sandbox's own, below its private one: X11's, tmux's, PostgreSQL's and
ssh-agent's sockets are in the host's."""
PRIVATE_HOME = "home"

_LINK_LIMIT = 40  # MAXSYMLINKS of the kernel
_SCRIPT_LIMIT = 5  # scripts whose interpreter is a script; BINPRM_MAX_RECURSION of the kernel, plus the program


@dataclass(frozen=True, slots=True, order=True)
class Bind:
    """A path that must stay visible."""

    path: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Cover:
    """A directory that is replaced by an empty one, and what is shown in it again."""

    path: str
    binds: tuple[Bind, ...] = ()
    source: str | None = None
    """What replaces it, when the command may write there."""


def ancestors(path: str) -> tuple[str, ...]:
    """The directories above `path`, outermost first."""
    return tuple(str(parent) for parent in reversed(PurePosixPath(path).parents))


def plan_view(
    needed: Collection[Bind],
    can_traverse: Callable[[str], bool],
    hidden: Sequence[str] = (),
    sources: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Cover, ...]:
    """The covers to mount, in this order, so that all of `needed` can be reached; those of `hidden` always.

    `sources` names what replaces a hidden directory, where that is not an empty read-only one.

    A need inside another one is seen with it, with the outer one's rights, unless something between them bars it.
    """
    covers: dict[str, list[Bind]] = {path: [] for path in sorted(hidden)}
    shown: list[str] = ["/"]
    merged: dict[str, bool] = {}
    for bind in needed:
        merged[bind.path] = merged.get(bind.path, False) or bind.writable
    for path in sorted(merged, key=lambda each: PurePosixPath(each).parts):
        base = max((each for each in shown if is_below(path, each)), key=len)
        steps = [step for step in ancestors(path) if is_below(step, base)]
        barred = next((step for step in steps if step in hidden or not can_traverse(step)), None)
        if barred is not None:
            covers.setdefault(barred, []).append(Bind(path, merged[path]))
            shown.append(path)
    # An inner cover lies on something that the outer one shows, so it comes later.
    plan: list[Cover] = []
    for path in sorted(covers, key=lambda each: PurePosixPath(each).parts):
        if is_shown(path, plan):  # what an outer cover hides needs no cover, and has no place for one
            plan.append(Cover(path, tuple(covers[path]), sources.get(path)))
    return tuple(plan)


def is_shown(path: str, covers: Collection[Cover]) -> bool:
    """Whether the command sees what the host has at `path`."""
    shown = True
    for cover in covers:  # outermost first
        if is_below(path, cover.path):
            shown = any(is_below(path, bind.path) for bind in cover.binds)
    return shown


def own_homes(user: User) -> tuple[str, ...]:
    """The home directories to hide. A daemon's, which is some directory of the system, is not its own."""
    found = []
    for path in map(os.path.realpath, filter(os.path.isabs, user.homes)):
        if path != "/" and path not in found and os.path.isdir(path) and os.stat(path).st_uid == user.uid:
            found.append(path)
    return tuple(found)


def is_below(path: str, tree: str) -> bool:
    """Whether `path` is `tree` or in it."""
    return PurePosixPath(path).is_relative_to(tree)


def traversal_by(user: User) -> Callable[[str], bool]:
    """Whether `user`, who has no capabilities, may enter a directory, by its mode bits.

    Access control lists are not read. At worst a directory is covered that need not be, or CMD's start fails with
    the kernel's refusal.
    """

    def can_traverse(path: str) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            return True  # nothing there that could bar the way
        if status.st_uid == user.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == user.gid or status.st_gid in user.groups:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)

    return can_traverse


def locate(name: str, search_path: str, cwd: str) -> str:
    """The absolute path that a shell in `cwd` would run for `name`. Raises CannotStart."""
    if "/" in name:
        path = os.path.join(cwd, name)
        if not os.path.exists(path):
            raise CannotStart(f"cannot run {name}: no such file")
        if os.path.isdir(path):
            raise CannotStart(f"cannot run {name}: it is a directory")
        return path
    for directory in search_path.split(os.pathsep):
        path = os.path.join(cwd, directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise CannotStart(f"command not found: {name} (not in any directory of PATH)")


def program_needs(
    path: str, search_path: str, can_traverse: Callable[[str], bool], changeable: Collection[str] = ()
) -> Iterator[Bind]:
    """What must be visible for the program at `path` to run: its directory, its libraries, its interpreter.

    `bin` is taken with its siblings of libraries, but never the directory above: that of ~/.local/bin is full of
    other things. A link or a script in a tree of `changeable` may have been written by an earlier command, to have a
    hidden directory shown to the next: what it leads to counts only as an executable in a directory named `bin`.
    """
    suspect = False
    for _ in range(_SCRIPT_LIMIT):
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        for hop in _links(path):
            if suspect and not _is_installed(hop):
                return
            yield from _beside(hop, can_traverse)
            suspect = suspect or any(is_below(hop, tree) for tree in changeable)
        interpreter = _interpreter(path, search_path)
        if interpreter is None:
            return
        path = interpreter


def _is_installed(program: str) -> bool:
    in_bin = os.path.basename(os.path.dirname(program)) in ("bin", "sbin")
    return in_bin and os.path.isfile(program) and os.access(program, os.X_OK)


def _beside(program: str, can_traverse: Callable[[str], bool]) -> Iterator[Bind]:
    directory = os.path.dirname(program)
    if not can_traverse(directory):
        yield Bind(program)  # alone in a private directory: not its neighbours
        return
    for tree in {directory, os.path.realpath(directory)}:
        yield Bind(tree)
        if os.path.basename(tree) in ("bin", "sbin"):
            libraries = (os.path.join(os.path.dirname(tree), name) for name in ("lib", "lib64", "libexec"))
            yield from (Bind(each) for each in libraries if os.path.isdir(each))
            # Without it the interpreter of a virtual environment takes itself for the system's, and finds no library.
            marker = os.path.join(os.path.dirname(tree), "pyvenv.cfg")
            if os.path.isfile(marker):
                yield Bind(marker)


def _links(path: str) -> Iterator[str]:
    """`path` and what its symbolic links lead to, one after the other."""
    for _ in range(_LINK_LIMIT):
        yield path
        if not os.path.islink(path):
            return
        path = os.path.normpath(os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path)))


def _interpreter(path: str, search_path: str) -> str | None:
    """The interpreter a script names in its first line, looked up when it goes through env; None for a program."""
    try:
        with open(path, "rb") as program:
            first_line = program.readline(256)
    except OSError:
        return None
    words = os.fsdecode(first_line[2:]).split()
    if not first_line.startswith(b"#!") or not words or not words[0].startswith("/"):
        return None
    if os.path.basename(words[0]) != "env":
        return words[0]
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
    try:
        return locate(name, search_path, "/")
    except CannotStart:
        return None
