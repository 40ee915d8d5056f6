"""What the launcher is told to do for a command. Looks at the file system, changes nothing."""

import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.sandbox.bubblewrap import bubblewrap_arguments
from pointsman.sandbox.child import CannotStart, User, system_call_filter, system_calls
from pointsman.sandbox.choice import Isolation
from pointsman.sandbox.hosts import hosts_file
from pointsman.sandbox.visibility import (
    HIDDEN,
    PRIVATE,
    PRIVATE_HOME,
    Bind,
    Cover,
    is_below,
    is_shown,
    locate,
    own_homes,
    plan_view,
    program_needs,
    traversal_by,
)

TLS_PORT = 443
"""Where clients that ignore proxy variables look for the door; its URL names no other."""
LAUNCHER_PATH = str(Path(__file__).with_name("launcher"))
HOSTS = "/etc/hosts"
PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and as whom."""

    argv: tuple[str, ...]
    user: User | None
    """None: as the caller; only with isolation `none`."""
    cwd: str
    """Absolute."""
    search_path: str
    """PATH, for finding `argv[0]`."""
    expose: tuple[str, ...] = ()
    """Directories or files that must stay visible, relative to `cwd`; the command may change them."""
    show: tuple[str, ...] = ()
    """Absolute paths that must be readable whatever lies above them: certificates."""
    blank: tuple[str, ...] = ()
    """Files that the command finds empty: they may hold keys."""
    groups: tuple[str, ...] = ()
    """Directories of the control groups to run in."""


@dataclass(frozen=True, slots=True)
class View:
    """What a command sees."""

    program: str
    """The path of what it runs."""
    covers: tuple[Cover, ...]
    """In the order in which they are mounted."""
    writable: tuple[str, ...]
    """What it may change as far as its user may: working directory, exposed paths, HOME."""
    blank: tuple[str, ...]
    locked: tuple[str, ...]
    """What it may not change although it lies in something writable: our own code, which its operator runs outside."""


def view_of(command: Command, user: User, private: str) -> View:
    """The view that leaves `command` what it needs. `private` is the sandbox's own directory. Raises CannotStart."""
    can_traverse = traversal_by(user)
    program = locate(command.argv[0], command.search_path, command.cwd)
    homes = own_homes(user)
    shown = _shown(command, user, homes)
    home = os.path.join(private, PRIVATE_HOME)
    own = own_code(command.cwd)
    # Neither the root, which is everything, nor a directory in the midst of our own code.
    writable = [path for path in shown if path != "/" and not any(is_below(path, tree) for tree in own)]
    needs = {Bind(path, writable=path in writable or path == home) for path in (*shown, home)}
    # Our own interpreter, which CMD very often is, or starts, and which starts it; and our package, for `doctor`.
    needs.update(Bind(os.path.realpath(path)) for path in (sys.prefix, sys.base_prefix, PACKAGE, *command.show))
    for each in (sys.executable, program):
        needs.update(program_needs(each, command.search_path, can_traverse, writable))
    hidden = [
        path
        for path in (*HIDDEN, *PRIVATE, *homes)
        if os.path.isdir(path) and not os.path.islink(path) and path not in shown
    ]
    covers = plan_view(needs, can_traverse, hidden, {path: os.path.join(private, PRIVATE[path]) for path in PRIVATE})
    blank = tuple(path for path in map(os.path.realpath, command.blank) if is_shown(path, covers))
    return View(program, covers, (*writable, home), blank, _inside(writable, own))


def own_code(cwd: str) -> tuple[str, ...]:
    """Where Python takes what runs as Pointsman, outside: whoever can write there runs as its operator.

    Not the working directory itself, which is searched only when Pointsman is run by `python -m`.
    """
    paths = {os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix, PACKAGE) if path}
    return tuple(sorted(paths - {os.path.realpath(cwd), "/"}))


def _inside(trees: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Those of `paths` that exist below one of `trees`, outermost first."""
    return tuple(path for path in paths if os.path.exists(path) and any(is_below(path, tree) for tree in trees))


def _shown(command: Command, user: User, homes: Sequence[str]) -> list[str]:
    exposed = []
    for each in command.expose:
        path = os.path.realpath(os.path.join(command.cwd, each))
        if not os.path.exists(path):
            raise CannotStart(f"--expose {each}: no such file or directory")
        exposed.append(path)
    cwd = os.path.realpath(command.cwd)
    if cwd in homes and cwd not in exposed:
        raise CannotStart(
            f"{cwd} is the home directory of {user.name}, with keys in it: start from the directory of your project, "
            f"or show all of it with --expose {cwd}"
        )
    can_traverse = traversal_by(user)
    for path in (cwd, *exposed):
        if os.path.isdir(path) and not can_traverse(path):
            way_out = "start from another directory" if path == cwd else "leave it out of --expose"
            raise CannotStart(f"{user.name} may not enter {path}: {way_out}, or choose another --user")
    return [cwd, *exposed]


def launcher(entry: str) -> tuple[str, ...]:
    """What starts `launcher`, given descriptors to add. Neither other packages nor our own are in its reach."""
    code = f"import os, sys; sys.path.append(sys.argv[1]); from launcher.main import {entry}; os._exit({entry}())"
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", code, os.path.dirname(LAUNCHER_PATH))


def orders_for(command: Command, isolation: Isolation, port: int, bubblewrap: str | None = None) -> dict[str, Any]:
    """The orders, as `launcher` reads them. Raises CannotStart."""
    orders: dict[str, Any] = {
        "supervisor": os.getpid(),
        "isolation": isolation.value,
        "argv": [text(each) for each in command.argv],
        "cwd": text(command.cwd),
        "groups": [text(each) for each in command.groups],
    }
    if isolation is Isolation.NONE:
        return {**orders, "path": text(locate(command.argv[0], command.search_path, command.cwd))}
    user = command.user
    if user is None:
        raise CannotStart("an isolated command needs a user to run as; name one with --user")
    private = os.path.join(_private_base(user), f"pointsman-home-{secrets.token_hex(8)}")
    view = view_of(command, user, private)
    calls = system_calls()
    orders |= {
        "path": text(view.program),
        "ports": [port, TLS_PORT],
        "hosts": text(hosts_file(_hosts())) if os.path.exists(HOSTS) else None,
        "user": {"uid": user.uid, "gid": user.gid},
        "private": text(private),
        "rooms": [PRIVATE_HOME, *PRIVATE.values()],
        "system_calls": {"filter": system_call_filter(calls).hex(), "keyctl": calls.keyctl},
    }
    if isolation is Isolation.BWRAP:
        assert bubblewrap is not None, "choose_isolation has seen it"
        words = (bubblewrap, *bubblewrap_arguments(view, private))
        init = launcher("init_in_bubblewrap")
        return orders | {"bwrap": [text(each) for each in words], "launcher": [text(each) for each in init]}
    return orders | {
        "view": [
            [text(each.path), each.source and text(each.source), [[text(b.path), b.writable] for b in each.binds]]
            for each in view.covers
        ],
        "blank": [text(path) for path in view.blank],
        "writable": [text(path) for path in view.writable],
        "locked": [text(path) for path in view.locked],
    }


def _private_base(user: User) -> str:
    can_traverse = traversal_by(user)
    bases = (os.path.realpath(tempfile.gettempdir()), "/tmp", "/var/tmp")  # noqa: S108 - a fresh 0700 directory there
    reachable = (base for base in bases if all(can_traverse(str(step)) for step in (*Path(base).parents, base)))
    return next(reachable, "/tmp")  # noqa: S108


def _hosts() -> str:
    try:
        return os.fsdecode(Path(HOSTS).read_bytes())
    except OSError:
        return ""


def text(value: str) -> str:
    """`value` as the launcher, which always reads UTF-8, must be given it for the same bytes to come out."""
    return os.fsencode(value).decode("utf-8", "surrogateescape")
