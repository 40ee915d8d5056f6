"""What this host allows: namespaces, bubblewrap, control groups. Looks, tries, and decides whether that is enough.

Every trial of namespaces is made in a process of its own, which ends with it.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.sandbox.choice import BUBBLEWRAP_PATH, USER_NAMESPACE_SETTINGS
from pointsman.sandbox.control_groups import make_control_groups
from pointsman.sandbox.resources import NoControlGroup, Resources

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
_SECONDS = 20.0  # a trial takes milliseconds, and an interpreter's start
_TRY = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(ctypes.get_errno() if libc.unshare(int(sys.argv[1])) else 0)
"""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What was found and tried."""

    is_root: bool
    namespaces_error: int = 0
    """errno of making the network, mount and PID namespaces that root needs; 0: it works. Not tried without root."""
    user_namespaces_error: int = 0
    """errno of a user namespace with a network namespace in it; 0: it works."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the kernel, about user namespaces: those of USER_NAMESPACE_SETTINGS that exist."""
    bubblewrap: str = ""
    """Its path, or empty."""
    bubblewrap_error: str = ""
    """What it said when it was tried; empty: it works, or is not there."""
    limits_error: str = ""
    """Why no control group for `--memory` and `--cpus` could be made; empty: one was, and removed again."""


def can_isolate(facts: HostFacts) -> bool:
    """Whether the isolation works that `--isolation auto` takes for whoever asks: `netns` as root, else `bwrap`.

    For root the other is no way out: `--isolation bwrap` refuses root, who owns the host's files.
    """
    if facts.is_root:
        return not facts.namespaces_error
    return bool(facts.bubblewrap) and not facts.bubblewrap_error


def look_at_host() -> HostFacts:
    """Look, and try. Takes a fraction of a second; raises nothing."""
    is_root = os.geteuid() == 0
    bubblewrap = shutil.which("bwrap", path=BUBBLEWRAP_PATH) or ""
    return HostFacts(
        is_root,
        _try_namespaces(_CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWPID) if is_root else 0,
        _try_namespaces(_CLONE_NEWUSER | _CLONE_NEWNET),
        user_namespace_settings(),
        bubblewrap,
        _try_bubblewrap(bubblewrap) if bubblewrap else "",
        _try_control_groups(),
    )


def _environment() -> dict[str, str]:
    """Of a trial: the caller's holds keys, and an environment can be read."""
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


def _try_namespaces(flags: int) -> int:
    try:
        command = [sys.executable, "-I", "-S", "-c", _TRY, str(flags)]
        tried = subprocess.run(command, env=_environment(), timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return errno.EIO
    return tried.returncode


def _try_bubblewrap(path: str) -> str:
    options = ("--unshare-user", "--unshare-net", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
    try:
        tried = subprocess.run(
            [path, *options, "true"],
            env=_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else (tried.stderr.strip().rpartition("\n")[2] or f"status {tried.returncode}")


def user_namespace_settings() -> dict[str, str]:
    """The kernel's settings about user namespaces, as far as it has them."""
    settings = {}
    for name in USER_NAMESPACE_SETTINGS:
        with contextlib.suppress(OSError):
            settings[name] = Path("/proc/sys", name).read_text().strip()
    return settings


def _try_control_groups() -> str:
    try:
        groups = make_control_groups(Resources(memory_bytes=1 << 30, cpus=1.0))
    except NoControlGroup as error:
        return error.cause
    asyncio.run(groups.remove())
    return ""
