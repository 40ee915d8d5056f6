"""What this host allows: namespaces, bubblewrap, cgroups. Looks and tries; decides nothing but what is possible.

Every trial is made in a process of its own, which ends with it.
"""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
_SECONDS = 20.0  # a trial takes milliseconds, and an interpreter's start
_TRY = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(ctypes.get_errno() if libc.unshare(int(sys.argv[1])) else 0)
"""
# Kernel settings that keep ordinary users from making user namespaces, with the value that does.
_SWITCHES = (
    ("kernel.unprivileged_userns_clone", "0"),  # Debian's and Arch's
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),  # Ubuntu's
    ("user.max_user_namespaces", "0"),
)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this process is in the cgroup v2 hierarchy; empty path: nowhere."""

    path: str = ""
    writable: bool = False
    """Whether groups can be made below it."""
    controllers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was found and tried."""

    is_root: bool
    namespaces_error: int = 0
    """errno of making the network, mount and PID namespaces that root needs; 0: it works. Not tried without root."""
    user_namespaces_error: int = 0
    """errno of a user namespace with a network namespace in it; 0: it works."""
    closed_by: tuple[str, ...] = ()
    """Kernel settings, as `name=value`, that forbid user namespaces to ordinary users."""
    bubblewrap: str = ""
    """Its path, or empty."""
    bubblewrap_error: str = ""
    """What it said when it was tried; empty: it works, or is not there."""
    cgroups: Cgroups = Cgroups()


def possible_isolations(facts: HostFacts) -> tuple[str, ...]:
    """What can isolate a command here, best first: `netns` as root, `bwrap` as anyone."""
    found = []
    if facts.is_root and not facts.namespaces_error:
        found.append("netns")
    if facts.bubblewrap and not facts.bubblewrap_error:
        found.append("bwrap")
    return tuple(found)


def look_at_host() -> HostFacts:
    """Look, and try. Takes a fraction of a second; raises nothing."""
    is_root = os.geteuid() == 0
    bubblewrap = shutil.which("bwrap") or ""
    return HostFacts(
        is_root,
        _try_namespaces(_CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWPID) if is_root else 0,
        _try_namespaces(_CLONE_NEWUSER | _CLONE_NEWNET),
        _closed_by(),
        bubblewrap,
        _try_bubblewrap(bubblewrap) if bubblewrap else "",
        _cgroups(),
    )


def _try_namespaces(flags: int) -> int:
    try:
        tried = subprocess.run([sys.executable, "-I", "-S", "-c", _TRY, str(flags)], timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return errno.EIO
    return tried.returncode


def _try_bubblewrap(path: str) -> str:
    options = ("--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
    try:
        tried = subprocess.run(
            [path, *options, "true"], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else (tried.stderr.strip().rpartition("\n")[2] or f"status {tried.returncode}")


def _closed_by() -> tuple[str, ...]:
    found = []
    for name, closed in _SWITCHES:
        try:
            value = Path("/proc/sys", *name.split(".")).read_text().strip()
        except OSError:
            continue
        if value == closed:
            found.append(f"{name}={value}")
    return tuple(found)


def _cgroups() -> Cgroups:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        group = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        path = Path("/sys/fs/cgroup", group.lstrip("/"))
        controllers = (path / "cgroup.controllers").read_text().split()
    except (OSError, StopIteration):
        return Cgroups()
    return Cgroups(
        str(path), os.access(path, os.W_OK) and os.access(path / "cgroup.procs", os.W_OK), tuple(controllers)
    )
