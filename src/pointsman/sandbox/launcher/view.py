"""What the sandbox can see of the file system, as `visibility` and `hosts` have planned it."""

import os
from typing import Any

from .kernel import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT, mount, unmount


def cover(path: str, binds: list[list[Any]]) -> None:
    """Put an empty read-only directory over `path`, and into it the things of `binds`, a list of [path, writable]."""
    # Opened first: once the cover lies over them they have no path. O_PATH asks for no right on the thing itself.
    held = [(target, writable, os.open(target, os.O_PATH | os.O_CLOEXEC)) for target, writable in binds]
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for target, writable, descriptor in held:
        source = f"/proc/self/fd/{descriptor}"
        if os.path.isdir(source):
            os.makedirs(target, 0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # What is mounted below a read-only tree stays outside: a remount would not reach it.
        mount(source, target, None, MS_BIND | (MS_REC if writable else 0))
        if not writable:
            mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(descriptor)
    mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def kernel_views() -> None:
    """Fresh /proc and /sys: the host's would show its processes and its network interfaces."""
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    cgroup = "/sys/fs/cgroup"
    # Kept, because runtimes size their heaps and thread pools by it.
    held = os.open(cgroup, os.O_PATH | os.O_CLOEXEC) if os.path.isdir(cgroup) else None
    if os.path.isdir("/sys"):
        mount("sysfs", "/sys", "sysfs", quiet | MS_RDONLY)
    if held is not None:
        if os.path.isdir(cgroup):
            mount(f"/proc/self/fd/{held}", cgroup, None, MS_BIND | MS_REC)
        os.close(held)
    mount("proc", "/proc", "proc", quiet)


def own_hosts(text: str, staging: str) -> None:
    """Put `text` over /etc/hosts; the host's own file is not touched. `staging` is an empty directory."""
    if not os.path.exists("/etc/hosts"):
        return  # nothing to mount on; proxy variables still lead to the door
    # Made on a file system that has no path a moment later: nobody inside can reach it but through the mount.
    mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=1m")
    path = os.path.join(staging, "hosts")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        os.fchmod(descriptor, 0o644)
        file.write(text)
    mount(path, "/etc/hosts", None, MS_BIND)
    mount("none", "/etc/hosts", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    unmount(staging)
